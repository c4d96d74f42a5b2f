"""The folder in which a batch keeps its copies: removed at the end, and swept up later when its owner was killed."""

import contextlib
import fcntl
import os
import stat
import tempfile
import time

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped
from sandbox.inside import safe_rmtree

_PREFIX = "ringfence-batch-"
_YOUNG = 60.0  # seconds in which a folder may be without its lock, since its owner is just making it


class CopiesFolder:
    """A private folder in `where`, held by a lock.

    Processes that work in the folder inherit `handle`: other batches leave the folder alone until the last of them has
    ended.
    """

    def __init__(self, where: str) -> None:
        sweep(where)
        try:
            while True:
                self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=where)  # mode 0700
                self.handle = os.open(f"{self.path}/lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with contextlib.suppress(BlockingIOError):  # who has it is sweeping it up
                    fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.path.exists(f"{self.path}/lock"):
                        return
                os.close(self.handle)  # another process removed it between the two calls
        except OSError as error:
            why = (error.strerror or "the system refused it").lower()
            fix = "name another folder with --copies"
            raise Stopped(Problem(f"no copy can be made in `{where}`", why, fix), Exit.FAILED) from None

    def remove(self) -> None:
        """Remove the folder with all copies in it, whatever their permissions."""
        safe_rmtree.remove(self.path)
        os.close(self.handle)
        sweep(os.path.dirname(self.path))  # what one that was killed held a moment too long, when we began


def sweep(where: str) -> None:
    """Remove the folders that a killed batch left in `where`, except those that a process still works in."""
    try:
        names = [name for name in os.listdir(where) if name.startswith(_PREFIX)]
    except OSError:
        return  # making our own there will say why
    for name in names:
        path = f"{where}/{name}"
        with contextlib.suppress(OSError):  # another process is at it, or it is none of ours
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
