"""The answer to a question: an approval creates a Permit, a refusal becomes a Deny for the model.

`resolve` applies remembered answers: it finds the grant that covers a question, or the refusal that forbids it.
"""

from collections.abc import Sequence

from policy.decide import open_reasons, starts_without_network
from policy.describe.phrases import named, plain
from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant
from policy.model.assessment import Assessment
from policy.model.frozen import dataclass, replace
from policy.model.tier import Ruling, Tier
from policy.model.verdict import _MINT, UNNAMED, Allow, Ask, Deny, Permit, Problem, Terms, Verdict

PERSON = "terminal"  # the author of an answer at a terminal


@dataclass(frozen=True, slots=True)
class GrantResolution:
    """The verdict on an action after remembered answers were applied.

    Attributes:
        context: The context of the evaluation, with the refusals that were applied among the rules.
        by: The grants that determined the verdict.
        question: The question that the grants answered, or None.
    """

    context: EvaluationContext
    assessment: Assessment
    verdict: Verdict
    by: tuple[Grant, ...] = ()
    question: Ask | None = None


def approve(ask: Ask) -> Allow:
    """Return the Allow for a single approval, with exactly the terms that the question named.

    Raises ValueError for a secret or denied tier, which no approval can allow; `decide` never returns such an Ask.
    """
    worst = ask.assessment.tiers[0]
    if worst >= Tier.SECRET or ask.cell.tier >= Tier.SECRET:
        raise ValueError(f"no approval allows tier {worst.label}")
    permit = Permit(ask.assessment.action, ask.terms, _MINT, ask.assessment.sourced)
    return Allow(permit, ask.cell, ask.reason)


def approve_part(assessment: Assessment, verdict: Allow | Ask, terms: Terms) -> Allow:
    """Return the Allow with `terms`, which have a part of the paths and hosts of `verdict` and are otherwise the same.

    Raises ValueError for other terms, and for a tier that no approval allows.
    """
    full = verdict.permit.terms if isinstance(verdict, Allow) else verdict.terms
    parts = ((terms.read, full.read), (terms.write, full.write), (terms.hosts, (*full.hosts, UNNAMED)))
    if replace(terms, read=full.read, write=full.write, hosts=full.hosts) != full:
        raise ValueError("these are other terms")
    if not all(set(part) <= set(whole) for part, whole in parts) or assessment.tiers[0] >= Tier.SECRET:
        raise ValueError("these terms have more than a part of the rights")
    return Allow(Permit(assessment.action, terms, _MINT, assessment.sourced), verdict.cell, verdict.reason)


def refuse(ask: Ask, feedback: str | None, by: str = PERSON) -> Deny:
    """Return the Deny for a refusal. `by` is the author as the record names it; `feedback` is the author's text, passed
    on unchanged.
    """
    what = f"{named(ask.assessment.action, ask.terms)} was refused"
    why, fix = f"{answerer(by)} refused", "do it another way, or explain the purpose and ask what would be accepted"
    if reply := (feedback or "").strip():
        why, fix = f"{why}: {reply}", "follow that answer instead"
    return Deny(Problem(what, why, fix), ask.cell, ask.reason)


def answerer(by: str) -> str:
    """Return the author of an answer as text for the model."""
    return "the user at the terminal" if by == PERSON else f"the {plain(by)} that answers questions here"


def resolve(
    context: EvaluationContext, assessment: Assessment, verdict: Verdict, grants: Sequence[Grant]
) -> GrantResolution:
    """Return the verdict after the remembered answers `grants`, which all apply here and now: a refusal forbids, an
    approval answers a question.

    The order of the grants does not change the ruling. Approvals without a limit of uses are applied first.
    INVARIANT: an approval grants the terms of the question and no others, except that one about a family of reading
    commands names the host that the question does not know. It never answers a Deny, nor a question that
    a user's own rule requires.
    """
    noes = [grant for grant in grants if grant.ruling is Ruling.DENY]
    if noes and not isinstance(verdict, Deny):
        context = context.with_rules(tuple(grant.rule for grant in noes))
        assessment, verdict = context.evaluate(assessment.action)
        if isinstance(verdict, Deny):
            by = tuple(grant for grant in noes if grant.rule.ref == verdict.reason.rule)
            return GrantResolution(context, assessment, verdict, by)
    yeses = [grant for grant in grants if grant.ruling is Ruling.ALLOW]
    question = verdict
    if yeses and starts_without_network(verdict):  # approved hosts are open from the start
        question = context.decide(assessment, offline=False)
    if isinstance(question, Ask) and not assessment.asked:
        yeses.sort(key=lambda grant: (grant.uses is not None, grant.what.ceiling, grant.id))
        allowed = covering(context, question, yeses) if yeses else None
        if allowed is not None:
            return allowed
    return GrantResolution(context, assessment, verdict)


def covering(context: EvaluationContext, ask: Ask, grants: Sequence[Grant]) -> GrantResolution | None:
    """Return the Allow that `grants` together give for a question, with the grants that were needed, or None if a
    reason is not covered.

    The whole action is evaluated again with the grants among the user's own rules, so that the same restrictions apply.
    If the host of the question is unknown, the grants about families of reading commands name it.
    """
    again, verdict = context.evaluate(ask.assessment.action, tuple(grant.rule for grant in grants))
    if not isinstance(verdict, Allow):
        return None
    terms = verdict.permit.terms
    if terms != ask.terms and not _names_the_host(terms, ask.terms, grants):
        return None
    reasons = open_reasons(again, context.mode, context.matrix)
    named_by = {by.rule: by for reason in reasons if (by := again.covered.get(reason)) is not None}
    used = tuple(grant for grant in grants if grant.rule.ref in named_by)
    if not used:
        return None
    permit = Permit(ask.assessment.action, terms, _MINT, again.sourced)
    allow = Allow(permit, ask.cell, named_by[used[0].rule.ref])
    return GrantResolution(context, again, allow, used, ask)


def _names_the_host(terms: Terms, asked: Terms, grants: Sequence[Grant]) -> bool:
    """Return True if `terms` are those of the question with the hosts of grants about families in place of a host that
    is unknown. INVARIANT: nothing else differs, so that such a host adds no credential and no path.
    """
    named = {host for grant in grants if grant.what.shape.family for host in grant.what.host}
    same = replace(terms, hosts=asked.hosts, env=asked.env) == asked
    return asked.hosts == (UNNAMED,) and same and set(terms.hosts) <= named
