"""The folder in which a batch keeps its copies: removed at its end, or by a later batch if its owner was killed."""

import contextlib
import fcntl
import os
import stat
import tempfile
import time

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped
from runner.text.phrases import os_reason
from sandbox.inside import safe_rmtree

_PREFIX = "ringfence-batch-"
_YOUNG = 60.0  # seconds during which a folder without a lock is kept, since its owner may be creating it


class CopiesFolder:
    """A private folder in `where`, locked against removal by other batches.

    Processes that work in the folder inherit the descriptor `handle` with the lock, so that the lock is held until the
    last of them has ended. Raises Stopped if the folder cannot be created.
    """

    def __init__(self, where: str) -> None:
        sweep(where)
        try:
            while True:
                self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=where)  # mode 0700
                self.handle = os.open(f"{self.path}/lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with contextlib.suppress(BlockingIOError):  # another batch is removing it
                    fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.path.exists(f"{self.path}/lock"):
                        return
                os.close(self.handle)  # another process removed it between the two calls
        except OSError as error:
            why, fix = os_reason(error), "name another folder with --copies"
            raise Stopped(Problem(f"no copy can be made in `{where}`", why, fix), Exit.FAILED) from None

    def remove(self) -> None:
        """Remove the folder with all copies in it, whatever their permissions."""
        safe_rmtree.remove(self.path)
        os.close(self.handle)
        sweep(os.path.dirname(self.path))  # also folders whose locks were still held when this batch began


def sweep(where: str) -> None:
    """Remove the folders of killed batches in `where`, except those whose lock a process still holds."""
    try:
        names = [name for name in os.listdir(where) if name.startswith(_PREFIX)]
    except OSError:
        return  # the caller creates a folder there, which fails with the reason
    for name in names:
        path = f"{where}/{name}"
        with contextlib.suppress(OSError):  # its lock is held, or it belongs to another user
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            try:
                lock = os.open(f"{path}/lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                if time.time() - found.st_mtime > _YOUNG:
                    safe_rmtree.remove(path)
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                safe_rmtree.remove(path)
            finally:
                os.close(lock)
