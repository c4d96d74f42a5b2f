"""Folders for copies, and removal of those that a killed run left behind, whose lock is free (flock(2))."""

import contextlib
import fcntl
import os
import stat
import tempfile
import time

from sandbox.inside import safe_rmtree

_PREFIX = "ringfence-copy-"
_YOUNG = 60.0  # seconds in which somebody may be about to lock it
_KEPT = "kept"  # beside the copy: somebody wants to look at it

_held: dict[str, int] = {}  # by path, the open folder whose lock says that we are alive


def folder(where: str) -> str:
    """Create a private folder in `where` and lock it, after removing folders of killed runs. Raise OSError."""
    sweep(where)
    path = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX, dir=where))  # mode 0700
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _held[path] = handle
    return path


def drop(path: str) -> None:
    """Remove the folder with its content, whatever modes it has. Files that cannot be removed stay."""
    safe_rmtree.remove(path)
    if (handle := _held.pop(path, None)) is not None:
        os.close(handle)


def keep(path: str) -> None:
    """Mark the folder as one that `sweep` must not remove after this process."""
    with contextlib.suppress(OSError):
        os.close(os.open(f"{path}/{_KEPT}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def sweep(where: str) -> None:
    """Remove the folders of killed runs in `where`. Raise nothing, because the caller asked for something else."""
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for each in [entry for entry in entries if entry.name.startswith(_PREFIX)]:
            with contextlib.suppress(OSError):
                _swept(each.path)


def _swept(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        # THREAT T18: in a folder that everybody may write to, others may have put one of that name.
        private = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700
        if not private or status.st_mtime > time.time() - _YOUNG or os.path.lexists(f"{path}/{_KEPT}"):
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        safe_rmtree.remove(path)
    finally:
        os.close(handle)
