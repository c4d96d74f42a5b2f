"""The judgement of one call of a guarded agent by the gate, with its record."""

import hashlib
import os
import shlex
from dataclasses import replace

from policy.model.action import Action, RunScript
from policy.model.assessment import Assessment
from policy.model.profile import Source
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask, Deny, Problem, Verdict
from runner.audit.fact_recorder import FactRecorder
from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer
from runner.frontends.guard.tokens import GuardToken, issue, open_token, rewritten
from runner.gate.gate import Gate, GateArgs, has_remembered_answers, open_gate, refuse_folder

_LONGEST = 100_000  # bytes of one script: Linux passes a word of at most 128 KiB to a program
_INSIDE = "ringfence: the command runs in its sandbox"
NO_QUESTION = "this agent cannot ask its user from a hook"


def judge(call: GuardedCall, mode: Mode | None, config: str | None) -> GuardAnswer:
    """Return the answer to `call`. `mode` and `config` are the options of the hook. Raise ProblemError or OSError."""
    if call.kind is CallKind.INERT:
        return GuardAnswer(HookAnswer.NONE)
    if call.kind is CallKind.AFTER:
        from runner.frontends.guard.unconfined import after

        return after(call, os.environ)
    if call.kind is CallKind.REFUSED:
        return GuardAnswer(HookAnswer.DENY, f"ringfence: {call.note}")
    if call.kind is CallKind.UNKNOWN:
        return _asked(call, f"the tool `{call.tool}` is not known, so its effects are not known", "")
    args = GateArgs(
        script=call.script,
        argv=None,
        mode=Mode.PLAN if call.plan else mode,
        unattended=True,  # files of the repository never widen the rules, even if they are trusted
        cwd=call.cwd,
        config=config,
    )
    gate, script = open_gate(args, os.environ)
    refuse_folder(gate.cwd, os.environ, gate.settings.profile)
    if call.kind is CallKind.SHELL:
        return _shell(call, gate, script, config)
    answers = [_file(call, gate, action) for action in call.actions]
    order = (HookAnswer.DENY, HookAnswer.ASK, HookAnswer.ALLOW)
    return min(answers, key=lambda answer: order.index(answer.answer))


def evaluate(gate: Gate, action: Action) -> tuple[Assessment, Verdict]:
    """Return the verdict on `action` of a guarded agent, with the answers that the user gave earlier."""
    assessment, verdict = gate.evaluate(action, Source.MODEL, unattended=False)
    if not isinstance(verdict, Deny) and has_remembered_answers():
        from runner.approval.remembered import with_grants
        from runner.frontends.guard.record import open_grants

        context = gate.context(Source.MODEL, unattended=False)
        found = with_grants(context, assessment, verdict, open_grants(gate))
        return found.assessment, found.verdict
    return assessment, verdict


def question_digest(ask: Ask) -> str:
    """Return a digest of everything that the user approves who agrees to `ask`: the effects, reasons and rights."""
    found = ask.assessment
    terms = replace(ask.terms, env=())  # the hook and the command get other variables
    seed = repr((found.action, found.effects, found.reasons, terms.digest, ask.cell))
    return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()


def _shell(call: GuardedCall, gate: Gate, action: Action, config: str | None) -> GuardAnswer:
    assert isinstance(action, RunScript)
    if len(action.script.encode("utf-8", "surrogatepass")) > _LONGEST:
        return GuardAnswer(HookAnswer.DENY, "ringfence: the script is too long to be checked; write it to a file first")
    if mine := open_token(action.script, call.agent, gate.cwd, os.environ):
        # `agent exec` judges the command again. A question that this token stands for is put to the user now.
        return _asked(call, "it needs an approval", "") if mine.asked else GuardAnswer(HookAnswer.ALLOW, _INSIDE)
    verdict = _judged(call, gate, action)
    if isinstance(verdict, GuardAnswer):
        return verdict
    asked = question_digest(verdict) if isinstance(verdict, Ask) else ""
    token = GuardToken(
        action.script, gate.cwd, gate.mode.value, call.agent, call.session, call.call, call.tool, asked, config or ""
    )
    command = rewritten(issue(token, os.environ), action.script)
    if not call.rewrites:
        # The agent would run its own command without the sandbox, so it must call its tool with this one.
        how = f"ringfence runs this command only in its sandbox; run exactly this instead: {command}"
        return GuardAnswer(HookAnswer.DENY, how)
    if isinstance(verdict, Ask):
        return GuardAnswer(HookAnswer.ASK, f"ringfence: {verdict.question} {verdict.reason.text}", command)
    return GuardAnswer(HookAnswer.ALLOW, f"ringfence: {verdict.reason.text}", command)


def _file(call: GuardedCall, gate: Gate, action: Action) -> GuardAnswer:
    verdict = _judged(call, gate, action, records=True)
    if isinstance(verdict, GuardAnswer):
        return verdict
    if isinstance(verdict, Ask):
        return GuardAnswer(HookAnswer.ASK, f"ringfence: {verdict.question} {verdict.reason.text}")
    return GuardAnswer(HookAnswer.ALLOW, f"ringfence: {verdict.reason.text}")


def _judged(call: GuardedCall, gate: Gate, action: Action, *, records: bool = False) -> Allow | Ask | GuardAnswer:
    """Return the verdict, or the answer if it is a denial or a question that the agent cannot ask. Denials are
    recorded, and with `records` what is allowed, too: no `agent exec` follows that would record it.
    """
    noted = FactRecorder(gate.facts, gate.settings.profile)
    gate = replace(gate, facts=noted.facts)
    assessment, verdict = evaluate(gate, action)
    if isinstance(verdict, Deny):
        _record(call, gate, assessment, verdict, noted)
        return GuardAnswer(HookAnswer.DENY, denial(verdict.problem))
    if isinstance(verdict, Ask) and not call.asks:
        return _unasked(call, gate, assessment, verdict, noted)
    if records and isinstance(verdict, Allow):
        _record(call, gate, assessment, verdict, noted)
    return verdict


def _unasked(call: GuardedCall, gate: Gate, assessment: Assessment, ask: Ask, noted: FactRecorder) -> GuardAnswer:
    """Return the denial of a call that needs a question, by an agent that cannot ask."""
    from policy.grants.resolve import refuse

    answer = _asked(call, f"{ask.question} {ask.reason.text}", _way(assessment.action))
    no = replace(refuse(ask, None), problem=Problem(ask.question, ask.reason.text, answer.reason))
    _record(call, gate, assessment, no, noted)
    return answer


def _asked(call: GuardedCall, why: str, way: str) -> GuardAnswer:
    if call.asks:
        return GuardAnswer(HookAnswer.ASK, f"ringfence: {why}")
    return GuardAnswer(HookAnswer.DENY, f"ringfence: {why} ({NO_QUESTION}){way}")


def _way(action: Action) -> str:
    """Return how the user can allow the action; empty if only a rule in the configuration can."""
    if not isinstance(action, RunScript):
        return "; the user can add a rule for it (`agent why`)"
    command = shlex.join(["agent", "exec", action.script])
    return f"; the user can answer for this project with `{command}` in a terminal, then try again"


def denial(problem: Problem) -> str:
    """Return the text of a denial for the user and the model."""
    return f"ringfence: {problem.what}: {problem.why}. {problem.fix}"


def _record(call: GuardedCall, gate: Gate, assessment: Assessment, verdict: Allow | Deny, noted: FactRecorder) -> None:
    from runner.frontends.guard.record import record

    record(call, gate, assessment, verdict, noted)
