"""The decision about the changes of tried commands that wait in one list: the question, the record, the application.

THREAT T317: an approval counts for exactly the list that was shown. Without a clear answer nothing is kept.
"""

import asyncio
from dataclasses import replace

from policy.decide import preview_of
from policy.grants.resolve import answerer, refuse
from policy.model.action import Action, AskUser, ManageTasks, RunScript, SearchTools
from policy.model.profile import MAIN
from policy.model.verdict import Allow, Ask, Deny, Problem, ProblemError, Verdict
from runner.approval.approver import Answer, Halt, Kept, No
from runner.audit.records import Ran, RecordedAnswer
from runner.engine.authorize import Authorization, Evaluation
from runner.engine.execute import decision_of, execute_call, follow_changes, record_decision
from runner.engine.judge import CallRequester, evaluate_action, has_layer, may_try
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, Judgement, ModelCall
from runner.engine.waiting import TriedRun, WaitingList
from runner.events import ActionFinished, Denied, ToolProposed
from runner.gate.wording import action_words
from runner.messages import ToolCall, ToolResult, joined_text
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line

WAITING_CHANGES = "waiting_changes"  # in place of the name of a tool: no model called it
_LONGEST = 300  # characters of an action in a reason
_LONGEST_LIST = 1000  # characters of all commands
_NO_WORKSPACE = (AskUser, ManageTasks, SearchTools)  # actions that neither see nor change the workspace
_NOTHING = "nothing of what the tried commands of this turn changed can be kept"


async def must_settle(action: Action, verdict: Verdict, ctx: RunContext) -> str:
    """Return why the waiting changes must be decided before an action with this verdict, or an empty text."""
    waiting = ctx.tries.list
    if waiting is None:
        return ""
    assert isinstance(waiting, WaitingList)
    if isinstance(verdict, Deny) or isinstance(action, _NO_WORKSPACE):
        return ""
    if may_try(verdict, ctx) and isinstance(verdict, Ask) and verdict.tries:
        if not waiting.takes(preview_of(verdict).permit):
            return "the next command needs other rights"
        if await has_layer(verdict, ctx):
            return ""
    return f"the next action needs the workspace as it is: {one_line(action_words(action, ctx.cwd), _LONGEST)}"


async def settle(ctx: RunContext, why: str) -> Denied | None:
    """Ask about the changes that wait, and apply those that the user keeps. Return the refusal of the user, or None.

    `why` says why it is asked now. `ctx.tries` has the decision for the model afterwards. Raise asyncio.CancelledError
    if the user stops the turn: in answer to the question nothing is kept, else the changes still wait. Raise AuditError
    if the decision cannot be recorded, and then nothing is kept.
    """
    waiting, tries = ctx.tries.list, ctx.tries
    if waiting is None:
        return None
    assert isinstance(waiting, WaitingList)
    try:
        changed = waiting.review()
    except (OSError, ProblemError) as error:
        tries.lose(error.problem.why if isinstance(error, ProblemError) else os_reason(error), ctx.emit)
        return None
    if not changed:
        waiting.discard()
        tries.list = None
        return None
    if not waiting.items:
        tries.lose(f"{_NOTHING}; {'; '.join(waiting.shown.notes)}", ctx.emit)
        return None
    key = f"{waiting.runs[-1].planned.call.key}:kept"
    action = RunScript(waiting.script, ctx.cwd)
    call = ModelCall(key, ToolCall(waiting.runs[-1].planned.call.of.id, WAITING_CHANGES, {}))
    requester = CallRequester(ctx, call)
    last = waiting.runs[-1].evaluation
    assert isinstance(last.verdict, Ask)  # only what is asked about is tried
    question = waiting.question(requester.question(last.recalled.context, last.verdict, why), why)
    ctx.emit(ToolProposed(key, WAITING_CHANGES, action))
    answer, seconds = await requester.ask(question)
    tries.list = None
    try:
        if isinstance(answer, Kept) and not (refusal := _refusal(waiting, ctx)):
            recorded = RecordedAnswer(
                question.ask.question, True, requester.approver, None, seconds, client=answer.client
            )
            requester.answered(True, None, answer.client)
            await _keep(waiting, answer.numbers, recorded, key, ctx)
            return None
        feedback = _feedback(answer) if not isinstance(answer, Kept) else refusal
        client = answer.client if isinstance(answer, No | Kept) else None
        recorded = RecordedAnswer(question.ask.question, False, requester.approver, feedback, seconds, client=client)
        requester.answered(False, feedback, client)
        denied = _discard(waiting, recorded, key, ctx)
        if isinstance(answer, Halt):
            raise asyncio.CancelledError
        return denied
    finally:
        waiting.discard()


def _feedback(answer: Answer) -> str | None:
    return answer.feedback if isinstance(answer, No) else None


def _refusal(waiting: WaitingList, ctx: RunContext) -> str:
    """Return why nothing may be kept although the user wants it, or an empty text: a command is denied by now."""
    for each in waiting.runs:
        now = evaluate_action(each.planned.action, ctx).verdict
        if isinstance(now, Deny):
            return f"`{one_line(each.words, _LONGEST)}` is denied by now: {now.problem.why}"
    return ""


