"""The end of plan mode: the model hands over its plan, and the user decides whether and in which mode work begins.

THREAT T102: a model must not end plan mode by itself. Only an answer of the user ends it: no text of the plan is an
answer, an unattended session never leaves plan mode, and the next mode is the one that the user chose.
"""

import time

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.approval.approver import MODES_AFTER_PLAN, Leave, Stay
from runner.engine.context.context import LONGEST_PLAN, PLAN_TOOL
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, ModelCall, refused
from runner.events import Changed, MalformedCall, PlanProposed, QuestionAnswered
from runner.messages import TextBlock, ToolResult


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits for its answer."""

    call: ModelCall
    plan: str


def proposal(call: ModelCall, ctx: RunContext) -> Proposal | CallResult | None:
    """Return the plan that `call` hands over, or the result for an unreadable plan.

    Return None for a call of another tool, and if the plan tool is not offered.
    """
    if call.name != PLAN_TOOL or not ctx.plan_tool():
        return None
    arguments = call.of.arguments or {}
    plan = arguments.get("plan")
    if not isinstance(plan, str) or not plan.strip() or len(plan) > LONGEST_PLAN or set(arguments) != {"plan"}:
        why = f"`{PLAN_TOOL}` takes one argument `plan`, a text of 1 to {LONGEST_PLAN:,} characters"
        problem = Problem("the plan cannot be read", why, f"call `{PLAN_TOOL}` again with the plan alone")
        ctx.emit(MalformedCall(call.key, call.name, problem))
        return CallResult(refused(call, problem, ctx))
    return Proposal(call, ctx.redactor.text(plan))


async def propose(asked: Proposal, ctx: RunContext) -> CallResult:
    """Show the plan to the user. An approval changes the mode from the next call on, after it is recorded.

    Raise AuditError if the answer cannot be recorded.
    """
    from runner.audit.records import RecordedPlan  # imported late: most runs have no plan

    ctx.emit(PlanProposed(asked.call.key, asked.plan))
    began = time.monotonic()
    answer = await ctx.approver.leave_plan(asked.plan)
    into = answer.mode.value if isinstance(answer, Leave) and answer.mode in MODES_AFTER_PLAN else None
    feedback = answer.feedback if isinstance(answer, Stay) else None
    seconds = time.monotonic() - began
    recorded = RecordedPlan(
        asked.plan, into, ctx.approver.name, feedback, seconds, ctx.agent, ctx.parent, answer.client
    )
    ctx.audit.planned(ctx.session, recorded)
    match answer:
        case Leave(mode) if mode in MODES_AFTER_PLAN:
            was, ctx.live.mode = ctx.live.mode, mode
            ctx.journal.mode(mode)
            ctx.emit(Changed("mode", was.value, mode.value, "the plan was accepted"))
            notice = f"the user accepted the plan; the mode is now {mode.value}. Begin."
        case Leave(mode):
            raise ValueError(f"plan mode cannot change into {mode}")
        case Stay(feedback):
            by = answer.client.name if answer.client is not None else ""
            ctx.emit(QuestionAnswered(asked.call.key, False, feedback, by=by))
            notice = "the user does not accept the plan yet; you are still in plan mode."
            notice += f" They say: {ctx.redactor.text(feedback)}" if feedback else " Ask them what is missing."
    return CallResult(ToolResult(asked.call.of.id, (TextBlock(notice),)))
