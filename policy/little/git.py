"""git: its subcommands are in the rule file; whose settings it obeys is decided here."""

from policy.call import Call, descend, judge
from policy.little.shell import shell_of


def git(call: Call) -> None:
    """Judge a git command, and the repository it would work in.

    THREAT: a repository's own settings name programs (file-system monitors, filters, pagers) that git starts by
    itself. The workspace's repository is the one that the executor runs with those switched off.
    """
    sub = descend(call)
    if sub is not call:
        _whose(sub)
    judge(sub)
    call.hosts, call.rule, call.label, call.flags = sub.hosts, sub.rule, sub.label, sub.flags


def _whose(call: Call) -> None:
    if call.state.cwds is None:
        call.unknown("`git` in a folder known only when it runs")
        return
    for cwd in call.state.cwds:
        other = shell_of(call).foreign_repository(cwd)
        if other is not None:
            shown = call.findings.atlas.shown(other)
            text = f"`git` obeys the settings of another repository, {shown}, which may run programs"
            call.findings.runs("git", text, call.rule.ref, call.span)
