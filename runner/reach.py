"""What no sandbox of this version can do, said before a question is asked or a helper is started."""

from policy.verdict import Ask, Deny, Problem, Verdict


def within_reach(verdict: Verdict) -> Verdict:
    """A verdict whose terms name hosts becomes a Deny: without an egress proxy they could only be granted too widely.

    A yes to such a question would end in a refusal anyway; a person must not be asked for it.
    """
    if isinstance(verdict, Deny):
        return verdict
    terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
    if not terms.hosts:
        return verdict
    hosts = ", ".join(f"`{host}`" for host in terms.hosts)
    problem = Problem(
        "the network is closed to commands",
        f"this would talk to {hosts}; the sandbox of this version opens no host, and never the whole network for one",
        "run it yourself outside the agent, and let the agent work with what it left in the workspace",
    )
    return Deny(problem, verdict.cell, verdict.reason)
