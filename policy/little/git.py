"""git: its subcommands are in the rule file; whose settings it obeys, and what it prints, is decided here."""

import re
from collections.abc import Callable
from dataclasses import replace

from policy.call import Call, descend, judge
from policy.little.shell import shell_of
from policy.tier import Tier

# One revision that prints one id or name: no range, no set of parents, no path, nothing with a blank.
_ONE = re.compile(r"(?!.*(?:\.\.|\^[@!-]|//))[A-Za-z0-9_@][A-Za-z0-9_./@{}~^-]*")
# fmt: off
_MODIFIERS = frozenset(("--verify", "--quiet", "-q", "--abbrev-ref", "--short", "--symbolic", "--symbolic-full-name"))
_ONE_LINE = frozenset((
    "--show-toplevel", "--git-dir", "--absolute-git-dir", "--git-common-dir", "--is-inside-work-tree", "--show-cdup",
    "--is-inside-git-dir", "--is-bare-repository", "--is-shallow-repository",
))
# What selects commits, beside what changes how one is printed (which could be any text of a commit).
_SELECTING = frozenset((
    "-#", "-n", "--max-count", "--count", "--all", "--branches", "--tags", "--remotes", "--merges", "--no-merges",
    "--first-parent", "--reverse", "--since", "--after", "--until", "--before", "--author", "--committer", "--grep",
    "--skip", "--abbrev-commit", "--abbrev", "--topo-order", "--date-order", "--no-walk",
    "--max-parents", "--min-parents",
))
_DESCRIBING = frozenset((
    "--all", "--tags", "--contains", "--abbrev", "--exact-match", "--long", "--match", "--exclude", "--always",
    "--first-parent",
))
# fmt: on
_SCOPES = frozenset(["--local", "--worktree", "--global", "--system", "--includes", "--no-includes", "-z", "--null"])
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?:\.[^=\n]+)?\.[A-Za-z][A-Za-z0-9-]*")


def git(call: Call) -> None:
    """Judge a git command, and the repository it would work in.

    THREAT: a repository's own settings name programs (file-system monitors, filters, pagers) that git starts by
    itself. The workspace's repository is the one that the executor runs with those switched off.
    """
    sub = descend(call)
    if sub is not call:
        _whose(sub)
    if sub.label == "git config" and _shows_one(sub):
        sub.because(Tier.READ, "`git config` shows one setting")
    else:
        judge(sub)
    rule = sub.rule
    if rule.tame and not _prints_one(sub):
        rule = replace(rule, tame=False)
    call.hosts, call.rule, call.label, call.flags, call.quiet = sub.hosts, rule, sub.label, sub.flags, sub.quiet


def _whose(call: Call) -> None:
    if call.state.cwds is None:
        call.unknown("`git` in a folder known only when it runs")
        return
    if call.walk.facts.beyond:
        text = f"`git` obeys the settings of this repository, which {call.walk.facts.beyond}"
        call.findings.runs("git", text, call.rule.ref, call.span)
    for cwd in call.state.cwds:
        other = shell_of(call).foreign_repository(cwd)
        if other is not None:
            shown = call.findings.atlas.shown(other)
            text = f"`git` obeys the settings of another repository, {shown}, which may run programs"
            call.findings.runs("git", text, call.rule.ref, call.span)


def _shows_one(call: Call) -> bool:
    """`git config user.name`: a key alone is shown, and only a value beside it would change it."""
    texts = [word.text for word in call.words]
    keys = [text for text in texts if text not in _SCOPES]
    return len(keys) == 1 and keys[0] is not None and bool(_KEY.fullmatch(keys[0]))


def _prints_one(call: Call) -> bool:
    """Whether it prints one word, which is an id, a number or a name, for certain.

    THREAT: the subject of a commit, or the name of a file, is whatever somebody else wrote; in `git diff $(git ..)` it
    would become a flag.
    """
    operands = [word.text for word in call.words if word.text is None or word.text[:1] != "-"]
    name = call.label.rpartition(" ")[2]
    return _CERTAIN[name](call, operands) if name in _CERTAIN else False


def _rev_parse(call: Call, operands: list[str | None]) -> bool:
    given = set(call.flags)
    if operands:
        return given <= _MODIFIERS and len(call.words) == len(given) + 1 and _one(operands)
    return len(given) == 1 and given <= _ONE_LINE


def _rev_list(call: Call, operands: list[str | None]) -> bool:
    given = set(call.flags)
    one = "--count" in given or any(word.text in ("-1", "-n1", "--max-count=1") for word in call.words)
    pairs = [first.text for first, second in zip(call.words, call.words[1:], strict=False) if second.text == "1"]
    return given <= _SELECTING and (one or "-n" in pairs or "--max-count" in pairs)


def _merge_base(call: Call, operands: list[str | None]) -> bool:
    return not set(call.flags) & {"-a", "--all", "--independent", "--is-ancestor"}


def _describe(call: Call, operands: list[str | None]) -> bool:
    return set(call.flags) <= _DESCRIBING and (not operands or _one(operands))


def _one(operands: list[str | None]) -> bool:
    return len(operands) == 1 and operands[0] is not None and bool(_ONE.fullmatch(operands[0]))


_CERTAIN: dict[str, Callable[[Call, list[str | None]], bool]] = {
    "rev-parse": _rev_parse,
    "rev-list": _rev_list,
    "merge-base": _merge_base,
    "describe": _describe,
}
