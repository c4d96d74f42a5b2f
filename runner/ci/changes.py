"""What a run changed in a workspace, by two looks at it: no program runs, so nothing that the repository says can lie.

A file counts as changed when its inode, size or times did. No command can set the time of a change (ctime), so none is
missed; one that was written again with the same content counts as well. What Git ignores is left out, as in a patch.
"""

import os

from policy.record import dataclass
from runner.review import tree
from runner.review.ignored import Ignored, kept_by_git
from runner.review.stamp import Stamp, stamp


@dataclass(frozen=True, slots=True)
class Changed:
    """`how`: added, modified or deleted."""

    path: str
    how: str


def before(workspace: str) -> dict[str, Stamp]:
    """Every file and link of a workspace as it is now. Raises OSError."""
    return {path: stamp(status) for path, status in tree.found(workspace).files.items()}


def since(workspace: str, then: dict[str, Stamp]) -> tuple[Changed, ...]:
    """What is other than it was `then`, by path. Raises OSError."""
    now = before(workspace)
    different = sorted(path for path in {*then, *now} if then.get(path) != now.get(path))
    if not different:
        return ()
    ignored = _ignored(workspace)
    return tuple(
        Changed(path, "added" if path not in then else "deleted" if path not in now else "modified")
        for path in different
        if not ignored(path)
    )


def _ignored(workspace: str) -> Ignored:
    top = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def read(path: str) -> bytes | None:
        try:
            found = tree.side(top, path)
        except tree.Unreadable:
            return None
        return found.data if found is not None else None

    try:
        kept = kept_by_git(read(f"{tree.GIT}/index"))
        lists = {path: read(path) for path in _lists(workspace)}
        mine = read(f"{tree.GIT}/info/exclude")
    finally:
        os.close(top)
    return Ignored(lists.get, kept, (mine,) if mine else ())


def _lists(workspace: str) -> list[str]:
    return [path for path in tree.found(workspace).files if path.rpartition("/")[2] == ".gitignore"]
