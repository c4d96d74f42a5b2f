"""Lines of bytes over two descriptors, for protocols that have standard input and output for themselves.

Standard output carries the protocol only: the descriptors 0 and 1 are moved away, so that nothing else of this program
and of its children can read or write them.

THREAT T199: a client may send endless lines, or never read. A line has a largest size, and a client that does not read
for a long time is disconnected.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import queue
import select
import threading
from collections.abc import Callable, Coroutine, Iterator
from importlib.util import find_spec
from typing import Any

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped
from runner.stderr import say_notice
from runner.text.sanitize import one_line

LONGEST_MESSAGE = 16 << 20  # bytes: a file of 5,000,000 characters as JSON, of which few are escaped
_PIECE = 1 << 16  # bytes of one read or write
_PATIENCE = 60.0  # seconds in which the client must read something if a line waits
_LONGEST_LOG = 500  # characters of one message of a protocol's library


def run_protocol(program: str, library: str, extra: str, serve: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `serve` until the client leaves or a signal arrives, and return the exit code.

    Raise Stopped if the `library` of the protocol, which the optional dependencies `extra` contain, is not installed.
    `program` is the command that serves.
    """
    if find_spec(library) is None:
        what, why = f"`{program}` cannot start", "the library of the protocol is not installed"
        raise Stopped(Problem(what, why, f"install `ringfence[{extra}]`"), Exit.FAILED)
    try:
        return asyncio.run(serve())
    except asyncio.CancelledError:  # by a signal
        return Exit.INTERRUPTED


class LibraryLog(logging.Handler):
    """The errors of a protocol's library as notices, one line each. They can contain parts of messages of the client.
    Nothing is shown if nobody reads standard error.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Show the notice."""
        if stderr_has_room():
            say_notice(one_line(f"the protocol library reports: {record.getMessage()}", _LONGEST_LOG))


def _unread(program: str) -> Problem:
    why = f"a message waited for {_PATIENCE:g} s, and none of it was read"
    return Problem("the client does not read", why, f"read the standard output of `{program}` all the time")


def stderr_has_room() -> bool:
    """Return False if a line on standard error would wait for a reader."""
    return bool(select.select((), (2,), (), 0)[1])


class WireLines:
    """Lines of bytes over two descriptors. One thread reads and one writes, so that no file blocks the event loop.

    `program` is the command that serves, for the error about a client that does not read.
    """

    def __init__(self, source: int, sink: int, longest: int = LONGEST_MESSAGE, *, program: str) -> None:
        self._source, self._sink, self._longest, self._program = source, sink, longest, program
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Semaphore(0)  # lines that the event loop asked for
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._given: queue.SimpleQueue[tuple[bytes, asyncio.Future[Exception | None]]] = queue.SimpleQueue()
        for work, name in ((self._read, "standard input"), (self._write, "standard output")):
            threading.Thread(target=work, name=name, daemon=True).start()

    async def line(self) -> bytes | None:
        """Return the next line without its newline, cut after the longest size + 1; None at the end of the input."""
        self._wanted.release()
        return await self._lines.get()

    async def write(self, line: bytes) -> None:
        """Write a whole line. Raise BrokenPipeError if the client is gone, and Stopped if it does not read."""
        done: asyncio.Future[Exception | None] = self._loop.create_future()
        self._given.put((line, done))
        if (error := await done) is not None:
            raise error

    def _write(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the session
            while True:
                line, done = self._given.get()
                self._loop.call_soon_threadsafe(_finish, done, self._written(line))

    def _written(self, line: bytes) -> Exception | None:
        rest = memoryview(line)
        poll = select.poll()
        poll.register(self._sink, select.POLLOUT)
        try:
            while rest:
                if not poll.poll(_PATIENCE * 1000):
                    return Stopped(_unread(self._program), Exit.FAILED)
                # A pipe that is ready takes at least 4096 bytes without blocking (pipe(7), PIPE_BUF).
                with contextlib.suppress(BlockingIOError):  # another process has made it non-blocking, and filled it
                    rest = rest[os.write(self._sink, rest[: select.PIPE_BUF]) :]
        except OSError as error:
            return error
        return None

    def _read(self) -> None:
        held = bytearray()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no line is needed
            while True:
                piece = self._piece()
                *whole, rest = piece.split(b"\n")
                for line in whole:
                    self._give(bytes(self._more(held, line)))
                    held.clear()
                self._more(held, rest)
                if not piece:
                    if held:
                        self._give(bytes(held))
                    self._give(None)
                    return

    def _more(self, held: bytearray, piece: bytes) -> bytearray:
        held += piece[: self._longest + 1 - len(held)]
        return held

    def _piece(self) -> bytes:
        try:
            return os.read(self._source, _PIECE)
        except OSError:  # the terminal is gone: the end of the input
            return b""

    def _give(self, line: bytes | None) -> None:
        self._wanted.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _finish(done: "asyncio.Future[Exception | None]", error: Exception | None) -> None:
    if not done.done():  # else its task was cancelled
        done.set_result(error)


@contextlib.contextmanager
def moved_streams() -> Iterator[tuple[int, int]]:
    """Move standard input and output away, and yield their new descriptors.

    Descriptor 0 then reads nothing, and descriptor 1 is standard error. At the end both are as before. The new
    descriptors stay open: a thread may still use them, and must not meet another file with the same number.
    """
    source, sink = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (0, 1))
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.dup2(null, 0)
        os.dup2(2, 1)
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.close(null)
