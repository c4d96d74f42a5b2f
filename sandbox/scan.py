"""One walk over the workspace: what must be masked, kept read-only, or pinned before a command may run there."""

import contextlib
import ctypes
import fnmatch
import glob
import os
import re
import stat
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from policy.record import dataclass
from sandbox.gitfiles import common, named
from sandbox.tree import CLOSED, GIT_IS_FILE, HAS_GIT, IS_GIT, Tree, Trees

# statx(2), linux/stat.h; the offsets below are those of struct statx
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _BTIME = -100, 0x100, 0x800
_STATX = 0x7FF | _BTIME
_statx = getattr(ctypes.CDLL(None), "statx", None)  # Linux alone has it

# More special paths than this and the mounts would cost more than the command; nobody reviews such a list either.
MOST = 4000


@dataclass(frozen=True, slots=True)
class Scan:
    """Absolute paths. `masked`: secret files and folders. `locked`: read-only even when the workspace is writable.

    `pinned`: `.git` folders that must not be renamed away. `shared`: files whose other hard links lie elsewhere.
    `roots`: the workspace and every repository nested in it. `inner`: folders that Git takes for the inside of one.
    `closed`: folders among the masked that we cannot look into.
    `named`: where the settings of repositories say that hooks and further settings are, there or not.
    `marks`: which file each of the first four was (path, device, number, birth): editors replace a file rather than
    change it.
    `truncated`: the walk found more than MOST of them, so the answer is not complete and nothing may run on it.
    """

    masked: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    marks: tuple[tuple[str, int, int, int], ...] = ()
    truncated: bool = False

    def with_masked(self, other: "Scan") -> "Scan":
        """The same, with the secret files of a further folder."""
        return self._joined(other, "masked", "closed")

    def with_guarded(self, other: "Scan") -> "Scan":
        """The same, with the secret and auto-run files of a further folder that may be written."""
        return self._joined(other, "masked", "closed", "locked", "pinned", "roots", "inner", "named")

    def _joined(self, other: "Scan", *fields: str) -> "Scan":
        both = {name: tuple(sorted({*getattr(self, name), *getattr(other, name)})) for name in fields}
        return replace(
            self,
            **{name: paths if name in ("roots", "inner") else paths[:MOST] for name, paths in both.items()},
            marks=tuple(sorted({*self.marks, *other.marks})),
            truncated=self.truncated
            or other.truncated
            or any(len(both[name]) > MOST for name in _COVERED if name in both),
        )


_COVERED = ("masked", "locked", "pinned")  # what takes a mount each


