"""The copy of a descriptor's data to the standard input of a command, as the data arrives.

THREAT T125: the descriptor itself is never handed to a command. A command could open it again for writing
(/proc/self/fd), and so put text into a pipe that another program of the user also reads, or move the offset of a file.
"""

import contextlib
import fcntl
import os
import select
import threading

_CHUNK = 1 << 20  # bytes
_PIPE = 1 << 20  # bytes that the pipe holds if the kernel permits it (fcntl(2), F_SETPIPE_SZ)


class InputStream:
    """A thread that copies from `source` until its end, until nothing reads the data any more, or until `close`.

    The caller keeps `source`, whose flags and offset are not changed other than by reading; a pipe may get more room.
    The write end `target` of a pipe belongs to this object.

    Attributes:
        copied: Bytes that were copied so far.
    """

    def __init__(self, source: int, target: int) -> None:
        self.copied = 0
        self._source, self._target = source, target
        os.set_blocking(target, False)
        for pipe in (source, target):  # fewer turns between the programs
            # The size is above the limit of this user, the source is no pipe, or the system has no such request.
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
        self._stop, self._stopping = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._copy, name="standard input", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop copying. Calling this again has no effect."""
        if self._stopping >= 0:
            os.close(self._stopping)
            self._stopping = -1
            self._thread.join()
            os.close(self._stop)

    def _copy(self) -> None:
        room = memoryview(bytearray(_CHUNK))
        try:
            while self._ready(self._source, select.POLLIN):
                try:
                    size = os.readv(self._source, [room])
                except BlockingIOError:
                    continue
                except OSError:  # EIO of a terminal that hung up
                    return
                if not size:
                    return
                rest = room[:size]
                while rest and self._ready(self._target, select.POLLOUT):
                    with contextlib.suppress(BlockingIOError):
                        written = os.write(self._target, rest)
                        self.copied += written
                        rest = rest[written:]
                if rest:
                    return
        except BrokenPipeError:
            return  # nothing reads the data any more
        finally:
            os.close(self._target)

    def _ready(self, handle: int, event: int) -> bool:
        """Wait for `event`, and return True; False if `close` was called or nothing reads the pipe any more."""
        poll = select.poll()
        poll.register(self._stop, 0)  # POLLHUP is always reported (poll(2))
        poll.register(self._target, event if handle == self._target else 0)
        if handle != self._target:
            poll.register(handle, event)
        ready = dict(poll.poll())
        return self._stop not in ready and not ready.get(self._target, 0) & select.POLLERR
