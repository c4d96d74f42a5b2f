"""Execution of one judged call: authorize the action, record the decision, run the action, record the outcome."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from policy.grants.extra_right import ExtraRight
from policy.model.verdict import Allow, Deny, Permit
from runner.audit import records
from runner.audit.records import Decision
from runner.changes.undo.lock import UndoError
from runner.engine.authorize import Authorization, authorize
from runner.engine.escalation import request_escalation
from runner.engine.judge import CallRequester
from runner.engine.plan_mode import Proposal, propose
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import (
    CallResult,
    Judgement,
    ModelCall,
    Planned,
    again,
    denied,
    edited,
    finished,
    listener,
    stopped,
)
from runner.events import Notice
from runner.gate.wording import action_words, cell_words
from runner.sessions.entries import EntryBody
from runner.text.sanitize import one_line
from sandbox.backend import Outcome, interrupted_connections

ChangedFiles = tuple[tuple[str, str], ...] | None  # (path, kind of change), or None if nobody looked


async def execute_call(judgement: Judgement | Proposal, ctx: RunContext) -> CallResult:
    """Authorize the action, record the decision, and run the action only after the record is durable."""
    if isinstance(judgement, Proposal):
        return await propose(judgement, ctx)
    authorization = await authorize(judgement.evaluation, CallRequester(ctx, judgement.planned.call), judgement.early)
    planned, verdict = replace(judgement.planned, action=authorization.evaluation.action), authorization.verdict
    judgement = replace(judgement, planned=planned)
    decision = _decision(judgement, authorization, ctx)
    decision = replace(decision, grants=authorization.names, granted=authorization.by, proposed=authorization.proposed)
    number = _record(planned, decision, ctx)
    if isinstance(verdict, Deny):
        report = denied(planned, verdict, ctx, number)
    else:
        outcome = await _run_recorded(verdict.permit, number, planned, ctx)
        report = await _finish(judgement, verdict.permit, outcome, number, ctx)
    return report if authorization.proposed is None else edited(report, planned, ctx)


def _decision(judgement: Judgement, authorization: Authorization, ctx: RunContext) -> Decision:
    """Return the decision for the record, without the remembered answers."""
    return Decision(
        judgement.planned.call.name,
        authorization.evaluation.assessment,
        authorization.verdict,
        ctx.sandbox.name,
        authorization.answer,
        reach=ctx.sandbox.name,
        noted=authorization.evaluation.noted,
        model=judgement.model,
    )


def _record(planned: Planned, decision: Decision, ctx: RunContext) -> int:
    """Record `decision` and return the number of the record.

    INVARIANT: the record is durable before the action runs. AuditError is raised if it cannot be written, and then the
    action does not run.
    """
    number = ctx.audit.decided(ctx.session, decision)
    ctx.journal.call(verdict_of(planned, decision, number, ctx.cwd))
    return number


async def _finish(judgement: Judgement, permit: Permit, outcome: Outcome, number: int, ctx: RunContext) -> CallResult:
    """Return the result of an action. After the sandbox blocked it, run it again with each right that the user adds."""
    planned = judgement.planned
    granted: list[ExtraRight] = []
    while (more := await request_escalation(planned, permit.terms, outcome, ctx, granted)) is not None:
        right, escalated = more
        granted.append(right)
        decision = replace(_decision(judgement, escalated, ctx), typed=tuple(each.words for each in granted))
        number, before = _record(planned, decision, ctx), number
        if isinstance(escalated.verdict, Deny):
            return stopped(finished(planned, outcome, ctx, before), escalated.verdict.problem, ctx)
        permit = escalated.verdict.permit
        ctx.emit(Notice(f"it runs once more, with {right.words}"))
        outcome = await _run_recorded(permit, number, planned, ctx)
    report = finished(planned, outcome, ctx, number)
    return again(report, " and ".join(each.words for each in granted), ctx) if granted else report


async def _run_recorded(permit: Permit, number: int, planned: Planned, ctx: RunContext) -> Outcome:
    """Run the permit, and keep the files that it changes so that the changes can be undone."""
    if ctx.undo is None:
        return await _run(permit, number, planned.call, ctx, lambda: None)
    words = ctx.redactor.text(action_words(planned.action, ctx.cwd))
    try:
        running = await ctx.undo.before(permit, words, planned.call.key)
    except UndoError as error:  # the user wants no action to run that cannot be undone
        outcome = Outcome(status=1, problem=error.problem)
        ctx.audit.finished(number, outcome)
        return outcome
    except asyncio.CancelledError:
        ctx.audit.finished(number, Outcome(status=130, ended_by="cancelled"))
        raise
    undo = ctx.undo

    def look() -> ChangedFiles:
        step = undo.after(running)
        if step is not None:
            ctx.journal.snapshot(str(step), planned.call.key)
        return undo.changed

    return await _run(permit, number, planned.call, ctx, look)


async def _run(
    permit: Permit, number: int, call: ModelCall, ctx: RunContext, look: Callable[[], ChangedFiles]
) -> Outcome:
    """Run the permit and record the outcome, even if an exception ends the run, with the changes that `look` finds."""
    started, began = time.monotonic(), time.time()
    try:
        outcome = await ctx.sandbox.run(permit, listen=listener(call, ctx.emit))
    except BaseException as end:
        how = "cancelled" if isinstance(end, asyncio.CancelledError) else "failure"
        seconds, made = time.monotonic() - started, interrupted_connections(end)
        ctx.audit.finished(
            number,
            Outcome(status=130, seconds=seconds, ended_by=how, connections=made),
            records.Ran(began, changed=look()),
        )
        raise
    ctx.audit.finished(number, outcome, records.Ran(began, changed=look()))
    return outcome


_LONGEST = 1000  # characters of an action; the message that proposed it holds all of it


def verdict_of(planned: Planned, decision: Decision, record: int, cwd: str) -> EntryBody:
    """Return the journal entry of the decision with the number `record`, in words."""
    verdict, answer = decision.verdict, decision.answer
    return {
        "call": planned.call.of.id,
        "tool": planned.call.name,
        "action": one_line(action_words(planned.action, cwd), _LONGEST),
        "tiers": [tier.label for tier in decision.assessment.tiers],
        "verdict": "allow" if isinstance(verdict, Allow) else "deny",
        "why": verdict.reason.text,
        "rule": str(verdict.reason.rule),
        "cell": cell_words(verdict.cell),
        "record": record,
        "answer": answer.yes if answer is not None else None,
        "by": answer.by if answer is not None else None,
        "feedback": answer.feedback if answer is not None else None,
    }
