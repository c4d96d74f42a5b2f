"""The commit that brought the present content of a file into the history of HEAD, and the commits that an action added
to it. Both are read from objects without Git, along the first parents.
"""

import hashlib
import os
from collections.abc import Iterator

from runner.facts.git.objects import Objects, Unreadable
from runner.state.workspace import git_folder, head_commit
from sandbox.inside.regular_file import read_whole

_LARGEST = 16 << 20  # bytes of a file
_MOST_COMMITS = 200  # commits that are searched
_MOST_NEW = 2_000  # commits of one action


def introducing_commit(workspace: str, path: str) -> str:
    """Return the ID of the commit, on the first parents of HEAD, since which the file at the absolute `path` has its
    present content.

    Return an empty text if HEAD has another content, if the search takes more than _MOST_COMMITS, or for a repository
    whose objects are not understood.
    """
    root = workspace.rstrip("/") + "/"
    folder, head = git_folder(workspace), head_commit(workspace)
    if folder is None or head is None or not path.startswith(root) or len(head) != 40:
        return ""
    try:
        data = read_whole(path, _LARGEST, follow=False)
        wanted = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()
        names = [os.fsencode(name) for name in path[len(root) :].split("/")]
        with Objects(_objects(folder)) as objects:
            return _search(objects, bytes.fromhex(head), names, wanted)
    except (Unreadable, OSError, ValueError):
        return ""


def commits_since(workspace: str, before: str | None, now: str) -> tuple[tuple[str, ...], bool]:
    """Return the IDs of the commits on the first parents of `now` that are not on those of `before`, and True if these
    are all of them.

    `before` and `now` are IDs of commits, the HEAD before and after an action; None if there was no commit.
    """
    folder = git_folder(workspace)
    if folder is None or len(now) != 40:
        return (now,), True
    try:
        with Objects(_objects(folder)) as objects:
            old = set(_first_parents(objects, before)) if before else set()
            found: list[str] = []
            for each in _first_parents(objects, now):
                if each in old:
                    return tuple(found), True
                found.append(each)
            return tuple(found), len(found) < _MOST_NEW
    except (Unreadable, OSError, ValueError):
        return (now,), False


def _first_parents(objects: Objects, id: str) -> Iterator[str]:
    """Yield a commit and its first parents, at most _MOST_NEW."""
    for _ in range(_MOST_NEW):
        commit = objects.commit(bytes.fromhex(id))
        if commit is None:
            return
        yield id
        if not commit.others:
            return
        id = commit.others[0].hex()


def _objects(folder: str) -> str:
    """Return the `objects` folder: that of a linked worktree is in the folder that all worktrees share."""
    if os.path.isdir(f"{folder}/objects"):
        return f"{folder}/objects"
    return os.path.join(os.path.dirname(os.path.dirname(folder)), "objects")


def _search(objects: Objects, id: bytes, names: list[bytes], wanted: bytes) -> str:
    found = b""
    for _ in range(_MOST_COMMITS):
        commit = objects.commit(id)
        if commit is None or commit.tree is None or _blob(objects, commit.tree, names) != wanted:
            return found.hex()
        found = id
        if not commit.others:
            return found.hex()
        id = commit.others[0]
    return ""


def _blob(objects: Objects, tree: bytes, names: list[bytes]) -> bytes:
    """Return the ID of the object at the path `names` below `tree`; empty if there is none."""
    id = tree
    for name in names:
        entries = objects.tree(id)
        id = next((found for _, each, found in entries or () if each == name), b"")
        if not id:
            return b""
    return id
