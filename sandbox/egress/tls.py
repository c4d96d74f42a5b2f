"""A stream inside TLS, on either side of the proxy. It carries only HTTP/1.1."""

import asyncio
import contextlib
import ssl

from policy.model.deadline import deadline
from sandbox.egress.ledger import Failed
from sandbox.egress.stream import CHUNK, Stream

ALPN = ["http/1.1"]
_ABORT = deadline(1.0)  # seconds to send the record that breaks a session
HANDSHAKE = deadline(10.0)  # seconds
_BROKEN = b"\x15\x03\x03\x00\x02\x02\x50"  # an alert in the clear: fatal, internal_error (RFC 8446, 6)


class Secured(Stream):
    """A `stream` inside TLS. Call `handshake` first. Raises OSError, including ssl.SSLError."""

    clear = False

    def __init__(self, stream: Stream, context: ssl.SSLContext, host: str | None) -> None:
        """Wrap `stream`. `host` is the expected name in the certificate, without brackets; None on the server side."""
        super().__init__(stream.sock)
        self.inner, self.cut = stream, False
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._in.write(stream.ahead)
        stream.ahead = b""
        self._tls = context.wrap_bio(self._in, self._out, server_side=host is None, server_hostname=host)
        self._sending = asyncio.Lock()

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                await self._flush()
                return
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except ssl.SSLError:
                await self._flush()  # the alert with the reason
                raise

    async def more(self) -> bool:
        while True:
            try:
                data = self._tls.read(CHUNK)
                break
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                data = b""
                break
        await asyncio.sleep(0)
        self.ahead += data
        return bool(data)

    async def send(self, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            self._tls.write(data[at : at + CHUNK])
            await self._flush()

    async def part(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # the other side sent no close_notify; ours is written
            self._tls.unwrap()
        try:
            await self._flush()
        except OSError:
            return
        await self.inner.part()

    async def abort(self) -> None:
        # Some libraries (Python's `ssl`, measured with 3.11) take a reset for the end; a record that is no part of this
        # session is an error to all (RFC 8446, 5.2).
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_ABORT), self._sending:
                await self.loop.sock_sendall(self.sock, _BROKEN)
                return
        await self.inner.abort()

    async def _receive(self) -> None:
        data = await self.loop.sock_recv(self.sock, CHUNK)
        if data:
            self._in.write(data)
        else:
            self.cut = True  # after a close_notify the socket is not read again
            self._in.write_eof()

    async def _flush(self) -> None:
        # One task at a time: a body is sent while a response arrives, and records must be sent in their order.
        async with self._sending:
            while data := self._out.read():
                await self.loop.sock_sendall(self.sock, data)


async def to_server(stream: Stream, context: ssl.SSLContext, host: str) -> Stream:
    """Return TLS to the server of `host`, verified. Raises Failed if the handshake or the verification fails."""
    made = Secured(stream, context, host.strip("[]"))
    try:
        async with asyncio.timeout(HANDSHAKE):
            await made.handshake()
    except TimeoutError:
        raise Failed(f"the TLS handshake with host {host} was not complete in time", host=host, status=504) from None
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message.lower().rstrip(".")
        raise Failed(f"the certificate of host {host} is not valid ({why})", host=host) from None
    except ssl.SSLError as error:
        raise Failed(f"the TLS handshake with host {host} failed ({_reason(error)})", host=host) from None
    return made


async def to_client(stream: Stream, context: ssl.SSLContext, host: str) -> Stream:
    """Return TLS to a command for which the proxy acts as `host`. Raises Failed if the handshake fails, and
    TimeoutError after HANDSHAKE seconds.
    """
    made = Secured(stream, context, None)
    try:
        async with asyncio.timeout(HANDSHAKE):
            await made.handshake()
    except ssl.SSLError as error:
        what = f"the program rejected the session's certificate for host {host} ({_reason(error)})"
        raise Failed(what, host=host) from None
    return made


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "the connection was interrupted").replace("_", " ").lower()
