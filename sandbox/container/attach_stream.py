"""A connection that the daemon hands over to a process: its input one way, its two output streams the other.

Sources: Docker Engine API, "Attach to a container" (stream format, hijacking).
"""

import asyncio
import contextlib
import json
from collections.abc import Callable

from sandbox.container.daemon import Refused, unreachable

_CHUNK = 1 << 16


class Wire:
    """An attached stream of the daemon. Call `read` once, and `close` at the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def feed(self, data: bytes) -> None:
        """Give `data` and the end of input; a process that went away is no error."""
        with contextlib.suppress(OSError):
            for start in range(0, len(data), _CHUNK):
                self._writer.write(data[start : start + _CHUNK])
                await self._writer.drain()
            self._writer.write_eof()

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
    """Send a POST to `path` and keep the connection. Raises Refused, or SandboxUnavailable."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError as error:
        raise unreachable(socket, error) from None
    try:
        text = json.dumps(body).encode() if body is not None else b""
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        if status not in (101, 200):
            said = await _body(reader, head)
            raise Refused(status, said)
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
