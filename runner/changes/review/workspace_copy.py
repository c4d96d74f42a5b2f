"""A copy of a workspace that is independent of it: a write to one is never seen in the other.

Contents are shared by reflink if the file system supports that, and copied otherwise; a hard link would let an in-place
write reach the original. No program runs: Git's hooks and filters are ordinary files here. A copy lies in a folder
with a lock (flock(2)); a folder whose lock is free was left behind by a killed run, and is removed.
"""

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import field

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.changes import safe_open
from runner.changes.copy_tree import Copying
from runner.changes.file_state import Stamp
from runner.text.phrases import os_reason
from sandbox.inside import safe_rmtree

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_PREFIX = "ringfence-copy-"
_YOUNG = 60.0  # seconds in which another process may not have locked its new folder yet

_held: dict[str, int] = {}  # by path, the open folder whose lock shows that this process uses it


class CopyError(ProblemError):
    """An error for a workspace that cannot be copied. `problem` has the reason; no file is left behind."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a workspace.

    Attributes:
        original: The path of the original.
        path: The path of the copy: a folder of the same name in a private folder of its own.
        left_out: Paths of the original that are not in the copy, each with the reason in words.
        torn: Files that changed while they were copied.
        stamps: The stamps of the original and of the copy for each file and link, by relative path.
        whole: The last change of the copy by the runner, in nanoseconds on the clock of its file system.
    """

    original: str
    path: str
    left_out: tuple[tuple[str, str], ...]
    torn: tuple[str, ...]
    stamps: dict[str, tuple[Stamp, Stamp]] = field(repr=False)
    whole: int

    def remove(self) -> None:
        """Remove the copy, also write-protected files. Files that cannot be removed stay. Never raise."""
        _drop(os.path.dirname(self.path))


def place() -> str:
    """Return the default folder for copies: `TMPDIR`, else `/var/tmp`, which is on a disk and is kept for a longer
    time.

    `/tmp` is in memory on many systems, `/var/tmp` is not (file-hierarchy(7)).
    """
    configured = os.environ.get("TMPDIR", "")
    if configured.startswith("/"):
        return os.path.realpath(configured)
    return "/var/tmp" if os.path.isdir("/var/tmp") else os.path.realpath(tempfile.gettempdir())  # noqa: S108  # a folder of our own is made in it


def copied(
    workspace: str,
    where: str | None = None,
    secret: Callable[[str], bool] | None = None,
) -> Copy:
    """Copy the folder `workspace`, a real path, to a new folder in `where` (default: `place()`).

    Modes, times, links and holes are kept, and the owner if the system permits. Sockets, pipes, devices, unreadable
    files, other file systems mounted inside, and `secret` paths, which no command could read, are left out and
    recorded. Raise CopyError; then no file is left behind.
    """
    where = where or place()
    work = Copying(secret)
    try:
        if (os.path.realpath(where) + "/").startswith(workspace.rstrip("/") + "/"):
            raise OSError("it is in the workspace itself")
        base = _private_folder(where)
    except OSError as error:
        fix = "set TMPDIR to a folder that you may write to"
        raise CopyError(Problem(f"no copy can be made in `{where}`", os_reason(error), fix)) from None
    path = f"{base}/{os.path.basename(workspace.rstrip('/')) or 'root'}"
    try:
        os.mkdir(path, 0o700)
        work.folder(workspace, path)
    except OSError as error:
        _drop(base)
        full = error.errno in _FULL
        fix = "free disk space there, or set TMPDIR to a folder on another disk" if full else "check the folder"
        why = f"after {work.files:,} files and {work.bytes:,} bytes: {os_reason(error)}"
        raise CopyError(Problem(f"`{workspace}` cannot be copied to `{base}`", why, fix)) from None
    except BaseException:
        _drop(base)
        raise
    whole = max((made[4] for _, made in work.stamps.values()), default=0)
    return Copy(workspace, path, tuple(work.left_out), tuple(work.torn), work.stamps, whole)


def _private_folder(where: str) -> str:
    """Create a private folder in `where` and lock it, after removing folders of killed runs. Raise OSError."""
    _sweep(where)
    path = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX, dir=where))  # mode 0700
    handle = safe_open.open_root(path)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _held[path] = handle
    return path


def _drop(path: str) -> None:
    """Remove the folder with its content, also write-protected files. Files that cannot be removed stay."""
    safe_rmtree.remove(path)
    if (handle := _held.pop(path, None)) is not None:
        os.close(handle)


def _sweep(where: str) -> None:
    """Remove the folders of killed runs in `where`. Never raise, because a failure does not affect the caller."""
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for path in [entry.path for entry in entries if entry.name.startswith(_PREFIX)]:
            with contextlib.suppress(OSError), safe_open.opened_root(path) as handle:
                status = os.fstat(handle)
                # THREAT T18: other users may have created a folder with such a name if everybody may write to `where`.
                private = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700
                if private and status.st_mtime <= time.time() - _YOUNG:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    safe_rmtree.remove(path)
