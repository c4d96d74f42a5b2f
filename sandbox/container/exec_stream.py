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
from sandbox.backend import Listener, OutputBuffer
from sandbox.container.daemon import DaemonRefused, unreachable
from sandbox.linux.input_stream import InputStream

if TYPE_CHECKING:
    from sandbox.workspace.autorun_watch import Live

_CHUNK = 1 << 16  # bytes


class Wire:
    """An attached stream of the daemon. Call `read` once, and `close` at the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def feed(self, data: bytes | int) -> None:
        """Send `data`, or what a descriptor has as it arrives, and the end of input. An ended process is no error."""
        with contextlib.suppress(OSError):
            if isinstance(data, int):
                await self._stream(data)
            else:
                for start in range(0, len(data), _CHUNK):
                    self._writer.write(data[start : start + _CHUNK])
                    await self._writer.drain()
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
                self._writer.write(chunk)
                await self._writer.drain()
        finally:
            streaming.close()
            os.close(source)

    async def read(self, take: Callable[[int, bytes], bool]) -> None:
        """Pass every piece to `take` with its stream (1 or 2) until the end, or until `take` returns False."""
        try:
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
    """Send a POST to `path` and keep the connection. Raises DaemonRefused, or SandboxUnavailable."""
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
    return Wire(reader, writer)


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
    """The output so far of one running command. The caller closes it."""

    def __init__(self, most: int, listen: Listener | None) -> None:
        super().__init__(most, listen)
        self._wire: Wire | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._handle = -1
        self._alarm: Live | None = None

    @property
    def done(self) -> bool:
        """Return True if the streams or the main process of the command have ended, or the alarm was raised."""
        return self._ended.is_set()

    def follow(self, wire: Wire, stdin: bytes | int | None) -> None:
        self._wire = wire

        async def read() -> None:
            try:
                await wire.read(self.take)
            finally:
                self._ended.set()

        self._tasks = [asyncio.create_task(read())]
        if stdin is not None and stdin != b"":
            self._tasks.append(asyncio.create_task(wire.feed(stdin)))

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
        if self._wire is not None:
            self._wire.close()

    def _check(self) -> None:
        reading = self._tasks[0]
        if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
            raise error
