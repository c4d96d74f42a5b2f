"""What no sandbox of this version can do, said before a question is asked or a helper is started."""

from dataclasses import replace

from policy.assessment import Assessment, EffectKind
from policy.matrix import Ruling
from policy.verdict import Ask, Deny, Problem, Verdict

_YOURSELF = "run it yourself outside the agent, and let the agent work with what it left in the workspace"


def within_reach(verdict: Verdict, assessment: Assessment) -> Verdict:
    """A verdict whose terms name hosts becomes a Deny: without an egress proxy they could only be granted too widely.

    A yes to such a question would end in a refusal anyway: nobody must be asked it, or be told to come and say yes.
    """
    if isinstance(verdict, Deny):
        connects = any(effect.kind is EffectKind.CONNECTS for effect in assessment.effects)
        if not connects or verdict.cell.ruling is not Ruling.ASK:
            return verdict
        return replace(verdict, problem=replace(verdict.problem, fix=_YOURSELF))
    terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
    if not terms.hosts:
        return verdict
    hosts = ", ".join(f"`{host}`" for host in terms.hosts)
    problem = Problem(
        "the network is closed to commands",
        f"this would talk to {hosts}; the sandbox of this version opens no host, and never the whole network for one",
        _YOURSELF,
    )
    return Deny(problem, verdict.cell, verdict.reason)
