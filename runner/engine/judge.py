"""Evaluation of the calls of a model: plan the action, evaluate it, and report the call. Nothing is asked or run."""

from policy.evaluation import EvaluationContext
from policy.model.action import Action
from policy.model.verdict import Problem
from runner.approval.remembered import recalled
from runner.audit import records
from runner.audit.fact_recorder import FactRecorder
from runner.engine.authorize import Evaluation
from runner.engine.plan_mode import Proposal, proposal
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Judgement, ModelCall, Planned, plan, raw_arguments
from runner.engine.tool_results import CallResult, refused
from runner.events import MalformedCall, ToolProposed


def judge_call(call: ModelCall, ctx: RunContext) -> Judgement | Proposal | CallResult:
    """Evaluate `call` and announce it. Return the result at once if the call cannot become an action."""
    found = proposal(call, ctx)
    return announce(call, evaluate_call(call, ctx), ctx) if found is None else found


def evaluate_call(call: ModelCall, ctx: RunContext) -> Judgement | Problem:
    """Return the verdict on `call` as of now. No event is emitted and nothing is recorded."""
    planned = plan(call, ctx)
    return planned if isinstance(planned, Problem) else judge_action(planned, ctx)


def announce(call: ModelCall, evaluated: Judgement | Problem, ctx: RunContext) -> Judgement | CallResult:
    """Emit the event of `call`. Record a call that cannot become an action, and return the result of that call."""
    if isinstance(evaluated, Judgement):
        ctx.emit(ToolProposed(call.key, call.name, evaluated.planned.action))
        return evaluated
    ctx.emit(ToolProposed(call.key, call.name, None))
    ctx.audit.refused(ctx.session, records.Refusal(call.name, raw_arguments(call), evaluated))
    ctx.emit(MalformedCall(call.key, call.name, evaluated))
    return CallResult(refused(call, evaluated, ctx))


def judge_action(planned: Planned, ctx: RunContext) -> Judgement:
    """Return the verdict on a planned call as of now."""
    return Judgement(planned, evaluate_action(planned.action, ctx), ctx.live.named)


def evaluate_action(action: Action, ctx: RunContext) -> Evaluation:
    """Return the verdict on `action` as of now, with remembered answers applied."""
    noted = FactRecorder(
        ctx.look(), ctx.profile
    )  # the one look at the machine, which notes what the verdict depends on
    context = EvaluationContext(
        noted.facts,
        ctx.rules,
        ctx.profile,
        ctx.live.mode,
        ctx.environment,
        unattended=ctx.unattended,
        backend=ctx.sandbox.name,
    )
    assessment, verdict = context.evaluate(action)
    found = recalled(context, assessment, verdict, ctx.grants)
    noted.parts()  # read now: a question may stand for minutes
    return Evaluation(found.assessment, found.verdict, found, noted)
