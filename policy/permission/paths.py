"""Path patterns of the users' rules: the paths that a pattern certainly matches, and those that it may match."""

from functools import lru_cache

from policy.model.facts import Facts, Kind
from policy.model.glob import glob

_DEEP = "\x01"  # a name that no pattern was written for


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
