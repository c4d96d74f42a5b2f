"""A person's answer to a question: the yes that mints a Permit, and the no that the model is told about.

Also the answer that was given before: `resolve` finds the grant that covers a question, or the no that forbids it.
"""

from collections.abc import Sequence

from policy.decide import open_reasons
from policy.describe.phrases import named, plain
from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant
from policy.model.assessment import Assessment
from policy.model.frozen import dataclass
from policy.model.matrix import Ruling
from policy.model.tier import Tier
from policy.model.verdict import _MINT, Allow, Ask, Deny, Permit, Problem, Verdict

PERSON = "terminal"  # what somebody who answers at a terminal is called


@dataclass(frozen=True, slots=True)
class GrantResolution:
    """The verdict on an action after remembered answers were applied.

    Attributes:
        context: The context of the evaluation, with every remembered no among the rules.
        by: The grants that the verdict rests on.
    """

    context: EvaluationContext
    assessment: Assessment
    verdict: Verdict
    by: tuple[Grant, ...] = ()


def approve(ask: Ask) -> Allow:
    """The yes of one time: exactly the terms that the question named.

    No yes lifts a floor: an Ask about a secret or denied tier cannot come from `decide`, and raises ValueError here.
    """
    worst = ask.assessment.tiers[0]
    if worst >= Tier.SECRET or ask.cell.tier >= Tier.SECRET:
        raise ValueError(f"no yes allows tier {worst.label}")
    return Allow(Permit(ask.assessment.action, ask.terms, _MINT), ask.cell, ask.reason)


def refuse(ask: Ask, feedback: str | None, by: str = PERSON) -> Deny:
    """The no of whoever answered: `by` names them as the record does. `feedback` is what they said, passed on word for
    word."""
    said = (feedback or "").strip()
    who = answerer(by)
    what = f"{named(ask.assessment.action, ask.terms)} was refused"
    why = f"{who} said no: {said}" if said else f"{who} said no"
    fix = (
        "do what they said instead"
        if said
        else "do it another way, or say what it is for and ask what they would accept"
    )
    return Deny(Problem(what, why, fix), ask.cell, ask.reason)


def answerer(by: str) -> str:
    """Whoever answers, as the model is told of them."""
    return "the person at the terminal" if by == PERSON else f"the {plain(by)} that answers here"


def resolve(
    context: EvaluationContext, assessment: Assessment, verdict: Verdict, grants: Sequence[Grant]
) -> GrantResolution:
    """What `grants`, which hold here and now, make of a verdict: a no forbids, a yes answers a question.

    Deterministic: the same grants in any order say the same, and one without a bound of its uses goes first.
    INVARIANT: a yes gives the terms of the question and no others; it answers no Deny, and none of a user's own rules
    that wants to be asked.
    """
    noes = [grant for grant in grants if grant.ruling is Ruling.DENY]
    if noes and not isinstance(verdict, Deny):
        context = context.with_rules(tuple(grant.rule for grant in noes))
        assessment, verdict = context.evaluate(assessment.action)
        if isinstance(verdict, Deny):
            by = tuple(grant for grant in noes if grant.rule.ref == verdict.reason.rule)
            return GrantResolution(context, assessment, verdict, by)
    if isinstance(verdict, Ask) and not assessment.asked:
        yeses = sorted((grant for grant in grants if grant.ruling is Ruling.ALLOW), key=_order)
        allowed = covering(context, verdict, yeses) if yeses else None
        if allowed is not None:
            return allowed
    return GrantResolution(context, assessment, verdict)


def covering(context: EvaluationContext, ask: Ask, grants: Sequence[Grant]) -> GrantResolution | None:
    """The Allow that `grants` together make of a question, with those that it took; None when something is not covered.

    It is judged again as a whole with them among the person's own rules, whose laws hold for them, too.
    """
    again, found = context.evaluate(ask.assessment.action, tuple(grant.rule for grant in grants))
    if not isinstance(found, Allow) or found.permit.terms != ask.terms:
        return None
    reasons = [
        by for each in open_reasons(again, context.mode, context.matrix) if (by := again.covered.get(each)) is not None
    ]
    named_by = {reason.rule: reason for reason in reasons}
    used = tuple(grant for grant in grants if grant.rule.ref in named_by)
    if not used:
        return None
    reason = named_by[used[0].rule.ref]
    return GrantResolution(
        context, again, Allow(Permit(ask.assessment.action, ask.terms, _MINT), ask.cell, reason), used
    )


def _order(grant: Grant) -> tuple[bool, int, str]:
    return grant.uses is not None, grant.what.ceiling, grant.id
