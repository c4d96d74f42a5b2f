"""A copy of a workspace that shares nothing with it: what is written to one is never seen in the other.

Contents are shared by reflink where the file system can do that, and copied elsewhere; hard links would let an in-place
write reach the original. No program runs: Git's hooks and filters are files like others.
"""

import errno
import os
import tempfile
from collections.abc import Callable
from dataclasses import field

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.changes.review import stale_copies
from runner.changes.review.copy_tree import Copying, Progress, words
from runner.changes.review.file_stamp import Stamp

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


class CopyError(ProblemError):
    """The workspace cannot be copied. `problem` says why; nothing is left behind."""


@dataclass(frozen=True, slots=True)
class Copy:
    """`path`: the copy, a folder of the same name as the original, in a folder of its own that is ours alone.

    `cloned`: files whose content is shared by reflink. `left_out`: paths of the original that are not in the copy, each
    with why, in words; `torn`: files that changed while they were copied. `stamps`: of each file and link in the
    copy, by its path below it, what the original and what the copy was when it was made; `folders`: the paths of the
    others. `whole`: the last change of the copy by us (nanoseconds, by the clock of its file system).
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
        """Take it away, whatever modes it has by now. What cannot be removed stays; nothing is raised."""
        stale_copies.drop(os.path.dirname(self.path))

    def keep(self) -> None:
        """Leave it for somebody to look at."""
        stale_copies.keep(os.path.dirname(self.path))


def place() -> str:
    """Where copies go unless somebody says otherwise: a folder that may hold much and outlives no machine's patience.

    `/tmp` is memory on many systems, `/var/tmp` is not (file-hierarchy(7)); `TMPDIR` outranks both.
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

    Modes, times, links and holes are kept, and who owns it where we may say so. Left out, and named: sockets, pipes and
    devices, what we may not read, other file systems mounted inside, and paths below it that are `secret`: no command
    would see them anyway. `progress(files, bytes)` is called now and then. Raises CopyError; then nothing is left.
    """
    where = where or place()
    work = Copying(progress, secret)
    try:
        if (os.path.realpath(where) + "/").startswith(workspace.rstrip("/") + "/"):
            raise OSError("it lies in the workspace itself")
        base = stale_copies.folder(where)
    except OSError as error:
        fix = "set TMPDIR to a folder that you may write to"
        raise CopyError(Problem(f"no copy can be made in `{where}`", words(error), fix)) from None
    path = f"{base}/{os.path.basename(workspace.rstrip('/')) or 'root'}"
    try:
        os.mkdir(path, 0o700)
        work.folder(workspace, path)
    except OSError as error:
        stale_copies.drop(base)
        fix = (
            "make room there, or set TMPDIR to a folder on another disk" if error.errno in _FULL else "check the folder"
        )
        why = f"after {work.files:,} files and {work.bytes:,} bytes: {words(error)}"
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
