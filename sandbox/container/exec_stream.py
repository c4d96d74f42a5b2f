"""The streams of one running command: the connection that the daemon hands over to a process, and its end.

Sources: Docker Engine API, "Attach to a container" (stream format, hijacking).
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from sandbox.backend import Listener, OutputBuffer, TerminalSize
from sandbox.container.daemon import DaemonRefused, unreachable
from sandbox.linux.input_stream import InputStream

if TYPE_CHECKING:
    from sandbox.workspace.autorun_watch import Live

_CHUNK = 1 << 16  # bytes


class Wire:
    """An attached stream of the daemon. Call `read` once, and `close` at the end. `raw`: the stream of a terminal.

    Attributes:
        copied: Bytes that were sent from a descriptor so far.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, raw: bool = False) -> None:
        self.copied = 0
        self._reader, self._writer, self._raw = reader, writer, raw

    async def feed(self, data: bytes | int) -> None:
        """Send `data`, or what a descriptor has as it arrives, and the end of input. An ended process is no error."""
        with contextlib.suppress(OSError):
            if isinstance(data, int):
                await self._stream(data)
            else:
                await self.send(data)
            self.end_input()

    async def send(self, data: bytes) -> None:
        """Send `data`, and wait while the daemon takes nothing. Raises OSError if the connection has ended."""
        for start in range(0, len(data), _CHUNK):
            self._writer.write(data[start : start + _CHUNK])
            await self._writer.drain()

    def post(self, data: bytes) -> None:
        """Send `data` without waiting. An ended connection is no error."""
        self._writer.write(data)

    def end_input(self) -> None:
        """Send the end of input. Raises OSError if the connection has ended."""
        self._writer.write_eof()

    async def _stream(self, handle: int) -> None:
        loop = asyncio.get_running_loop()
        source, target = os.pipe2(os.O_CLOEXEC)
        streaming = InputStream(handle, target)
        try:
            while True:
                readable = asyncio.Event()
                loop.add_reader(source, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(source)
                if not (chunk := os.read(source, _CHUNK)):
                    return
                await self.send(chunk)
                self.copied += len(chunk)
        finally:
            streaming.close()
            os.close(source)

    async def read(self, take: Callable[[int, bytes], bool]) -> None:
        """Pass every piece to `take` with its stream (1 or 2) until the end, or until `take` returns False."""
        try:
            while self._raw:
                piece = await self._reader.read(_CHUNK)
                if not piece or not take(1, piece):
                    return
            while True:
                head = await self._reader.readexactly(8)
                left = int.from_bytes(head[4:], "big")
                while left:
                    piece = await self._reader.read(min(left, _CHUNK))
                    if not piece:
                        return
                    left -= len(piece)
                    if not take(2 if head[0] == 2 else 1, piece):
                        return
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def close(self) -> None:
        self._writer.transport.abort()


async def open_wire(socket: str, path: str, body: dict[str, object] | None = None) -> Wire:
    """Send a POST to `path` and keep the connection. Raises DaemonRefused, or SandboxUnavailable.

    `body` is that of the start of a command; with `Tty` the stream is that of a terminal.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError as error:
        raise unreachable(socket, error) from None
    try:
        text = json.dumps(body) if body is not None else ""  # in ASCII: as many bytes as characters
        request = f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        request += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        writer.write(request.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        if status not in (101, 200):
            raise DaemonRefused(status, await _body(reader, head))
    except BaseException as error:
        writer.transport.abort()
        if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
            raise unreachable(socket, error) from None
        raise
    return Wire(reader, writer, raw=bool(body and body["Tty"]))


async def _body(reader: asyncio.StreamReader, head: str) -> str:
    """Return the text of a refusal: `{"message": ...}`."""
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n"))}
    text = await reader.read(min(int(fields.get("content-length", "4096")), _CHUNK))
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one command.

    Attributes:
        why: Name of the limit that ended the command, or None.
        failed: The daemon's error text if it could not start the command.
    """

    status: int
    out: bytes
    err: bytes
    why: str | None
    failed: str = ""


class Running(OutputBuffer):
    """The streams of one running command, with its output so far. The caller closes it.

    Attributes:
        terminal: The size of the command's terminal; None without a terminal.
        started: Set when the daemon has started the command, or reports on the stream that it could not.
        number: The daemon's identifier of the command; empty before its start.
        wire: The stream of the daemon; None before its start.
    """

    terminal: TerminalSize | None = None

    def __init__(self, most: int, listen: Listener | None, stdin: bytes | int | None = None) -> None:
        super().__init__(most, listen)
        self._stdin = stdin
        self.started = asyncio.Event()
        self.number = ""
        self.wire: Wire | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._handle = -1
        self._alarm: Live | None = None

    @property
    def given(self) -> bool:
        """Return True if the command has a standard input."""
        return self._stdin is not None and self._stdin != b""

    @property
    def done(self) -> bool:
        """Return True if the streams or the main process of the command have ended, or the alarm was raised."""
        return self._ended.is_set()

    def follow(self, wire: Wire) -> None:
        """Take the output from `wire`, and send the input to it."""
        self.wire = wire

        async def read() -> None:
            try:
                await wire.read(self.take)
            finally:
                self._ended.set()

        self._tasks = [asyncio.create_task(read())]
        if self._stdin is not None and self._stdin != b"":
            self._tasks.append(asyncio.create_task(wire.feed(self._stdin)))

    async def wait(self, seconds: float) -> None:
        """Wait until the command is done, at most `seconds`. Raises the error of the listener."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        self._check()

    async def settle(self, seconds: float) -> None:
        """Wait at most `seconds` for the end of the streams. Raises the error of the listener."""
        if self._tasks:
            await asyncio.wait(self._tasks[:1], timeout=seconds)
            self._check()

    def watch(self, pid: int) -> None:
        """Set `done` when process `pid` ends."""
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended.set()
        else:
            asyncio.get_running_loop().add_reader(self._handle, self._ended.set)

    def heed(self, alarm: "Live") -> None:
        """Set `done` when the alarm is raised."""
        alarm.begin()
        self._alarm = alarm
        alarm.attach(self._ended.is_set, self._ended.set)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.detach()
        if self._handle != -1:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
        for task in self._tasks:
            task.cancel()
        if self.wire is not None:
            self.wire.close()

    def _check(self) -> None:
        reading = self._tasks[0]
        if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
            raise error
