"""Locks for resources of the machine that one test takes whole, so that two workers or two checkouts wait for each other.

Nothing of a resource is reserved: only tests that take the same lock wait.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def alone_with(resource: str) -> Iterator[None]:
    """Wait until no other test of this machine holds the lock for a resource, such as `inotify`, and hold it."""
    path = f"/var/tmp/ringfence-test-{resource}.lock"
    with contextlib.suppress(FileExistsError):
        # Another user may lock the file as well: flock(2) needs no right to write.
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
