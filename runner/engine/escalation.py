"""Escalation: ask the user for one additional right after the sandbox blocked a command, then run the command again.

THREAT: the program itself may report what it could not reach. The program may lie and name what it wants. Therefore
floors and denials hold, the question says where the report comes from, a call is asked about at most a few times and
each time for another right, a refusal holds for the conversation, and no approval is remembered.
"""

from collections.abc import Sequence
from dataclasses import replace

from policy.evaluation import EvaluationContext
from policy.grants.extra_right import ExtraRight, added, ask_for, extra_of
from policy.model.action import Action, RunArgv, RunScript
from policy.model.frozen import dataclass
from policy.model.verdict import Ask, Terms, Verdict
from runner.approval.approver import Question
from runner.approval.card import card
from runner.approval.remembered import NOTHING
from runner.engine.authorize import Authorization, Evaluation, authorize
from runner.engine.judge import CallRequester, evaluate_action
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Planned
from runner.text.sanitize import one_line
from sandbox.backend import Outcome, Violation

_MOST = 4  # rights that one call may be asked for: a registry, and the host of its files
_LONGEST = 300  # characters of the report about what was blocked, in the question


class _NotOffered(Exception):
    """The right may no longer be asked for, because the machine or the settings changed."""


@dataclass(frozen=True, slots=True)
class _EscalationRequester(CallRequester):
    """The requester of one more run with one additional right."""

    had: Terms
    extra: ExtraRight
    granted_rights: Sequence[ExtraRight]
    violation: Violation

    def evaluate(self, action: Action) -> Evaluation:
        """Return the question about the right as of now. Raise _NotOffered if there is none."""
        evaluation = evaluate_action(action, self.ctx)
        asked = _with_right(evaluation, self.had, self.extra, self.granted_rights)
        if asked is None:
            raise _NotOffered
        return asked

    def decided(self, evaluation: Evaluation, verdict: Verdict) -> None:
        """Report nothing: the verdict on the action was reported before the first run."""

    def question(self, context: EvaluationContext, ask: Ask, again: str) -> Question:
        """Return the question about the right, which can neither be remembered nor answered with another script."""
        question_card = replace(card(ask, NOTHING, around=context.facts), editable=False)
        return Question(self.call.key, ask, NOTHING, question_card, None, again or _reported(self.violation))


async def request_escalation(
    planned: Planned, had: Terms, outcome: Outcome, ctx: RunContext, granted_rights: Sequence[ExtraRight] = ()
) -> tuple[ExtraRight, Authorization] | None:
    """Ask the user for the right that `outcome` lacked, and return the right and the decision.

    An Allow runs the action once more.
    `had` are the terms of the run, and `granted_rights` were added for this call already. Return None if no right was
    missing, or if no user may grant the right. Raise asyncio.CancelledError if the user stops the turn.
    """
    if len(granted_rights) >= _MOST:
        return None
    if ctx.unattended or outcome.status == 0 or outcome.ended_by is not None or not outcome.violations:
        return None
    if not isinstance(planned.action, RunScript | RunArgv):
        return None
    now = evaluate_action(planned.action, ctx)
    for violation in outcome.violations:
        extra = extra_of(violation.right)
        asked = _with_right(now, had, extra, granted_rights) if extra else None
        if extra is None or asked is None or _right(asked, had).words in ctx.refused_rights:
            continue
        requester = _EscalationRequester(ctx, planned.call, had, extra, granted_rights, violation)
        try:
            decision = await authorize(asked, requester)
        except _NotOffered:
            return None
        right = _right(decision.evaluation, had)
        if decision.answer is not None and not decision.answer.yes:
            ctx.refused_rights.add(right.words)
        return right, decision
    return None


def _with_right(
    evaluation: Evaluation, had: Terms, extra: ExtraRight, granted_rights: Sequence[ExtraRight]
) -> Evaluation | None:
    """Return the evaluation whose verdict is the question about `extra`, or None if no user may grant that right."""
    recalled = evaluation.recalled
    ask = ask_for(recalled.context, evaluation.action, had, extra, granted_rights)
    if ask is None:
        return None
    lookup = replace(recalled, assessment=ask.assessment, verdict=ask, by=(), question=ask)
    return Evaluation(ask.assessment, ask, lookup, evaluation.noted)


def _right(evaluation: Evaluation, had: Terms) -> ExtraRight:
    """Return the right that an approval of the question of `evaluation` adds to `had`."""
    assert isinstance(evaluation.verdict, Ask)  # `_with_right` makes no other
    return added(evaluation.verdict, had)


def _reported(violation: Violation) -> str:
    """Return the report about what was blocked, with its source."""
    what = one_line(violation.what, _LONGEST)
    whose = "the program says so itself" if violation.inferred else "the sandbox says so"
    return f"it ran, and was stopped: {what} ({whose})"