def scan(
    workspace: str,
    hidden: tuple[str, ...],
    shown: tuple[str, ...],
    locked: tuple[str, ...],
    trees: Trees | None = None,
    *,
    count: bool = True,
) -> Scan:
    """Walk `workspace` without following links. A folder that we cannot look into is masked: a command may have closed
    it, so that the next one opens it again and finds what was in it without a mask.

    A pattern of `hidden` is a name; with a first `/` it is one place, seen from the workspace. With `trees`, folders
    that did not change since they were read are not read again; the answer is the same (`sandbox/tree.py` has the
    limits). Without `count`, the links of files in such folders are not counted again.
    """
    trees = trees or Trees(None)
    names = tuple(name for name in hidden if "/" not in name)
    secret = _secret(names, shown)
    tree = trees.take(workspace, (names, shown))
    tree.renew(secret, everything=count and tree.due())
    shared, odd = _shared(tree)
    if count and not odd <= tree.odd:
        # A file with names elsewhere that was not there at the last count: others may have got some as well.
        tree.renew(secret, everything=True)
        shared, odd = _shared(tree)
    if tree.counted_now:
        tree.odd = odd
    trees.keep(tree)
    masked = _placed(workspace, tuple(place[1:] for place in hidden if place[:1] == "/"))
    roots, inner, closed = [], [], []
    git = inside_git(locked)
    for path, folder in tree.folders.items():
        if not folder[6] and not folder[7] and path != workspace:
            continue
        if folder[7] & CLOSED:
            closed.append(path)
            continue
        for name in folder[6]:
            real = os.path.realpath(f"{path}/{name}")
            # A link to nothing (`.env` before there is an `.env.local`) or in a circle hides nothing.
            if real.startswith(workspace + "/") and os.path.lexists(real) and not os.path.islink(real):
                masked.add(real)
        if path == workspace or folder[7] & HAS_GIT:
            roots.append(path)
        if git and folder[7] & IS_GIT:
            inner.append(path)
            shared_by = common(path)
            if shared_by != path and (shared_by + "/").startswith(workspace + "/"):
                inner.append(shared_by)
    masked |= {*closed}
    said = {
        path
        for folder, top in (*((f"{root}/.git", root) for root in roots if git), *((path, path) for path in inner))
        for path in named(folder, top.removesuffix("/.git"))
        # One that holds the repository itself cannot be kept as it is.
        if path.startswith(workspace + "/") and not (folder + "/").startswith(path + "/")
    }
    fixed = {path for root in roots for path in existing(root, locked, workspace)}
    fixed |= {path for root in inner for path in existing(root, git, workspace)}
    if git:  # a `.git` that is a file names the folder with the settings: whoever changes it changes them all
        fixed |= {f"{root}/.git" for root in roots if tree.folders[root][7] & GIT_IS_FILE}
    fixed |= {
        real for path in said if os.path.lexists(real := os.path.realpath(path)) and real.startswith(workspace + "/")
    }
    masked |= _twins(tree, masked)
    fixed |= _twins(tree, fixed)
    pinned = [path for root in roots for path in existing(root, (".git",)) if os.path.isdir(path)]
    return Scan(
        masked=tuple(sorted(masked))[:MOST],
        locked=tuple(sorted(fixed))[:MOST],
        pinned=tuple(sorted(pinned))[:MOST],
        shared=tuple(sorted(path for path, *_ in shared))[:MOST],
        roots=tuple(sorted(roots)),
        inner=tuple(sorted(set(inner))),
        closed=tuple(sorted(closed)),
        named=tuple(sorted(said)),
        marks=tuple(sorted({*marks((*masked, *fixed, *pinned)[:MOST]), *shared}))[:MOST],
        truncated=max(len(masked), len(fixed), len(pinned), len(shared)) > MOST,
    )


def _shared(tree: Tree) -> tuple[list[tuple[str, int, int, int]], frozenset[tuple[int, int, int]]]:
    """The marks of files that have names elsewhere, as they are now; and the device, number and links of each."""
    links: dict[tuple[int, int, int], list[str]] = {}
    for path, folder in tree.folders.items():
        for name, *_ in folder[8] or ():
            try:
                status = os.lstat(f"{path}/{name}")
            except OSError:
                continue  # gone meanwhile
            links.setdefault((status.st_dev, status.st_ino, status.st_nlink), []).append(f"{path}/{name}")
    odd = {key: paths for key, paths in links.items() if len(paths) < key[2]}
    return [(path, key[0], key[1], 0) for key, paths in odd.items() for path in paths], frozenset(odd)


def _twins(tree: Tree, paths: set[str]) -> set[str]:
    """Other names of the same files, and of files in the same folders: what holds for one name holds for all."""
    linked = [(f"{path}/{link[0]}", link[1:3]) for path, folder in tree.folders.items() for link in folder[8]]
    if not linked:
        return set()
    files = set()
    for path in paths:
        with contextlib.suppress(OSError):  # gone meanwhile
            status = os.lstat(path)
            files.add((status.st_dev, status.st_ino))
    roots = tuple(f"{path}/" for path in paths)
    files |= {file for path, file in linked if path.startswith(roots)}
    return {path for path, file in linked if file in files}


def inside_git(locked: tuple[str, ...]) -> tuple[str, ...]:
    """What is locked inside `.git`, for every folder that Git takes for one: bare, of a submodule, of a worktree."""
    inside = [pattern[5:] for pattern in locked if pattern.startswith(".git/")]
    return tuple(pattern for pattern in inside if not pattern.startswith(("modules/", "worktrees/")))


