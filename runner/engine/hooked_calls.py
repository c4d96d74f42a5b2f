"""Hooks around the calls, the prompts and the end of a run. Imported only in sessions with hooks.

INVARIANT: an answer of a hook is a rule about one action that asks or denies, or another input that is planned and
judged anew. No answer allows an action.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from policy.model.action import EditFile, WriteFile
from policy.model.assessment import RuleRef
from policy.model.profile import MAIN, Layer, PermissionRule
from policy.model.tier import Ruling
from policy.model.verdict import Allow, Ask, Problem
from runner.audit.records import RecordedHook
from runner.engine.authorize import Evaluation
from runner.engine.budget import BudgetExceeded
from runner.engine.hook_access import EventAnswer, HookAccess, HookDecision, HookReply
from runner.engine.judge import announce, evaluate_action
from runner.engine.plan_mode import Proposal, proposal
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, HookedCall, Judgement, ModelCall, Planned, plan
from runner.engine.unworkable import unworkable
from runner.events import Notice
from runner.messages import TextBlock, joined_text
from runner.problems import Exit
from runner.text.sanitize import one_line

MOST_RETRIES = 3  # times that hooks of Stop may let one run go on
_MOST_CHANGED = 20  # changed files of one action that hooks of FileChanged are told
_LONGEST = 2000  # characters of the answer of the model in the input of a hook
_RULINGS = {HookDecision.ASK: Ruling.ASK, HookDecision.DENY: Ruling.DENY}


async def judge_hooked(call: ModelCall, ctx: RunContext) -> Judgement | Proposal | CallResult:
    """Ask the hooks about `call`, then evaluate and announce it with their answers.

    The parameters and the result are those of `judge_call`. Raise BudgetExceeded if a hook ends the run.
    """
    assert ctx.hooks is not None  # the caller has checked it
    proposed = proposal(call, ctx)
    if proposed is not None:
        return proposed
    planned = plan(call, ctx)
    if isinstance(planned, Problem):
        return announce(call, planned, ctx)
    original = planned
    reply = await _about(ctx.hooks, "PreToolUse", planned, ctx)
    answers = reply.answers
    if (changed := _changed_input(reply)) is not None:
        call = replace(call, of=replace(call.of, arguments=dict(changed.input or {}), raw=""))
        planned = plan(call, ctx)
        if isinstance(planned, Problem):
            what = f"the hook {changed.place} changed this call so that it cannot be used"
            return announce(call, replace(planned, what=f"{what}: {planned.what}"), ctx)
    hooked = _hooked(answers, planned, original, changed)
    evaluation = evaluate_action(planned.action, ctx, hooked.rules)
    if isinstance(evaluation.verdict, Ask) and ctx.hooks.wants("PermissionRequest"):
        asked = await _about(ctx.hooks, "PermissionRequest", planned, ctx)
        _require_going_on(asked)
        answers = (*answers, *asked.answers)
        hooked = _hooked(answers, planned, original, changed)
        evaluation = evaluate_action(planned.action, ctx, hooked.rules)
    problem = unworkable(planned.action, evaluation)
    judged = Judgement(planned, evaluation, ctx.live.named, hooked=hooked)
    _require_going_on(reply)
    return announce(call, problem or judged, ctx)


async def _about(hooks: HookAccess, event: str, planned: Planned, ctx: RunContext) -> HookReply:
    call = planned.call
    agent = ctx.agent if ctx.agent != MAIN else ""
    arguments: Mapping[str, object] = call.of.arguments or {}
    return await hooks.ask_about_call(event, call.name, arguments, call.of.id, agent=agent)


def _changed_input(reply: HookReply) -> EventAnswer | None:
    """Return the last answer with another input, unless a hook denies the call. Later hooks of the files win."""
    if reply.decision is HookDecision.DENY:
        return None
    return next((each for each in reversed(reply.answers) if each.input is not None), None)


def _hooked(
    answers: Sequence[EventAnswer], planned: Planned, original: Planned, changed: EventAnswer | None
) -> HookedCall:
    """Return the answers as rules about the action of `planned`, and for the record."""
    rules = []
    for answer in answers:
        if (ruling := _RULINGS.get(answer.decision)) is not None:
            ref = RuleRef.parse(answer.place)
            rules.append(
                PermissionRule(ruling, ref, Layer.HOOK, tool=(planned.action.tool,), why=one_line(answer.reason, 900))
            )
    recorded = tuple(
        RecordedHook(each.event, each.place, each.decision.name.lower(), each.reason, each.record, each.failed)
        for each in answers
    )
    proposed = original.action if changed is not None and original.action != planned.action else None
    return HookedCall(tuple(rules), recorded, proposed, changed.place if changed is not None else "", tuple(answers))


def _require_going_on(reply: HookReply) -> None:
    if (answer := reply.halted) is not None:
        raise BudgetExceeded(f"the hook {answer.place} ended the run: {one_line(answer.reason, 300)}", exit=Exit.FAILED)


async def after_call(judgement: Judgement, report: CallResult, ctx: RunContext) -> CallResult:
    """Ask the hooks about the result of a call, and return the result with the texts that the hooks add.

    Raise BudgetExceeded if a hook ends the run.
    """
    hooks = ctx.hooks
    assert hooks is not None  # the caller has checked it
    texts = []
    if judgement.hooked is not None:
        texts.append(hooks.marked([replace(each, reason="") for each in judgement.hooked.answers]))
        if report.denied is not None:
            texts.append(_whole_reasons(judgement.hooked, hooks))
    halting = HookReply()
    if report.denied is None:
        planned = judgement.planned
        result = {"text": joined_text(report.result.content), "is_error": report.result.is_error}
        if hooks.wants("PostToolUse"):
            agent = ctx.agent if ctx.agent != MAIN else ""
            arguments = planned.call.of.arguments or {}
            halting = await hooks.ask_about_call(
                "PostToolUse", planned.call.name, arguments, planned.call.of.id, result=result, agent=agent
            )
            texts.append(hooks.marked(halting.answers))
        if hooks.wants("FileChanged") and not judgement.only_reads:
            texts.append(await _tell_changes(judgement, hooks, ctx))
    added = "\n".join(filter(None, texts))
    _require_going_on(halting)
    if not added:
        return report
    content = (*report.result.content, TextBlock(f"\n{added}"))
    return replace(report, result=replace(report.result, content=content))


def _whole_reasons(hooked: HookedCall, hooks: HookAccess) -> str:
    """Return the reasons of denials that one line cannot hold, such as the output of a linter."""
    long = [
        replace(each, decision=HookDecision.RETRY)
        for each in hooked.answers
        if each.decision is HookDecision.DENY and ("\n" in each.reason or len(each.reason) > 900)
    ]
    return hooks.marked(long)


async def _tell_changes(judgement: Judgement, hooks: HookAccess, ctx: RunContext) -> str:
    """Run the hooks of FileChanged for the files that an action changed, and return the texts that they add."""
    changed = ctx.undo.changed if ctx.undo is not None else None
    action = judgement.planned.action
    if changed is None and isinstance(action, WriteFile | EditFile):
        changed = ((action.path, "modified"),)
    answers: list[EventAnswer] = []
    for path, how in (changed or ())[:_MOST_CHANGED]:
        place = path if path.startswith("/") else os.path.join(ctx.look().workspace, path)
        event = {"added": "add", "deleted": "unlink"}.get(how, "change")
        fields = {"file_path": place, "event": event}
        answers += (await hooks.ask("FileChanged", os.path.basename(path), fields)).answers
    if len(changed or ()) > _MOST_CHANGED:
        ctx.emit(Notice(f"hooks of FileChanged were told {_MOST_CHANGED} of {len(changed or ())} changed files"))
    return hooks.marked(answers)


async def ask_before_question(evaluation: Evaluation, planned: Planned, ctx: RunContext) -> EventAnswer | None:
    """Ask the hooks of PermissionRequest before a question about one more right. Return a denial, or None."""
    hooks = ctx.hooks
    if hooks is None or not hooks.wants("PermissionRequest") or isinstance(evaluation.verdict, Allow):
        return None
    reply = await _about(hooks, "PermissionRequest", planned, ctx)
    return next(iter(reply.of(HookDecision.DENY)), None)


async def begin_prompt(prompt: str, ctx: RunContext, *, resumed: bool) -> tuple[EventAnswer | None, str]:
    """Ask the hooks about a prompt. Return the denial, or None, and the texts that the hooks add for the model."""
    hooks = ctx.hooks
    assert hooks is not None  # the caller has checked it
    if ctx.agent == MAIN:
        reply = await hooks.begin_prompt(prompt, resumed=resumed)
    else:  # the prompt of a sub-agent is text of a model
        reply = await hooks.ask("SubagentStart", ctx.agent, {"prompt": prompt}, agent=ctx.agent)
    denial = next(iter(reply.of(HookDecision.DENY)), None) or reply.halted
    return denial, hooks.marked(reply.answers)


async def ask_to_stop(answer: str, retries: int, ctx: RunContext) -> str:
    """Ask the hooks whether the run may end with `answer`. Return the text with which the model goes on, or an empty
    text.

    `retries` is the number of times that hooks let this run go on before.
    """
    hooks = ctx.hooks
    event = "Stop" if ctx.agent == MAIN else "SubagentStop"
    if hooks is None or not hooks.wants(event):
        return ""
    fields = {"stop_hook_active": retries > 0, "last_assistant_message": ctx.redactor.text(answer)}
    reply = await hooks.ask(event, "" if ctx.agent == MAIN else ctx.agent, fields,
                            agent=ctx.agent if ctx.agent != MAIN else "")  # fmt: skip
    if reply.halted is not None:
        return ""
    text = hooks.marked(reply.of(HookDecision.RETRY))
    if text and retries >= MOST_RETRIES:
        ctx.emit(Notice(f"a hook of {event} wants the run to go on, but it already did so {MOST_RETRIES} times"))
        return ""
    if text:
        places = ", ".join(dict.fromkeys(each.place for each in reply.of(HookDecision.RETRY)))
        ctx.emit(Notice(f"the hook {places} lets the run go on"))
    return text


async def tell_sampling(answer: str, calls: int, ctx: RunContext) -> str:
    """Run the hooks of PostSampling after an answer of the model, and return the texts that they add."""
    hooks = ctx.hooks
    if hooks is None or not hooks.wants("PostSampling"):
        return ""
    fields = {"last_assistant_message": ctx.redactor.text(answer[:_LONGEST]), "tool_calls": calls}
    reply = await hooks.ask("PostSampling", "", fields)
    _require_going_on(reply)
    return hooks.marked(reply.answers)


def refused_prompt(denial: EventAnswer, ctx: RunContext) -> str:
    """Return the sentence about a prompt that a hook refused."""
    return f"the hook {denial.place} refused the prompt: {one_line(ctx.redactor.text(denial.reason), 500)}"
