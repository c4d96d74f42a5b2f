"""Denials of paths as rights: the paths that the sandbox keeps read-only or hides, so that the denials apply to any
code.
"""

from collections.abc import Iterable

from policy.model.facts import Facts
from policy.model.profile import PermissionRule
from policy.model.tier import Ruling
from policy.permission.paths import parts_of, touches

ANYWHERE = "**"


def path_denials(rules: Iterable[PermissionRule], facts: Facts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the patterns to lock and those to hide, in the form of `Terms`. A hidden pattern with a leading `/` is a
    path in the workspace.
    """
    locked: dict[str, None] = {}
    hidden: dict[str, None] = {}
    for rule in rules:
        if _denies_any_command(rule) and not rule.expired(facts.today):
            locked |= dict.fromkeys(filter(None, (locked_by(path, facts) for path in rule.write)))
            hidden |= dict.fromkeys(filter(None, (hidden_by(path, facts) for path in rule.read)))
    return tuple(locked), tuple(hidden)


def locked_by(pattern: str, facts: Facts) -> str | None:
    """Return the pattern of the workspace that keeps the denied paths read-only, or None if there is none."""
    parts = _anchored(pattern, facts)
    return "/".join(parts) if parts else None


def hidden_by(pattern: str, facts: Facts) -> str | None:
    """Return the name, or with a leading `/` the path in the workspace, that hides the denied paths, or None."""
    parts = pattern.split("/")
    if parts[0] == ANYWHERE:
        parts = parts[1:-1] if parts[-1] == ANYWHERE else parts[1:]
        return parts[0] if len(parts) == 1 and _usable(parts) else None
    anchored = _anchored(pattern, facts)
    return "/" + "/".join(anchored) if anchored else None


def holds_writing(rule: PermissionRule, pattern: str, facts: Facts) -> bool:
    """Return True if no code can change the paths that `pattern` denies: they are locked, or outside, where only named
    paths can be changed.
    """
    if rule.verdict is not Ruling.DENY:
        return False
    return (_denies_any_command(rule) and locked_by(pattern, facts) is not None) or not _reaches(
        pattern, (facts.workspace,), facts
    )


def holds_reading(rule: PermissionRule, pattern: str, facts: Facts) -> bool:
    """Return True if no code can read the paths that `pattern` denies: they are hidden, or lie where only named paths
    are shown.
    """
    if rule.verdict is not Ruling.DENY:
        return False
    shown = (facts.workspace, *facts.system)
    return (_denies_any_command(rule) and hidden_by(pattern, facts) is not None) or not _reaches(pattern, shown, facts)


def _denies_any_command(rule: PermissionRule) -> bool:
    """Return True if the rule denies paths for any command, so that rights can express it."""
    return rule.verdict is Ruling.DENY and not (rule.run or rule.tool or rule.tier or rule.source)


def _reaches(pattern: str, roots: Iterable[str], facts: Facts) -> bool:
    return any(touches(pattern, root, facts, below=True) for root in roots)


def _anchored(pattern: str, facts: Facts) -> tuple[str, ...]:
    """Return the names below the workspace, or nothing if the sandbox cannot express the pattern."""
    parts = parts_of(pattern, facts.workspace, facts.home)
    root = parts_of(facts.workspace, "", "")
    if parts[: len(root)] != root:
        return ()
    below = parts[len(root) :]
    below = below[:-1] if below[-1:] == (ANYWHERE,) else below
    return below if _usable(below) else ()


def _usable(parts: Iterable[str]) -> bool:
    """Return True if the sandbox can use the pattern: it reads `[` as a set of characters, and must not lock
    everything.
    """
    parts = list(parts)
    return bool(parts) and all("**" not in part and "[" not in part for part in parts) and bool(parts[0].strip("*?"))
