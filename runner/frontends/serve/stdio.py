"""The protocol on standard input and output, one message on each line.

Standard output carries the protocol only: the descriptors 0 and 1 are moved away, so that nothing else of this program
and of its children can read or write them.

THREAT T199: a client may send endless lines, or never read. A message has a largest size, and while answers wait for
the client, no further message is read. A client that does not read for a long time is disconnected.
"""

import asyncio
import contextlib
import fcntl
import os
import queue
import select
import threading
from collections.abc import AsyncIterator, Iterator

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped

LONGEST_MESSAGE = 16 << 20  # bytes: a file of 5,000,000 characters as JSON, of which few are escaped
_PIECE = 1 << 16  # bytes of one read or write
_MOST_WAITING = 16  # answers that wait for the client before no further message is read
_PATIENCE = 60.0  # seconds in which the client must read something if an answer waits

_UNREAD = Problem(
    "the client does not read",
    f"an answer waited for {_PATIENCE:g} s, and none of it was read",
    "read the standard output of `agent mcp serve` all the time",
)

FromClient = MemoryObjectReceiveStream[SessionMessage | Exception]
ToClient = MemoryObjectSendStream[SessionMessage]


class WireLines:
    """Lines of bytes over two descriptors. One thread reads and one writes, so that no file blocks the event loop."""

    def __init__(self, source: int, sink: int, longest: int = LONGEST_MESSAGE) -> None:
        self._source, self._sink, self._longest = source, sink, longest
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
                    return Stopped(_UNREAD, Exit.FAILED)
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


@contextlib.asynccontextmanager
async def line_transport(wire: WireLines) -> AsyncIterator[tuple[FromClient, ToClient]]:
    """Yield the streams of messages for the protocol library. Raise what `WireLines.write` raises."""
    to_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    room = asyncio.Event()
    room.set()

    async def read() -> None:
        async with to_server:
            while (line := await wire.line()) is not None:
                if line.strip():
                    await _deliver(line, to_server, sent)
                while sent.statistics().tasks_waiting_send > _MOST_WAITING:
                    room.clear()
                    await room.wait()

    failures: list[Exception] = []

    async def write() -> None:
        async with from_server:
            async for message in from_server:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await wire.write(text.encode() + b"\n")
                except (OSError, Stopped) as error:
                    failures.append(error)
                    group.cancel_scope.cancel()
                    return
                room.set()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        yield received, sent
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def _deliver(line: bytes, to_server: MemoryObjectSendStream[SessionMessage | Exception], sent: ToClient) -> None:
    """Parse a line and give the message to the server. A line that is no message is answered with an error."""
    try:
        if len(line) > LONGEST_MESSAGE:
            raise ValueError(f"the message is longer than {LONGEST_MESSAGE >> 20} MiB")
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError) as error:
        long = len(line) > LONGEST_MESSAGE
        text = str(error) if long else "the line is not a message of JSON-RPC"
        code = types.INVALID_REQUEST if long else types.PARSE_ERROR
        refusal = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=text))
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await sent.send(SessionMessage(refusal))
        return
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await to_server.send(SessionMessage(message))
