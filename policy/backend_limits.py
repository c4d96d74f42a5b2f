"""Limits of the sandbox backends, applied to a verdict before a question is asked or a helper is started."""

from dataclasses import replace

from policy.assessment import Assessment, EffectKind
from policy.matrix import Ruling
from policy.verdict import Ask, Deny, Problem, Verdict

_YOURSELF = "run it yourself outside the agent, and let the agent work with what it left in the workspace"
_OPEN = frozenset(["seatbelt"])  # its proxy listens where every program of the machine can ask it
_CLOSED = frozenset(["T3"])  # without a network of its own there is nothing to open one host of


def within_backend(verdict: Verdict, assessment: Assessment, backend: str | None = None) -> Verdict:
    """Return `verdict`, or a Deny if `backend` (None: not chosen yet) cannot provide what the verdict grants.

    Examples are terms that name hosts on a backend without a proxy, and packets that no proxy forwards. Approval of
    such an action would end in a refusal by the sandbox, so no user is asked, and no refusal suggests asking a user.
    """
    raw = any(effect.kind is EffectKind.CONNECTS and not effect.exact for effect in assessment.effects)
    if isinstance(verdict, Deny):
        closed = backend in _CLOSED and any(effect.kind is EffectKind.CONNECTS for effect in assessment.effects)
        if not (raw or closed) or verdict.cell.ruling is not Ruling.ASK:
            return verdict
        return replace(verdict, problem=replace(verdict.problem, fix=_YOURSELF))
    terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
    if raw:
        what, why = "that cannot be reached from a sandbox", "only connections to named hosts pass out, through a proxy"
    elif terms.credentials and backend in _OPEN:
        named = ", ".join(f"`{name}`" for name in terms.credentials)
        what, why = f"sandbox {backend} adds no credential", f"other programs of this machine could use {named} as well"
        fix = f"run it under `--backend container`, take the credential out of your configuration, or {_YOURSELF}"
        return Deny(Problem(what, why, fix), verdict.cell, verdict.reason)
    elif terms.open_hosts and backend in _CLOSED:
        hosts = ", ".join(f"`{host}`" for host in terms.hosts)
        what, why = f"sandbox {backend} opens no host", f"this would talk to {hosts}, and it has no network of its own"
        fix = f"run it under T1 or T2 (`agent doctor` says what they need), or {_YOURSELF}"
        return Deny(Problem(what, why, fix), verdict.cell, verdict.reason)
    else:
        return verdict
    return Deny(Problem(what, why, _YOURSELF), verdict.cell, verdict.reason)
