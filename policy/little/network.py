"""Package managers: they fetch code and run it."""

from policy.call import Call, judge


def network_code(call: Call) -> None:
    """A command that talks to a network, and runs what came from there (install scripts, build back ends)."""
    judge(call)
    if call.quiet:
        return
    call.findings.runs(call.label, f"`{call.label}` runs code that it fetched", call.rule.ref, call.span)
