"""One walk over the workspace: what must be masked, kept read-only, or pinned before a command may run there."""

import fnmatch
import glob
import os
import re
from collections.abc import Callable
from dataclasses import replace

from policy.record import dataclass

# More special paths than this and the mounts would cost more than the command; nobody reviews such a list either.
MOST = 4000


@dataclass(frozen=True, slots=True)
class Scan:
    """Absolute paths. `masked`: secret files and folders. `locked`: read-only even when the workspace is writable.

    `pinned`: `.git` folders that must not be renamed away. `shared`: files whose other hard links lie elsewhere.
    `roots`: the workspace and every repository nested in it.
    `marks`: which file each of the first four was (path, device, number): editors replace a file rather than change it.
    `truncated`: the walk found more than MOST of them, so the answer is not complete and nothing may run on it.
    """

    masked: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    marks: tuple[tuple[str, int, int], ...] = ()
    truncated: bool = False

    def with_masked(self, other: "Scan") -> "Scan":
        """The same, with the secret files of a further folder."""
        masked = tuple(sorted({*self.masked, *other.masked}))
        return replace(
            self,
            masked=masked[:MOST],
            marks=tuple(sorted({*self.marks, *other.marks})),
            truncated=self.truncated or other.truncated or len(masked) > MOST,
        )


def scan(workspace: str, hidden: tuple[str, ...], shown: tuple[str, ...], locked: tuple[str, ...]) -> Scan:
    """Walk `workspace` without following links. Folders that cannot be read cannot be entered by a command either.

    A pattern of `hidden` is a name; with a first `/` it is one place, seen from the workspace.
    """
    secret, public = _matcher(tuple(name for name in hidden if "/" not in name)), _matcher(shown)
    masked = _placed(workspace, tuple(place[1:] for place in hidden if place[:1] == "/"))
    roots = [workspace]
    links: dict[tuple[int, int], list[str]] = {}
    counts: dict[tuple[int, int], int] = {}
    pending = [workspace]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            name = entry.name
            if secret(name) and not public(name):
                real = os.path.realpath(entry.path)
                # A link to nothing (`.env` before there is an `.env.local`) or in a circle hides nothing.
                if real.startswith(workspace + "/") and os.path.lexists(real) and not os.path.islink(real):
                    masked.add(real)
                continue
            if entry.is_dir(follow_symlinks=False):
                if name == ".git" and folder != workspace:
                    roots.append(folder)
                # Git's object store is content-addressed and full of hard links after a local clone.
                if not (name == "objects" and folder.endswith("/.git")):
                    pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                if name == ".git" and folder != workspace:
                    roots.append(folder)
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_nlink > 1:
                    key = (status.st_dev, status.st_ino)
                    links.setdefault(key, []).append(entry.path)
                    counts[key] = status.st_nlink
    shared = [path for key, paths in links.items() if len(paths) < counts[key] for path in paths]
    fixed = sorted({path for root in roots for path in existing(root, locked)})
    pinned = [path for root in roots for path in existing(root, (".git",)) if os.path.isdir(path)]
    return Scan(
        masked=tuple(sorted(masked))[:MOST],
        locked=tuple(fixed)[:MOST],
        pinned=tuple(sorted(pinned))[:MOST],
        shared=tuple(sorted(shared))[:MOST],
        roots=tuple(sorted(roots)),
        marks=_marks((*masked, *fixed, *pinned, *shared)[:MOST]),
        truncated=max(len(masked), len(fixed), len(pinned), len(shared)) > MOST,
    )


def _placed(workspace: str, places: tuple[str, ...]) -> set[str]:
    """What is there, wherever in the workspace its links lead."""
    found = {os.path.realpath(path) for place in places for path in _hits(os.path.join(workspace, place), place)}
    return {path for path in found if path.startswith(workspace + "/") and os.path.lexists(path)}


def _hits(path: str, pattern: str) -> list[str]:
    return glob.glob(path, include_hidden=True) if any(c in pattern for c in "*?[") else [path]


def _marks(paths: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    found = []
    for path in paths:
        try:
            status = os.lstat(path)
        except OSError:
            continue  # gone meanwhile
        found.append((path, status.st_dev, status.st_ino))
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
    for pattern in patterns:
        path = os.path.join(root, pattern)
        for hit in _hits(path, pattern):
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


def existing(root: str, patterns: tuple[str, ...]) -> list[str]:
    """What exists of `patterns` below one repository.

    What is a link, or lies behind one, is left out: a mount would land on the target, wherever that is.
    """
    found = []
    for pattern in patterns:
        path = os.path.join(root, pattern)
        found += [hit for hit in _hits(path, pattern) if os.path.lexists(hit) and os.path.realpath(hit) == hit]
    return found