def _record(run: TriedRun, verdict: Allow | Deny, answer: RecordedAnswer, ctx: RunContext) -> int:
    """Record the decision about the changes of one command, and return the number of the record."""
    evaluation: Evaluation = run.evaluation
    judgement = Judgement(run.planned, evaluation, ctx.live.named)
    decision = decision_of(judgement, Authorization(evaluation, verdict, answer), ctx)
    return record_decision(run.planned, replace(decision, ran=run.number), ctx)


def _discard(waiting: WaitingList, answer: RecordedAnswer, key: str, ctx: RunContext) -> Denied:
    """Record that nothing is kept, and report it."""
    number = 0
    for run in waiting.runs:
        assert isinstance(run.evaluation.verdict, Ask)
        number = _record(run, refuse(run.evaluation.verdict, answer.feedback, answer.by), answer, ctx)
    words = _named(waiting)
    because = f": {answer.feedback}" if answer.feedback else ""
    ctx.tries.note(f"{answerer(answer.by)} discarded everything that {words} changed{because}")
    verdict = waiting.runs[-1].evaluation.verdict
    problem = Problem("the changes were discarded", f"{answerer(answer.by)} refused{because}", "do it another way")
    denied = Denied(key, words, verdict.cell.tier, verdict.reason.rule, problem, number)
    ctx.emit(denied)
    return denied


async def _keep(
    waiting: WaitingList, numbers: frozenset[int], answer: RecordedAnswer, key: str, ctx: RunContext
) -> None:
    """Record the decision, apply what is kept, record what was applied, and report it."""
    kept = waiting.keep(numbers)
    records = []
    for run in waiting.runs:
        assert isinstance(run.evaluation.verdict, Ask)
        # INVARIANT: the decision is on the disk before anything is applied.
        records.append(_record(run, preview_of(run.evaluation.verdict), answer, ctx))
    async with ctx.changing:
        result = waiting.conclude()
    follow_changes(result.changed, result.later, waiting.runs[-1].permit, ctx)
    hashes = ctx.undo.hashes if ctx.undo is not None else {}
    for place, (run, number) in enumerate(zip(waiting.runs, records, strict=True), 1):
        outcome = replace(run.outcome, violations=result.reports) if place == len(records) else run.outcome
        own = waiting.changed_by(place)
        ran = Ran(run.began, changed=own, transaction=waiting.share(place), hashes=hashes)
        ctx.audit.finished(number, outcome, ran, agent=ctx.agent, parent=ctx.parent)
    if result.step is not None:
        ctx.journal.snapshot(str(result.step), waiting.runs[-1].planned.call.key)
    if ctx.code is not None and result.changed:
        ctx.code.files_changed(result.changed)
    if ctx.agent != MAIN:
        ctx.changed.update(result.changed)
    words = _named(waiting)
    said = f"kept {kept}" if result.problem is None else f"nothing was kept: {result.problem.why}"
    said += "".join(f"\n{one_line(f'{each.what}; {each.fix}', 1000)}" for each in result.reports)
    ctx.emit(ActionFinished(key, 0, 0.0, None, result.reports, result.problem, said, None, record=records[-1]))
    ctx.tries.note(ctx.redactor.text(f"{answerer(answer.by)} decided about what {words} changed: {said}"))
    if ctx.flow is not None and (held := ctx.flow.take_held()):
        from runner.engine.held_changes import propose_held  # few commands change such files

        last = waiting.runs[-1]
        judgement = Judgement(last.planned, last.evaluation, ctx.live.named)
        empty = CallResult(ToolResult(last.planned.call.of.id, ()))
        done = await propose_held(
            held, empty, judgement, ctx, lambda each: execute_call(each, ctx, lambda report: None)
        )
        ctx.tries.note(joined_text(done.result.content).strip())


def _named(waiting: WaitingList) -> str:
    """Return the commands for the model and the user, on one line."""
    return one_line(", ".join(f"`{each.script}`" for each in waiting.runs), _LONGEST_LIST)


async def settle_at_end(ctx: RunContext, *, stopped: bool) -> Denied | None:
    """Decide about the changes that wait when a turn ends. Without a user nothing is kept, and the user finds a patch.

    `stopped` is True if the task of the caller was cancelled. Raise what the approver or a listener raises.
    """
    tries = ctx.tries
    if tries.list is None:
        return None
    if stopped:
        if not tries.asks:
            tries.leave("the session ended first", ctx.emit)
            return None
        if (task := asyncio.current_task()) is not None:
            task.uncancel()  # the user may stop the question as well
    try:
        return await settle(ctx, "the turn was stopped" if stopped else "the turn is over")
    except asyncio.CancelledError:
        tries.leave("the question was stopped", ctx.emit)
    except ProblemError as error:  # such as a record that cannot be written
        tries.lose(f"{error.problem.what}: {error.problem.why}", ctx.emit)
    except Exception:  # from the approver or a listener; the caller reports it
        tries.leave("the question failed", lambda event: None)
        raise
    return None
