"""Paths below one folder that match patterns such as `.git/hooks` or `*.code-workspace`, and the identity of files."""

import contextlib
import ctypes
import fnmatch
import glob
import os
import stat
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache

from sandbox.workspace.secret_files import expression

# statx(2), linux/stat.h; the offsets below are those of struct statx
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _BTIME = -100, 0x100, 0x800
_STATX = 0x7FF | _BTIME
_statx = getattr(ctypes.CDLL(None), "statx", None)  # Linux alone has it
_MOST_LINKS = 40  # that the kernel follows on one way (path_resolution(7))
_KNOWN = 4096  # names whose patterns an index remembers


def candidates(root: str, patterns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each pattern of which something may exist below `root`, with the paths that it stands for."""
    for pattern in _present(root, patterns):
        for path in expanded_pattern(root, pattern):
            yield pattern, path


def expanded_pattern(root: str, pattern: str) -> list[str]:
    """Return the existing paths that match a pattern with wildcards, or the one path of any other, existing or not."""
    if any(c in pattern for c in "*?["):
        return glob.glob(os.path.join(glob.escape(root), pattern), include_hidden=True)
    return [os.path.join(root, pattern)]


def marks(paths: tuple[str, ...]) -> tuple[tuple[str, int, int, int], ...]:
    """Return (path, device, number, birth) of each. A number alone is reused soon, and mounts follow the file."""
    identities = []
    for path in paths:
        if _statx is None:
            with contextlib.suppress(OSError):  # gone meanwhile
                status = os.lstat(path)
                identities.append((path, status.st_dev, status.st_ino, getattr(status, "st_birthtime_ns", 0)))
            continue
        answer = ctypes.create_string_buffer(256)
        if _statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX, answer) != 0:
            continue  # gone meanwhile
        mask, number = struct.unpack_from("I", answer, 0)[0], struct.unpack_from("Q", answer, 32)[0]
        # Where no birth is kept, the last change stands for it: that of a folder is its content's, so not for those.
        folder = stat.S_ISDIR(struct.unpack_from("H", answer, 28)[0])
        seconds, fraction = struct.unpack_from("qI", answer, 80 if mask & _BTIME or folder else 96)
        identities.append((path, struct.unpack_from("Q", answer, 136)[0], number, seconds * 10**9 + fraction))
    return tuple(sorted(identities))


def appearing(root: str, patterns: tuple[str, ...]) -> set[str]:
    """Return existing paths that match `patterns`, links included, because programs that run such files follow links.

    For a path that leads through a link the result is that link, so that moving it aside follows no link. A link above
    the last name (`bin` of `bin/hermit`) counts if something lies behind it; a hidden link (`.hg` of `.hg/hgrc`) always
    counts.
    """
    paths = set()
    for pattern, path in candidates(root, patterns):
        current = root
        for name in path[len(root) :].strip("/").split("/"):
            current = os.path.join(current, name)
            if os.path.islink(current):
                if current == path or pattern.startswith((".", "_")) or os.path.lexists(path):
                    paths.add(current)
                break
        else:
            if os.path.lexists(path):
                paths.add(path)
    return paths


def existing(root: str, patterns: tuple[str, ...], workspace: str | None = None) -> list[str]:
    """Return existing paths that match `patterns` below one repository.

    A link, or a path behind one, is replaced by its target in `workspace` (if given), or omitted: a mount would land on
    the target, wherever that is.
    """
    targets = []
    for _, path in candidates(root, patterns):
        if os.path.lexists(path):
            real = os.path.realpath(path)
            inside = real == path or (workspace and real.startswith(workspace + "/"))
            if inside and os.path.lexists(real):
                targets.append(real)
    return targets


def _present(root: str, patterns: tuple[str, ...]) -> list[str]:
    """Return the patterns whose first name exists: few of hundreds."""
    try:
        names = os.listdir(root)
    except OSError:
        return list(patterns)  # it can be entered perhaps
    plain, wild = _first_names(patterns)
    first_names = {name for name in map(str.casefold, names) if name in plain or wild(name)}
    fit = {name for name in first_names if wild(name)}
    return [
        pattern
        for pattern in patterns
        if (first := pattern.partition("/")[0].casefold()) in first_names
        or (fit and any(c in first for c in "*?[") and any(fnmatch.fnmatchcase(name, first) for name in fit))
    ]


@lru_cache(maxsize=16)
def _first_names(patterns: tuple[str, ...]) -> tuple[frozenset[str], Callable[[str], bool]]:
    """Return the first names of patterns: the plain ones, and whether a name fits one of the others."""
    firsts = {pattern.partition("/")[0].casefold() for pattern in patterns}
    wild = tuple(sorted(name for name in firsts if any(c in name for c in "*?[")))
    return frozenset(firsts - {*wild}), expression(wild) if wild else lambda name: False


class PatternIndex:
    """Patterns, indexed by their first name."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._plain: dict[str, tuple[str, ...]] = {}
        self._wild: dict[str, tuple[str, ...]] = {}
        self.of = lru_cache(_KNOWN)(self._of)
        for pattern in patterns:
            first = pattern.strip("/").partition("/")[0].lower()
            index = self._wild if any(c in first for c in "*?[") else self._plain
            index[first] = (*index.get(first, ()), pattern)

    def _of(self, name: str) -> tuple[str, ...]:
        """Return the patterns whose first name fits, ignoring case; the disk tells the real name."""
        name = name.lower()
        fitting = self._plain.get(name, ())
        for first, patterns in self._wild.items():
            if fnmatch.fnmatchcase(name, first):
                fitting = (*fitting, *patterns)
        return fitting


def folders_between(top: str, path: str) -> list[str]:
    """Return the folders below `top` that `path` lies in."""
    folders = []
    while (path := os.path.dirname(path)).startswith(top + "/"):
        folders.append(path)
    return folders


def links_to(path: str) -> list[str]:
    """Return the links that are followed on the way to `path`, the last one included."""
    links: list[str] = []
    at, pending = "", path.split("/")
    while pending and len(links) < _MOST_LINKS:
        name = pending.pop(0)
        if name == "..":
            at = os.path.dirname(at)
        elif name not in ("", "."):
            at = f"{at}/{name}"
        if name not in ("", ".", "..") and os.path.islink(at):
            try:
                target = os.readlink(at)
            except OSError:
                return links  # gone meanwhile
            links.append(at)
            at = "" if target.startswith("/") else os.path.dirname(at)
            pending = [*target.split("/"), *pending]
    return links
