"""One side of a proxied connection: a socket with a buffer of bytes that were read ahead."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from policy.model.deadline import deadline

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import CredentialMask

CHUNK = 1 << 16  # bytes
_PARTING = deadline(0.5)  # seconds for the other side to close the connection after the last bytes


class Stream:
    """One side of a connection. `ahead`: bytes that were read and not used. Methods raise OSError and TimeoutError."""

    clear = True  # False if the bytes on the socket are encrypted
    cut = False  # True if the stream ended without a TLS close_notify: an attacker on the network may have cut it

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.ahead = sock, b""
        self.loop = asyncio.get_running_loop()

    async def more(self) -> bool:
        """Wait for data and append it to `ahead`. Return False at the end of the stream."""
        data = await self.loop.sock_recv(self.sock, CHUNK)
        # `sock_recv` does not yield if data is available: a command that never pauses would be the only one served.
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
        """Send `ahead` to `target`. `count` is called with the number of bytes before they are sent."""
        data, self.ahead = self.ahead, b""
        if data:
            count(len(data))
            await target.send(data)

    async def pour_into(
        self, target: "Stream", count: Callable[[int], None], mask: "CredentialMask | None" = None
    ) -> None:
        """Send all data to `target` until this side ends, through `mask`. The caller sets the time limit."""
        while data := await self.some(CHUNK):
            count(len(data))
            await target.send(mask.feed(data) if mask else data)
        if mask:
            await target.send(mask.end())

    async def abort(self) -> None:
        """Make `close` send a reset, so that the other side sees an error and no regular end (socket(7), SO_LINGER)."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def part(self) -> None:
        """End the stream such that the last bytes arrive although unread input remains (RFC 9112, 9.6)."""
        with contextlib.suppress(OSError, TimeoutError):
            self.sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_PARTING):
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
