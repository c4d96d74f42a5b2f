"""A socket that is read ahead a little, under a time limit for the whole of each thing that is waited for."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import CredentialMask

CHUNK = 1 << 16


class Stream:
    """One side of a connection. `ahead`: what was read and not used. Raises OSError, TimeoutError."""

    clear = True  # what goes over the socket is what was sent
    cut = False  # it ended without the goodbye of TLS: anybody on the way could have ended it there

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.ahead = sock, b""
        self.loop = asyncio.get_running_loop()

    async def more(self) -> bool:
        """Read what is there, waiting for some. False at the end."""
        data = await self.loop.sock_recv(self.sock, CHUNK)
        # What is there already comes without waiting: a command that never pauses would be the only one served.
        await asyncio.sleep(0)
        self.ahead += data
        return bool(data)

    async def until(self, mark: bytes, most: int) -> bytes | None:
        """Return all bytes up to and including `mark`; None if the other side ends before, or has not sent it within
        `most` bytes.
        """
        seen = 0
        while (at := self.ahead.find(mark, max(0, seen - len(mark)))) < 0:
            seen = len(self.ahead)
            if seen > most or not await self.more():
                return None
        end = at + len(mark)
        if end > most:
            return None
        data, self.ahead = self.ahead[:end], self.ahead[end:]
        return data

    async def some(self, most: int) -> bytes:
        """Return up to `most` bytes; empty at the end."""
        if not self.ahead:
            await self.more()
        data, self.ahead = self.ahead[:most], self.ahead[most:]
        return data

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.sock, data)

    async def flush_into(self, target: "Stream", count: Callable[[int], None]) -> None:
        """Send on what was read ahead. `count` is called with the number of bytes before they are sent."""
        data, self.ahead = self.ahead, b""
        if data:
            count(len(data))
            await target.send(data)

    async def pour_into(
        self, target: "Stream", count: Callable[[int], None], mask: "CredentialMask | None" = None
    ) -> None:
        """Send on everything until this side ends, through `mask`. The caller sets the time limit."""
        while data := await self.some(CHUNK):
            count(len(data))
            await target.send(mask.feed(data) if mask else data)
        if mask:
            await target.send(mask.end())

    async def abort(self) -> None:
        """Let the end look like none: once it is closed, the other side gets a reset (socket(7), SO_LINGER)."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def part(self) -> None:
        """End politely: what was sent last still arrives, though the other side was not heard out (RFC 9112, 9.6)."""
        with contextlib.suppress(OSError, TimeoutError):
            self.sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(0.5):
                for _ in range(64):
                    if not await self.loop.sock_recv(self.sock, CHUNK):
                        return


async def first(*streams: Stream) -> Stream:
    """Return the stream that has something to read, or has ended, first. Nothing is read."""
    for stream in streams:
        if stream.ahead:
            return stream
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Stream] = loop.create_future()

    def ready(stream: Stream) -> None:
        if not done.done():
            done.set_result(stream)

    for stream in streams:
        loop.add_reader(stream.sock, ready, stream)
    try:
        return await done
    finally:
        for stream in streams:
            loop.remove_reader(stream.sock)
