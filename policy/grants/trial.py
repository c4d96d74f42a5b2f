"""A run that shows which rights a command needs: a permit with no right outside of the workspace but chosen ones."""

from collections.abc import Iterator

from policy.evaluation import EvaluationContext
from policy.grants.extra_right import ExtraRight, typed_right
from policy.grants.resolve import approve_part
from policy.model.action import Action
from policy.model.assessment import Assessment, EffectKind, Scope
from policy.model.frozen import replace
from policy.model.tier import MATRIX, Ruling, Tier
from policy.model.verdict import UNNAMED, Allow, Ask, Deny, Verdict
from policy.permission.allow import NEVER
from policy.permission.flag_rights import FlagRights

_CHANGES = (EffectKind.WRITES, EffectKind.DELETES)


def can_try(assessment: Assessment, verdict: Verdict) -> bool:
    """Return True if a user may run the action without any right outside of the workspace, to learn what it needs.

    Nothing dangerous, secret or denied is tried, and nothing that a rule of the user asks about.
    """
    return not isinstance(verdict, Deny) and not assessment.asked and NEVER.isdisjoint(assessment.tiers)


def trial(assessment: Assessment, verdict: Allow | Ask, chosen: FlagRights, bundle: str = "") -> Allow:
    """Return the Allow for a run with the rights `chosen` and no other host or path outside of the workspace.

    INVARIANT: every right is one of `verdict`, which must be the verdict with `chosen` as typed rights. Without a host
    the proxy is open to none, and reports which ones were requested. Raise ValueError for an action that must not be
    tried.
    """
    if not can_try(assessment, verdict):
        raise ValueError("this action is not tried")
    full = verdict.permit.terms if isinstance(verdict, Allow) else verdict.terms
    terms = replace(
        full,
        read=tuple(path for path in full.read if path in (*chosen.read, *chosen.write, bundle)),
        write=tuple(path for path in full.write if path in chosen.write),
        hosts=tuple(host for host in full.hosts if host in chosen.hosts) or (UNNAMED,),
    )
    return approve_part(assessment, verdict, terms)


def expected_rights(assessment: Assessment) -> Iterator[ExtraRight]:
    """Yield the rights outside of the workspace that the facts about commands name for an action."""
    for effect in assessment.effects:
        if not effect.exact or not effect.target:
            continue
        if effect.kind is EffectKind.CONNECTS:
            yield ExtraRight("--host", effect.target)
        elif effect.scope is Scope.OUTSIDE and effect.kind in (EffectKind.READS, *_CHANGES):
            yield ExtraRight("--write" if effect.kind in _CHANGES else "--read", effect.target)


def learned(context: EvaluationContext, action: Action, right: ExtraRight, chosen: FlagRights) -> FlagRights | None:
    """Return `chosen` with `right` added, or None if no rule of the user can add this right.

    Secrets, paths that a rule denies, this machine, private networks and whole folders above the workspace are never
    learned.
    """
    tier = {"--read": Tier.READ_OUTSIDE, "--write": Tier.WRITE_OUTSIDE, "--host": Tier.NETWORK}[right.flag]
    typed = typed_right(right, context.facts)
    if typed is None or MATRIX[tier][context.mode] is Ruling.DENY:
        return None
    whole = replace(
        chosen,
        read=tuple(dict.fromkeys((*chosen.read, *typed.read))),
        write=tuple(dict.fromkeys((*chosen.write, *typed.write))),
        hosts=tuple(dict.fromkeys((*chosen.hosts, *typed.hosts))),
    )
    assessment, verdict = replace(context, typed=whole).evaluate(action)
    if isinstance(verdict, Deny) or not can_try(assessment, verdict):
        return None
    terms = trial(assessment, verdict, whole).permit.terms
    granted = (set(terms.read) | set(terms.write), set(terms.write), set(terms.hosts))
    wanted = (typed.read, typed.write, typed.hosts)
    return whole if all(set(want) <= have for want, have in zip(wanted, granted, strict=True)) else None
