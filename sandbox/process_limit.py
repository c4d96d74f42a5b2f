"""The error for a process that the kernel did not start because too many run already."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class ProcessLimitReached(BlockingIOError):
    """The error for a process that was not started because of a limit on processes (EAGAIN of fork(2))."""


@contextmanager
def starting_process() -> Iterator[None]:
    """Raise `ProcessLimitReached` for an EAGAIN of the statement inside, which starts a process."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        raise ProcessLimitReached(error.errno, error.strerror) from error
