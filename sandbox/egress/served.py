"""One connection of a command: how it asks, whether that is allowed, and the bytes that are passed on.

TLS is the client's own, and never opened.
"""

import asyncio
import time

from policy.host_rule import host_name
from sandbox.egress import hello, http, socks
from sandbox.egress.dial import Dialer, shown
from sandbox.egress.record import Attempt
from sandbox.egress.refused import Failed, Malformed, Refused
from sandbox.egress.relay import pour, relay
from sandbox.egress.stream import Stream, first

HEAD = 30.0  # seconds for everything that must be read before bytes are passed on
IDLE = 300.0  # seconds in which nothing moves
_TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"
_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"  # a TLS alert: fatal, access_denied (RFC 8446, 6)


class Served:
    """One connection of a command, from its first byte to its end."""

    def __init__(self, client: Stream, attempt: Attempt, dialer: Dialer) -> None:
        self.client, self.attempt, self.dialer = client, attempt, dialer
        self.server: Stream | None = None
        self.answered = False  # by the server: then it is too late for a page of ours

    def close(self) -> None:
        if self.server is not None:
            self.server.sock.close()
        self.attempt.end(None)

    async def run(self) -> None:
        """Never raises but for a cancel: what went wrong is in the attempt, and told to the client."""
        try:
            async with asyncio.timeout(HEAD):
                if not (self.client.ahead or await self.client.more()):
                    raise Malformed("the connection was closed before it asked for anything")
            if self.client.ahead[0] in (4, 5):
                await self._socks()
            else:
                await self._http(None)
        except Refused as error:
            self.attempt.end(error)
        except TimeoutError:
            self.attempt.end(Failed("the connection did not say what it wants in time", host=self.attempt.host))
        except OSError:
            self.attempt.end(Failed("the connection broke off", host=self.attempt.host))
        except Exception as error:  # the seam of a connection: a defect of ours ends it, refused, and nothing else
            self.attempt.end(Refused(f"the proxy failed ({type(error).__name__})", host=self.attempt.host))

    # ---- how they ask

    async def _socks(self) -> None:
        client = self.client
        try:
            async with asyncio.timeout(HEAD):
                while not (size := socks.greeting(client.ahead)):
                    await self._must_more()
                client.ahead = client.ahead[size:]
                await client.send(socks.GREETED)
                while not (found := socks.request(client.ahead))[0]:
                    await self._must_more()
            size, text, port = found
            client.ahead = client.ahead[size:]
            host = host_name(text)
            if host is None or not port:
                raise Malformed("the SOCKS request does not name a host and port that can be told for certain")
            self._asks(host, port, "tunnel")
            await self._dial(host, port)
        except Refused as error:
            self.attempt.end(error)
            await client.send(socks.answer(error))
            await client.part()
            return
        await client.send(socks.answer(None))
        await self._tunnel(host, port)

    async def _http(self, within: tuple[str, int] | None) -> None:
        """One request: in the open, or first in a tunnel that is connected already."""
        client = self.client
        try:
            async with asyncio.timeout(HEAD):
                head = await client.until(http.END, http.LONGEST)
            if head is None:
                raise Malformed("the request is not whole, or its head is too long", 431)
            request = http.request(head, within)
            if request.method != "CONNECT":
                await self._plain(request)
                return
            self._asks(request.host, request.port, "tunnel")
            await self._dial(request.host, request.port)
        except Refused as error:
            self.attempt.end(error)
            if not self.answered:
                await client.send(_page(error))
                await client.part()
            return
        await client.send(_TUNNEL)
        await self._tunnel(request.host, request.port)

    def _asks(self, host: str, port: int, asked: str) -> None:
        self.attempt.host, self.attempt.port, self.attempt.asked = host, port, asked

    async def _must_more(self) -> None:
        if not await self.client.more():
            raise Malformed("the connection was closed before it asked for anything")

    async def _dial(self, host: str, port: int, method: str = "", path: str = "") -> bool:
        """Connect, when some rule allows it. Whether that rule is bound to some requests."""
        rule = self.dialer.allowing(host, port, method, path)
        sock, self.attempt.address = await self.dialer.connect(host, port, private=rule.private)
        self.server = Stream(sock)
        return rule.bound

    # ---- plain HTTP

    async def _plain(self, request: http.Request) -> None:
        self._asks(request.host, request.port, f"{request.method} {shown(request.bare)}")
        if self.server is None:
            bound = await self._dial(request.host, request.port, request.method, request.bare)
        else:
            bound = self.dialer.allowing(request.host, request.port, request.method, request.bare).bound
        assert self.server is not None
        if bound and (request.overridden or request.websocket):
            raise Refused("the request says that it is another one than it looks like", host=request.host)
        server, attempt = self.server, self.attempt
        head = http.sent(request)
        attempt.sends(len(head))
        await server.send(head)
        body, answer = asyncio.create_task(self._body(request)), asyncio.create_task(self._answer(request))
        try:
            await self._both(body, answer)
        finally:
            body.cancel()
            answer.cancel()
            await asyncio.gather(body, answer, return_exceptions=True)
        if request.websocket and answer.result() == 101:
            await self._pass_on()
        await self.client.part()

    async def _both(self, body: "asyncio.Task[None]", answer: "asyncio.Task[int]") -> None:
        """Until the answer is over. A server may answer before it has the body, and need not take all of it."""
        waiting: set[asyncio.Task[None] | asyncio.Task[int]] = {body, answer}
        while answer in waiting:
            done, waiting = await asyncio.wait(waiting, timeout=IDLE / 4, return_when=asyncio.FIRST_COMPLETED)
            if body in done and isinstance(fault := body.exception(), Refused):
                raise fault
            if not done and time.monotonic() - self.attempt.moved > IDLE:
                raise Failed(f"nothing moved for {IDLE:.0f} seconds", host=self.attempt.host)
        answer.result()

    async def _body(self, request: http.Request) -> None:
        """Pass on exactly the body of this request, and read no further: what follows was not judged."""
        if request.length >= 0:
            await self._exactly(request.length)
            return
        client, server = self.client, self.server
        assert server is not None
        while True:
            await asyncio.sleep(0)  # thousands of chunks may be there at once
            line = await client.until(b"\n", 4096)
            size = http.chunk_size(line or b"")
            await server.send(b"%x\r\n" % size)
            if not size:
                break
            await self._exactly(size)
            if await client.until(b"\r\n", 2) is None:
                raise Malformed("a chunk is longer than it says")
            await server.send(b"\r\n")
        # Trailers are not passed on.
        for _ in range(http.MOST_FIELDS):
            if (line := await client.until(b"\n", http.LONGEST)) == b"\r\n":
                await server.send(b"\r\n")
                return
            if line is None:
                break
        raise Malformed("the end of a request cannot be read")

    async def _exactly(self, size: int) -> None:
        assert self.server is not None
        while size:
            data = await self.client.some(size)
            if not data:
                raise Malformed("the connection was closed inside of a request")
            self.attempt.sends(len(data))
            await self.server.send(data)
            size -= len(data)

    async def _answer(self, request: http.Request) -> int:
        """Pass the answer on, provisional heads first, until the server ends it. Its status."""
        server = self.server
        assert server is not None
        while True:
            head = await server.until(http.END, http.LONGEST)
            if head is None:
                raise Failed(f"host {self.attempt.host} ended without an answer", host=self.attempt.host)
            status, told = http.response(head)
            if status == 101 and not request.websocket:
                raise Failed(f"host {self.attempt.host} changes to a protocol that nobody asked for")
            self.attempt.receives(len(told))
            self.answered = True
            await self.client.send(told)
            if status == 101:
                return status
            if status >= 200:
                await self._flush(server, self.client)
                await pour(server.sock, self.client.sock, self.attempt.receives, IDLE)
                return status

    # ---- tunnels

    async def _tunnel(self, host: str, port: int) -> None:
        """Look at what is said first in a tunnel; then pass on whatever comes."""
        client, server = self.client, self.server
        assert server is not None
        try:
            async with asyncio.timeout(HEAD):
                usual = port in (80, 443)
                if usual or await first(client, server) is client:
                    if not client.ahead:
                        await self._must_more()
                    kind = await self._first_words(host, port)
                else:
                    kind = "other"  # the server speaks first: mail, SSH
        except Refused as error:
            self.attempt.end(_about(error, host))
            await client.send(_DENIED)
            await client.part()
            return
        if kind == "http":
            await self._http((host, port))
            return
        await self._pass_on()

    async def _first_words(self, host: str, port: int) -> str:
        """`tls`, `http` or `other`. Raises Refused for what this port is not for, or what is meant for another host."""
        client = self.client
        if client.ahead[0] == hello.HANDSHAKE:
            while not (found := hello.server_name(client.ahead))[0]:
                await self._must_more()
            _same(found[1], host)
            return "tls"
        if port == 443:
            raise Refused("port 443 is for TLS, and this is something else")
        while (like := http.looks_like(client.ahead)) is None:
            await self._must_more()
        if port == 80 and not like:
            raise Refused("port 80 is for HTTP, and this is something else")
        return "http" if like else "other"

    async def _pass_on(self) -> None:
        client, server, attempt = self.client, self.server, self.attempt
        assert server is not None
        await self._flush(client, server)
        await self._flush(server, client)
        try:
            await relay(client.sock, server.sock, attempt.sends, attempt.receives, IDLE)
        except TimeoutError:
            attempt.end(Failed(f"nothing moved for {IDLE:.0f} seconds", host=attempt.host))
        except OSError:
            return  # one side is gone, and the other ends with it: how most connections end

    async def _flush(self, source: Stream, target: Stream) -> None:
        """What was read ahead goes first."""
        data, source.ahead = source.ahead, b""
        if data:
            (self.attempt.sends if target is self.server else self.attempt.receives)(len(data))
            await target.send(data)


def _same(name: str, host: str) -> None:
    """THREAT T55: behind one address lie many hosts, and the name in TLS chooses."""
    found = host_name(name) or host_name(f"[{name}]")
    if name and found != host:
        said = found or "something that is no name"
        raise Refused(f"TLS is for {said}, and the tunnel was opened", host=host, right=found or "")
    if not name and not (host.startswith("[") or host.replace(".", "").isdigit()):
        raise Refused("TLS names no host, and the tunnel was opened", host=host)


def _about(error: Refused, host: str) -> Refused:
    return Refused(f"{error.what} for host {host}", host=host, right=error.right)


def _page(error: Refused) -> bytes:
    """The reason where every client shows it: in the status line and as the page."""
    text = "".join(char if " " <= char <= "~" else "?" for char in error.what)
    body = f"{text}\n{f'A person could allow `{error.right}`.' + chr(10) if error.right else ''}".encode()
    return (
        f"HTTP/1.1 {error.status} {text}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
