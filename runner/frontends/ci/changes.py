"""The files that a run changed in a workspace, found by two scans of it.

No program is run, so nothing that the repository contains can falsify the result. A file counts as changed if its
inode, size or times changed. No command can set the change time (ctime), so no change is missed; a file rewritten with
the same content counts as changed too. Files that Git ignores are left out, as in a patch.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from policy.model.frozen import dataclass
from runner.changes.file_state import Stamp, stamp
from runner.changes.review import tree_diff
from runner.changes.review.gitignore import Ignored, kept_by_git
from runner.changes.review.tree_diff import OVERTIME, never


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One changed file. `how` is added, modified or deleted."""

    path: str
    how: str


@dataclass(frozen=True, slots=True)
class ChangeScan:
    """The changes of a workspace.

    Attributes:
        changed: The changed files, sorted by path.
        notes: Sentences about the parts of the workspace that could not be compared.
        cut: True if the time was over before the whole workspace was compared.
    """

    changed: tuple[ChangedFile, ...]
    notes: tuple[str, ...]
    cut: bool


def scan_workspace(workspace: str) -> dict[str, Stamp]:
    """Return every file and link of a workspace as it is now. Raise OSError if the workspace cannot be read."""
    return {path: stamp(status) for path, status in tree_diff.scan_tree(workspace).files.items()}


def changes_since(workspace: str, then: dict[str, Stamp], over: Callable[[], bool] = never) -> ChangeScan:
    """Return the files that differ from `then`, a result of `scan_workspace`.

    The comparison ends early when `over()` returns True. Raise OSError if the workspace cannot be read.
    """
    now = tree_diff.scan_tree(workspace, over)
    stamps = {path: stamp(status) for path, status in now.files.items()}
    different = sorted(path for path in {*then, *stamps} if then.get(path) != stamps.get(path))
    if OVERTIME in now.closed.values():
        different = [path for path in different if path in stamps or not now.unseen(path)]
    with _ignored(workspace, over) as ignored:
        found = tuple(
            ChangedFile(path, "added" if path not in then else "deleted" if path not in stamps else "modified")
            for path in different
            if not ignored(path)
        )
    cut = OVERTIME in now.closed.values()
    late = ("the list of changed files is incomplete: the time limit was reached during the search",) if cut else ()
    return ChangeScan(found, (*late, *ignored.bounds), cut or (bool(ignored.gave_up) and over()))


@contextmanager
def _ignored(workspace: str, over: Callable[[], bool]) -> Iterator[Ignored]:
    top = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def read(path: str) -> bytes | None:
        try:
            found = tree_diff.side(top, path)
        except tree_diff.UnreadableFile:
            return None
        return found.data if found is not None else None

    try:
        mine = read(f"{tree_diff.GIT}/info/exclude")
        yield Ignored(read, kept_by_git(read(f"{tree_diff.GIT}/index")), (mine,) if mine else (), over)
    finally:
        os.close(top)
