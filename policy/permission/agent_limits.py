"""The limits of sub-agents, applied to a verdict: the stricter mode, and no rights outside of the limit."""

from collections.abc import Callable

from policy.describe.phrases import plain
from policy.model.agent_limit import AgentLimit
from policy.model.assessment import Check, Reason
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow, Ask, Cell, Deny, Problem, Rights, Terms, Verdict
from policy.permission.hosts import contains

_STRICTNESS = {Deny: 2, Ask: 1, Allow: 0}


def within_limit(verdict: Verdict, limit: AgentLimit, decided: Callable[[Mode], Verdict]) -> Verdict:
    """Return `verdict` as the limit of one agent leaves it: the stricter of `verdict` and of the verdict in the mode of
    the limit, and a Deny for terms with more rights than the limit has.

    `decided` returns the verdict on the same action in a mode. INVARIANT: the result is never looser than `verdict`,
    and its terms, if it has any, are those of a verdict in a mode of an agent and lie inside the limit.
    """
    if limit.mode is not None and not isinstance(verdict, Deny):
        other = decided(limit.mode)
        if _STRICTNESS[type(other)] > _STRICTNESS[type(verdict)]:
            verdict = other
    if isinstance(verdict, Deny):
        return verdict
    terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
    if not (excess := excess_of(terms, limit)):
        return verdict
    agent = plain(limit.agent)
    what = f"the agent `{agent}` may not do this"
    fix = "leave this to the agent that started it, or do it without that right"
    cell = Cell(verdict.cell.tier, verdict.cell.mode, Ruling.DENY)
    return Deny(Problem(what, excess, fix), cell, Reason(Tier.DENIED, f"{what}: {excess}", Check.AGENT_LIMIT))


def excess_of(terms: Terms, limit: AgentLimit) -> str:
    """Return what `terms` grant beyond `limit`, as text; empty if they lie inside."""
    if limit.read_only and (terms.rights is not Rights.READ_ONLY or terms.write):
        return "it would get the right to change files, and this agent only reads"
    if limit.hosts is not None:
        for host in terms.open_hosts:
            if not contains(limit.hosts, host):
                return f"it would connect to {plain(host)}, which is not among the hosts of this agent"
    return ""
