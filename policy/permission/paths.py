"""Path patterns of the users' rules: the paths that a pattern matches, and denials of paths as rights.

The sandbox keeps denied paths read-only or hides them, so that the denials apply to any code.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from policy.model.facts import Facts, Kind
from policy.model.glob import glob
from policy.model.profile import PermissionRule
from policy.model.tier import Ruling

_DEEP = "\x01"  # a name that matches only wildcards


@lru_cache(maxsize=512)
def parts_of(pattern: str, workspace: str, home: str) -> tuple[str, ...]:
    """Return the names of an absolute pattern; relative patterns start at the workspace, `~/` at the home folder."""
    if pattern.startswith("~/"):
        pattern = f"{home}/{pattern[2:]}"
    elif not pattern.startswith("/"):
        pattern = f"{workspace}/{pattern}"
    return tuple(part for part in pattern.split("/") if part)


def covers(pattern: str, path: str, facts: Facts) -> bool:
    """Return True if the pattern certainly matches `path`, absolute and real, with everything in it if it
    is a folder.
    """
    parts = parts_of(pattern, facts.workspace, facts.home)
    if not _fits(_names(path), parts):
        return False
    if facts.look(path).kind in (Kind.FILE, Kind.MISSING):
        return True
    return _fits(_names(f"{path}/{_DEEP}"), parts) and _fits(_names(f"{path}/{_DEEP}/{_DEEP}"), parts)


def meant(path: str, target: str, facts: Facts) -> bool:
    """Return True if a grant's `path` matches `target`: exactly that file; with `/**` everything in that folder, and
    with a final `/` the folder itself, too.
    """
    if path.endswith("/"):
        return target == absolute(path, facts) or covers(f"{path}**", target, facts)
    return covers(path, target, facts)


def absolute(path: str, facts: Facts) -> str:
    """Return a grant's `path` as an absolute path, without the ending of a folder."""
    return "/" + "/".join(parts_of(path.removesuffix("**"), facts.workspace, facts.home))


def touches(pattern: str, path: str, facts: Facts, *, below: bool) -> bool:
    """Return True if the pattern may match `path` or a folder above it; with `below`, also if it may match a path
    inside `path`.

    Case is ignored, and a pattern also matches the target if its literal beginning is a link: the function serves to
    forbid.
    """
    names = _names(path.casefold())
    for parts in _readings(pattern, facts):
        folded = tuple(part.casefold() for part in parts)
        if not folded:
            return True
        if any(_fits(names[:count], folded) for count in range(1, len(names) + 1)):
            return True
        if folded[-1] == "**" and _fits(names, folded[:-1]):
            return True  # the folder itself
        if below and _leads(names, folded):
            return True
    return False


def _readings(pattern: str, facts: Facts) -> list[tuple[str, ...]]:
    parts = parts_of(pattern, facts.workspace, facts.home)
    certain = next((index for index, part in enumerate(parts) if "*" in part or "?" in part), len(parts))
    real = facts.look("/" + "/".join(parts[:certain])).real
    other = (*_names(real), *parts[certain:])
    return [parts] if other == parts else [parts, other]


def _names(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


@lru_cache(maxsize=4096)
def _fits(names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Return True if the pattern matches the names; `**` is any number of names, and as the last part, at least one."""
    if not parts:
        return not names
    if parts[0] == "**":
        if len(parts) == 1:
            return bool(names)
        return any(_fits(names[skipped:], parts[1:]) for skipped in range(len(names) + 1))
    return bool(names) and glob(names[0], parts[0]) and _fits(names[1:], parts[1:])


@lru_cache(maxsize=4096)
def _leads(names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Return True if a path below `names` may match."""
    if not names or not parts:
        return bool(parts)
    if parts[0] == "**":
        return _leads(names[1:], parts) or _leads(names, parts[1:])
    return glob(names[0], parts[0]) and _leads(names[1:], parts[1:])


ANYWHERE = "**"


def path_denials(rules: Iterable[PermissionRule], facts: Facts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the patterns to lock and those to hide, in the form of `Terms`. A hidden pattern with a leading `/` is a
    path in the workspace.
    """
    locked: dict[str, None] = {}
    hidden: dict[str, None] = {}
    for rule in rules:
        if denies_any_command(rule) and not rule.expired(facts.today):
            locked |= dict.fromkeys(filter(None, (locked_by(path, facts) for path in rule.write)))
            hidden |= dict.fromkeys(filter(None, (hidden_by(path, facts) for path in rule.read)))
    return tuple(locked), tuple(hidden)


def locked_by(pattern: str, facts: Facts) -> str | None:
    """Return the pattern of the workspace that keeps the denied paths read-only, or None if there is none."""
    return "/".join(_anchored(pattern, facts)) or None


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
    return _holds(rule, pattern, locked_by(pattern, facts), (facts.workspace,), facts)


def holds_reading(rule: PermissionRule, pattern: str, facts: Facts) -> bool:
    """Return True if no code can read the paths that `pattern` denies: they are hidden, or outside of all
    readable roots.
    """
    return _holds(rule, pattern, hidden_by(pattern, facts), (facts.workspace, *facts.system), facts)


def _holds(rule: PermissionRule, pattern: str, right: str | None, roots: Iterable[str], facts: Facts) -> bool:
    """Return True if the rule denies, and a right expresses the denial or no root contains a path of the pattern."""
    if rule.verdict is not Ruling.DENY:
        return False
    expressed = denies_any_command(rule) and right is not None
    return expressed or not any(touches(pattern, root, facts, below=True) for root in roots)


def denies_any_command(rule: PermissionRule) -> bool:
    """Return True if the rule denies paths for any command, so that rights can express it."""
    return rule.verdict is Ruling.DENY and not (rule.run or rule.tool or rule.tier or rule.source)


def _anchored(pattern: str, facts: Facts) -> tuple[str, ...]:
    """Return the names below the workspace, or nothing if the sandbox cannot express the pattern."""
    parts = parts_of(pattern, facts.workspace, facts.home)
    root = parts_of(facts.workspace, "", "")
    if parts[: len(root)] != root:
        return ()
    below = parts[len(root) :]
    below = below[:-1] if below[-1:] == (ANYWHERE,) else below
    return below if _usable(below) else ()


def _usable(parts: Sequence[str]) -> bool:
    """Return True if the sandbox can use the pattern: it reads `[` as a set of characters, and must not lock
    everything.
    """
    return bool(parts) and all("**" not in part and "[" not in part for part in parts) and bool(parts[0].strip("*?"))
