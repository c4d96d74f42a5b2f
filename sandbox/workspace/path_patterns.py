"""Paths below one folder that match patterns such as `.git/hooks` or `*.code-workspace`, and the identity of files."""

import contextlib
import ctypes
import fnmatch
import os
import stat
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache

from sandbox.inside.regular_file import real_path
from sandbox.workspace.secret_files import matcher

# statx(2), linux/stat.h; the offsets below are those of struct statx
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _BTIME = -100, 0x100, 0x800
_STATX = 0x7FF | _BTIME
_statx = getattr(ctypes.CDLL(None), "statx", None)  # Linux alone has it
_MOST_LINKS = 40  # links that the kernel follows in one path (path_resolution(7))
_KNOWN = 4096  # names whose patterns an index remembers


def candidates(root: str, patterns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (pattern, path) for each pattern that may match below `root`, with each of its paths."""
    for pattern in _present(root, patterns):
        for path in expanded_pattern(root, pattern):
            yield pattern, path


def expanded_pattern(root: str, pattern: str) -> list[str]:
    """Return the existing paths that match a pattern with wildcards, or the one path of a pattern without wildcards."""
    wild = min((at for c in "*?[" if (at := pattern.find(c)) >= 0), default=-1)
    if wild < 0:
        return [os.path.join(root, pattern)]
    try:
        if not os.listdir(os.path.join(root, pattern[:wild].rpartition("/")[0])):
            return []
    except OSError:  # most repositories have no `.git/modules`, for example
        return []
    from glob import escape, glob

    return glob(os.path.join(escape(root), pattern), include_hidden=True)


def marks(paths: tuple[str, ...]) -> tuple[tuple[str, int, int, int], ...]:
    """Return (path, device, inode number, birth in nanoseconds) of each existing path, sorted. The birth is needed
    because inode numbers are reused."""
    identities = []
    for path in paths:
        if _statx is None:
            with contextlib.suppress(OSError):  # removed meanwhile
                status = os.lstat(path)
                identities.append((path, status.st_dev, status.st_ino, getattr(status, "st_birthtime_ns", 0)))
            continue
        answer = ctypes.create_string_buffer(256)
        if _statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX, answer) != 0:
            continue  # removed meanwhile
        mask, number = struct.unpack_from("I", answer, 0)[0], struct.unpack_from("Q", answer, 32)[0]
        # Without a birth time a file's last change replaces it, but not a folder's, which changes with the content.
        folder = stat.S_ISDIR(struct.unpack_from("H", answer, 28)[0])
        seconds, fraction = struct.unpack_from("qI", answer, 80 if mask & _BTIME or folder else 96)
        identities.append((path, struct.unpack_from("Q", answer, 136)[0], number, seconds * 10**9 + fraction))
    return tuple(sorted(identities))


def appearing(root: str, patterns: tuple[str, ...]) -> set[str]:
    """Return existing paths that match `patterns`, links included, because programs that run such files follow links.

    A path through a link is replaced by that link, so that moving it aside follows no link. A link above the last name
    (`bin` of `bin/hermit`) counts if the path exists; a hidden link (`.hg` of `.hg/hgrc`) always counts.
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

    A link, or a path through a link, is replaced by its target in `workspace` (if given). Other targets are omitted,
    because a mount on the link would change the target.
    """
    targets = []
    for _, path in candidates(root, patterns):
        if os.path.lexists(path):
            real = real_path(path)
            inside = real == path or (workspace and real.startswith(workspace + "/"))
            if inside and os.path.lexists(real):
                targets.append(real)
    return targets


def _present(root: str, patterns: tuple[str, ...]) -> list[str]:
    """Return the patterns whose first name exists in `root`, usually few of hundreds."""
    try:
        names = os.listdir(root)
    except OSError:
        return list(patterns)  # a folder that cannot be listed may still be entered
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
    """Return the first names of patterns without wildcards, and a function that matches a name with all others."""
    firsts = {pattern.partition("/")[0].casefold() for pattern in patterns}
    wild = tuple(sorted(name for name in firsts if any(c in name for c in "*?[")))
    return frozenset(firsts - {*wild}), matcher(wild)


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
        """Return the patterns whose first name matches `name`, ignoring case as some file systems do."""
        name = name.lower()
        fitting = self._plain.get(name, ())
        for first, patterns in self._wild.items():
            if fnmatch.fnmatchcase(name, first):
                fitting = (*fitting, *patterns)
        return fitting


def folders_between(top: str, path: str) -> list[str]:
    """Return the folders below `top` that contain `path`, the innermost first."""
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
                return links  # removed meanwhile
            links.append(at)
            at = "" if target.startswith("/") else os.path.dirname(at)
            pending = [*target.split("/"), *pending]
    return links
