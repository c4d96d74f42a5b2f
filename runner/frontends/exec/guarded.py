"""Commands of guarded agents, and commands from untrusted text, in `agent exec`: verdict by token, and undo."""

from collections.abc import Awaitable, Callable

from policy.flow.state import FlowMode
from policy.flow.trusted_later import trusted_later
from policy.grants.resolve import approve
from policy.model.action import Action
from policy.model.profile import Source
from policy.model.verdict import Allow, Ask, Deny, Problem
from runner.approval.remembered import consume, with_grants
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import RecordedAnswer
from runner.changes.undo.lock import UndoError
from runner.changes.undo.recorder import Hold
from runner.flow.held_change import HeldChange
from runner.frontends.exec.report import ExecCase, UndoableRun
from runner.frontends.guard.record import open_grants
from runner.frontends.guard.tokens import GuardToken
from runner.frontends.guard.verdicts import question_digest
from runner.gate.gate import Gate
from runner.gate.wording import action_words
from runner.problems import Exit, Stopped
from runner.text.sanitize import one_line
from sandbox.backend import Outcome

_AGAIN = "let the agent call its shell tool again"


def guarded_case(gate: Gate, action: Action, noted: FactRecorder, token: GuardToken) -> ExecCase:
    """Judge the command of a guarded agent again, and return the decision.

    A question counts as answered only if the user of the agent was asked exactly this question before.
    """
    context = gate.context(Source.MODEL, unattended=False)
    store = open_grants(gate)
    found = consume(with_grants(context, *context.evaluate(action), store), store)
    verdict, answer = found.verdict, found.answer
    if isinstance(verdict, Ask) and token.asked and question_digest(verdict) == token.asked:
        answer = RecordedAnswer(verdict.question, True, token.agent)
        decided: Allow | Deny = approve(verdict)
    elif isinstance(verdict, Ask):
        why = "what decides about the command has changed since the agent was answered"
        problem = Problem("the command needs a question that nobody was asked", why, _AGAIN)
        decided = Deny(problem, verdict.cell, verdict.reason)
    else:
        decided = verdict
    attended = bool(token.asked)
    return ExecCase(gate, found.assessment, decided, answer, attended, noted, found.names, found.by, guarded=token)


async def with_undo(
    case: ExecCase, verdict: Allow, session: str, run: Callable[[], Awaitable[tuple[Outcome, int | None]]]
) -> UndoableRun:
    """Run the command with a snapshot before and after it.

    After untrusted text, changes of files that are trusted later are taken back, and reported.
    """
    recorder = case.recorder(session)
    words = action_words(case.assessment.action, case.gate.cwd)
    later = trusted_files(case)
    hold: Hold | None = (lambda path: bool(later(path))) if later is not None else None
    try:
        try:
            call = case.guarded.call if case.guarded is not None else ""
            step = await recorder.before(verdict.permit, words, call, required=hold is not None)
        except UndoError as error:
            raise Stopped(error.problem, Exit.FAILED) from None
        try:
            outcome, code = await run()
        finally:
            recorder.after(step, hold)
        held = tuple(held_problem(each, case) for each in recorder.held)
        return UndoableRun(outcome, code, recorder.changed, held)
    finally:
        recorder.close()


def trusted_files(case: ExecCase) -> Callable[[str], str] | None:
    """Return the function that tells as what a file is trusted later, so that its change is taken back; None if the
    rules of `flow` take none back.
    """
    flow, workspace = case.gate.flow, case.gate.facts.workspace
    if flow is None or flow.mode is not FlowMode.GUARD:
        return None
    return lambda path: trusted_later(path, workspace)


def held_problem(held: HeldChange, case: ExecCase) -> Problem:
    """Return the report about a change that was taken back."""
    name = one_line(held.path.removeprefix(case.gate.facts.workspace + "/"), 300)
    assert case.gate.flow is not None  # else nothing was held
    if held.problem:
        what = f"the change of `{name}` could not be taken back"
        return Problem(what, held.problem, "look at the file before anything uses it")
    why = f"the file is trusted later, and the command comes from untrusted text ({case.gate.flow.because})"
    return Problem(f"the change of `{name}` was taken back", why, "make the change yourself if you want it")
