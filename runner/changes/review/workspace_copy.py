"""A copy of a workspace that shares no data with it: a write to one is never seen in the other.

Contents are shared by reflink if the file system supports that, and copied otherwise; a hard link would let an in-place
write reach the original. No program runs: Git's hooks and filters are ordinary files here.
"""

import errno
import os
import tempfile
from collections.abc import Callable
from dataclasses import field

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.changes.review import stale_copies
from runner.changes.review.copy_tree import Copying, Progress, Stamp, error_reason

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


class CopyError(ProblemError):
    """An error for a workspace that cannot be copied. `problem` has the reason; no file is left behind."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a workspace.

    Attributes:
        original: The path of the original.
        path: The path of the copy: a folder of the same name in a private folder of its own.
        files: The number of copied files.
        bytes: The number of copied bytes.
        cloned: The number of files whose content is shared by reflink.
        left_out: Paths of the original that are not in the copy, each with the reason in words.
        torn: Files that changed while they were copied.
        stamps: The stamps of the original and of the copy for each file and link, by relative path.
        folders: The relative paths of the folders.
        whole: The last change of the copy by the runner, in nanoseconds on the clock of its file system.
    """

    original: str
    path: str
    files: int
    bytes: int
    cloned: int
    left_out: tuple[tuple[str, str], ...]
    torn: tuple[str, ...]
    stamps: dict[str, tuple[Stamp, Stamp]] = field(repr=False)
    folders: frozenset[str] = field(repr=False)
    whole: int

    def remove(self) -> None:
        """Remove the copy, whatever modes it has by now. Files that cannot be removed stay; nothing is raised."""
        stale_copies.drop(os.path.dirname(self.path))

    def keep(self) -> None:
        """Leave the copy on the disk."""
        stale_copies.keep(os.path.dirname(self.path))


def place() -> str:
    """Return the default folder for copies: `TMPDIR`, else `/var/tmp`, which is on a disk and is kept for a longer
    time.

    `/tmp` is in memory on many systems, `/var/tmp` is not (file-hierarchy(7)).
    """
    told = os.environ.get("TMPDIR", "")
    if told.startswith("/"):
        return os.path.realpath(told)
    return "/var/tmp" if os.path.isdir("/var/tmp") else os.path.realpath(tempfile.gettempdir())  # noqa: S108  # a folder of our own is made in it


def copied(
    workspace: str,
    where: str | None = None,
    progress: Progress | None = None,
    secret: Callable[[str], bool] | None = None,
) -> Copy:
    """Copy the folder `workspace`, a real path, to a new folder in `where` (default: `place()`).

    Modes, times, links and holes are kept, and the owner if the system permits. Sockets, pipes, devices, unreadable
    files, other file systems mounted inside, and `secret` paths, which no command could read, are left out and
    recorded. `progress(files, bytes)` is called now and then. Raise CopyError; then no file is left behind.
    """
    where = where or place()
    work = Copying(progress, secret)
    try:
        if (os.path.realpath(where) + "/").startswith(workspace.rstrip("/") + "/"):
            raise OSError("it lies in the workspace itself")
        base = stale_copies.folder(where)
    except OSError as error:
        fix = "set TMPDIR to a folder that you may write to"
        raise CopyError(Problem(f"no copy can be made in `{where}`", error_reason(error), fix)) from None
    path = f"{base}/{os.path.basename(workspace.rstrip('/')) or 'root'}"
    try:
        os.mkdir(path, 0o700)
        work.folder(workspace, path)
    except OSError as error:
        stale_copies.drop(base)
        fix = (
            "make room there, or set TMPDIR to a folder on another disk" if error.errno in _FULL else "check the folder"
        )
        why = f"after {work.files:,} files and {work.bytes:,} bytes: {error_reason(error)}"
        raise CopyError(Problem(f"`{workspace}` cannot be copied to `{base}`", why, fix)) from None
    except BaseException:
        stale_copies.drop(base)
        raise
    return Copy(
        workspace,
        path,
        work.files,
        work.bytes,
        work.cloned,
        tuple(work.left_out),
        tuple(work.torn),
        work.stamps,
        frozenset(work.folders),
        max((made[4] for _, made in work.stamps.values()), default=0),
    )