@lru_cache(maxsize=16)
def _secret(names: tuple[str, ...], shown: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a name is one of a secret file. Most names of a large tree are there many times: each is judged once."""
    secret, public = _matcher(names), _matcher(shown)
    return lru_cache(maxsize=1 << 16)(lambda name: secret(name) and not public(name))


def _placed(workspace: str, places: tuple[str, ...]) -> set[str]:
    """What is there, wherever in the workspace its links lead."""
    found = {os.path.realpath(path) for place in places for path in _hits(workspace, place)}
    return {path for path in found if path.startswith(workspace + "/") and os.path.lexists(path)}


def _hits(root: str, pattern: str) -> list[str]:
    if any(c in pattern for c in "*?["):
        return glob.glob(os.path.join(glob.escape(root), pattern), include_hidden=True)
    return [os.path.join(root, pattern)]


def marks(paths: tuple[str, ...]) -> tuple[tuple[str, int, int, int], ...]:
    """(path, device, number, birth). A number alone is soon given to another file, and mounts go with the file."""
    found = []
    for path in paths:
        if _statx is None:
            with contextlib.suppress(OSError):  # gone meanwhile
                status = os.lstat(path)
                found.append((path, status.st_dev, status.st_ino, getattr(status, "st_birthtime_ns", 0)))
            continue
        answer = ctypes.create_string_buffer(256)
        if _statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX, answer) != 0:
            continue  # gone meanwhile
        mask, number = struct.unpack_from("I", answer, 0)[0], struct.unpack_from("Q", answer, 32)[0]
        # Where no birth is kept, the last change stands for it: that of a folder is its content's, so not for those.
        folder = stat.S_ISDIR(struct.unpack_from("H", answer, 28)[0])
        seconds, fraction = struct.unpack_from("qI", answer, 80 if mask & _BTIME or folder else 96)
        found.append((path, struct.unpack_from("Q", answer, 136)[0], number, seconds * 10**9 + fraction))
    return tuple(sorted(found))


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """One compiled question for all name patterns."""
    if not patterns:
        return lambda name: False
    # In any case of letters, as the policy reads them: `grep -r` must not show what `cat .ENV` may not.
    matches = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns), re.IGNORECASE).match
    return lambda name: matches(name) is not None


def appearing(root: str, patterns: tuple[str, ...]) -> set[str]:
    """What is there under `patterns`, links too: those who run such files follow them. Of a path that leads through a
    link, that link, so that nobody who moves what was found follows it."""
    found = set()
    for pattern in _begun(root, patterns):
        for hit in _hits(root, pattern):
            current = root
            for name in hit[len(root) :].strip("/").split("/"):
                current = os.path.join(current, name)
                if os.path.islink(current):
                    found.add(current)
                    break
            else:
                if os.path.lexists(hit):
                    found.add(hit)
    return found


def existing(root: str, patterns: tuple[str, ...], workspace: str | None = None) -> list[str]:
    """What exists of `patterns` below one repository.

    Of a link, or what lies behind one, the place in `workspace` (if given) that it leads to, else nothing: a mount
    would land on the target, wherever that is.
    """
    found = []
    for pattern in _begun(root, patterns):
        for hit in _hits(root, pattern):
            real = os.path.realpath(hit)
            if os.path.lexists(real) and (real == hit or (workspace and real.startswith(workspace + "/"))):
                found.append(real)
    return found


def _begun(root: str, patterns: tuple[str, ...]) -> list[str]:
    """The patterns of which at least the first name is there: a dozen begin with the same one."""
    there: dict[str, bool] = {}
    kept = []
    for pattern in patterns:
        first = pattern.partition("/")[0]
        if first not in there:
            there[first] = any(c in first for c in "*?[") or os.path.lexists(f"{root}/{first}")
        if there[first]:
            kept.append(pattern)
    return kept
