"""One connection of a command to the proxy: the request, its judgement, and the transfer in both directions.

TLS of the client is passed on unopened, except for a host whose credential requests it (`intercept`).
"""

import asyncio
import time
from typing import TYPE_CHECKING

from policy.model.host_rule import HostRule, host_name
from sandbox.egress import client_hello, http1, socks
from sandbox.egress.dialer import Dialer, quoted_path
from sandbox.egress.http_exchange import IDLE, HttpExchange
from sandbox.egress.ledger import Attempt, EgressRefused, Failed, Malformed
from sandbox.egress.relay import relay
from sandbox.egress.stream import Stream, first

if TYPE_CHECKING:
    import ssl

    from sandbox.egress.credential_injection import Broker, InjectedHeader

HEAD = 30.0  # seconds for the bytes that must be read before data is passed on
_TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"
_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"  # a TLS alert: fatal, access_denied (RFC 8446, 6)


class ProxyConnection:
    """One connection of a command, from its first byte to its end."""

    def __init__(self, client: Stream, attempt: Attempt, dialer: Dialer, broker: "Broker | None" = None) -> None:
        self.client, self.attempt, self.dialer, self.broker = client, attempt, dialer, broker
        self.server: Stream | None = None
        self.exchange: HttpExchange | None = None  # of the last plain request

    def close(self) -> None:
        if self.server is not None:
            self.server.sock.close()
        self.attempt.end(None)

    async def run(self) -> None:
        """Serve the connection until it ends. Errors are recorded in the attempt; only a cancellation is raised."""
        try:
            async with asyncio.timeout(HEAD):
                if not self.client.ahead:
                    await self._must_more()
            if self.client.ahead[0] in (4, 5):
                await self._socks()
            else:
                await self._http(None)
        except EgressRefused as error:
            self.attempt.end(error)
        except TimeoutError:
            self.attempt.end(Failed("the command sent no complete request in time", host=self.attempt.host))
        except OSError:
            self.attempt.end(Failed("the connection was interrupted", host=self.attempt.host))
            await self.client.abort()
        except Exception as error:  # the seam of a connection: a defect refuses this connection and affects no other
            self.attempt.end(EgressRefused(f"the proxy failed: {type(error).__name__}", host=self.attempt.host))
            await self.client.abort()

    @property
    def connected(self) -> Stream:
        """Return the stream to the server, after a connection was made."""
        assert self.server is not None
        return self.server

    # ---- requests for a connection

    async def _socks(self) -> None:
        client = self.client
        try:
            async with asyncio.timeout(HEAD):
                while not (size := socks.greeting(client.ahead)):
                    await self._must_more()
                client.ahead = client.ahead[size:]
                await client.send(socks.GREETED)
                while not (parsed := socks.request(client.ahead))[0]:
                    await self._must_more()
            size, text, port = parsed
            client.ahead = client.ahead[size:]
            host = host_name(text)
            if host is None or not port:
                raise Malformed("the SOCKS request does not name a valid host and port")
            self._asks(host, port, "tunnel")
            await self._dial(host, port)
        except EgressRefused as error:
            self.attempt.end(error)
            await client.send(socks.answer(error))
            await client.part()
            return
        await client.send(socks.answer(None))
        await self._tunnel(host, port)

    async def _http(self, within: tuple[str, int] | None) -> None:
        """Serve one request: in the open, or the first one in a tunnel that is connected already."""
        client = self.client
        try:
            async with asyncio.timeout(HEAD):
                head = await client.until(http1.END, http1.LONGEST)
            if head is None:
                raise Malformed("the request is incomplete, or its headers are too long", 431)
            request = http1.request(head, within)
            if request.method != "CONNECT":
                await self._plain(request)
                return
            self._asks(request.host, request.port, "tunnel")
            if self._opened(request.host, request.port):
                await self._connect(self.dialer.naming(request.host, request.port), request.host, request.port)
            else:
                await self._dial(request.host, request.port)
        except EgressRefused as error:
            self.attempt.end(error)
            if self.exchange is not None and self.exchange.answered:  # it is too late for a page of the proxy
                await self.client.abort()
            else:
                await client.send(_page(error))
                await client.part()
            return
        await client.send(_TUNNEL)
        await self._tunnel(request.host, request.port)

    def _asks(self, host: str, port: int, asked: str) -> None:
        self.attempt.host, self.attempt.port, self.attempt.asked = host, port, asked

    async def _must_more(self) -> None:
        if not await self.client.more():
            raise Malformed("the connection was closed before a request was complete")

    async def _dial(self, host: str, port: int, method: str = "", path: str = "") -> bool:
        """Connect if a rule allows it. Return True if that rule is restricted to some requests."""
        rule = self.dialer.allowing(host, port, method, path)
        await self._connect(rule, host, port)
        return rule.bound

    async def _connect(self, rule: HostRule, host: str, port: int) -> None:
        sock, self.attempt.address = await self.dialer.connect(host, port, private=rule.private)
        self.server = Stream(sock)

    # ---- plain HTTP

    async def _plain(self, request: http1.HttpRequest) -> None:
        self._asks(request.host, request.port, f"{request.method} {quoted_path(request.bare)}")
        if self.server is None:
            bound = await self._dial(request.host, request.port, request.method, request.bare)
        else:
            bound = self.dialer.allowing(request.host, request.port, request.method, request.bare).bound
        for path in request.paths[1:]:
            bound |= self.dialer.allowing(request.host, request.port, request.method, path).bound
        if bound and (request.overridden or request.websocket):
            what = "the request is a websocket, or a header or parameter changes its method, host or path"
            raise EgressRefused(what, host=request.host)
        secure, added = await self._injected(request)
        server, attempt = self.connected, self.attempt
        head = http1.sent(request, 443 if secure else 80, (added.header, added.value) if added else None)
        attempt.sends(len(head))
        await server.send(head)
        self.exchange = HttpExchange(self.client, server, attempt, request, added, self.broker)
        moved = ("", "")
        if secure:  # the server's redirects begin with https://, but the client uses http://
            named = request.host if request.port == 443 else f"{request.host}:{request.port}"
            moved = (f"https://{named}/", f"http://{request.host}:{request.port}/")
        if await self.exchange.run(moved) == 101:
            await self._pass_on()
        await self.client.part()

    async def _injected(self, request: http1.HttpRequest) -> tuple[bool, "InjectedHeader | None"]:
        """Return True if the server is reached over TLS (the handshake is then done), and the header to add to the
        request.

        INVARIANT: each request is judged by itself, and a header is added only for the host and port of its credential.
        The certificate proves that this connection leads to that host.
        """
        host, port, broker = request.host, request.port, self.broker
        secure = broker is not None and broker.secure(host, port)
        if broker is None or not secure:
            if port == 443:
                raise EgressRefused(f"port 443 of host {host} is for TLS, but the request is plain HTTP", host=host)
            if broker is None:
                return False, None
        # A websocket, or a request that servers may read as a different request, gets no credential.
        odd = request.websocket or request.overridden
        asked = [] if odd else [await broker.asks(host, port, request.method, path) for path in request.paths]
        alike = len({each.credential if each else None for each in asked}) == 1
        added = asked[0] if alike else None
        if secure:
            from sandbox.egress.tls import to_server

            self.server = await to_server(self.connected, broker.trust(), host)
        if added is not None:
            self.attempt.credential = added.credential
        return secure, added

    # ---- tunnels

    async def _tunnel(self, host: str, port: int) -> None:
        """Judge the first bytes in a tunnel, then serve one HTTP request or pass on everything."""
        client, server = self.client, self.connected
        try:
            async with asyncio.timeout(HEAD):
                usual = port in (80, 443)
                if usual or await first(client, server) is client:
                    if not client.ahead:
                        await self._must_more()
                    kind = await self._first_words(host, port)
                else:
                    kind = "other"  # the server sends first: mail, SSH
                if kind == "other" and self._opened(host, port):
                    # A rule for some requests allows no tunnel, because the requests in it cannot be judged one by one.
                    self.dialer.allowing(host, port)
        except EgressRefused as error:
            self.attempt.end(EgressRefused(f"{error.what} (tunnel to host {host})", host=host, right=error.right))
            await client.send(_DENIED)
            await client.part()
            return
        if kind == "tls" and (context := self._opened(host, port)):
            from sandbox.egress.tls import to_client

            self.client = await to_client(client, context, host)
            kind = "http"
        if kind == "http":
            await self._http((host, port))
            return
        await self._pass_on()

    def _opened(self, host: str, port: int) -> "ssl.SSLContext | None":
        return self.broker.opens(host, port) if self.broker is not None else None

    async def _first_words(self, host: str, port: int) -> str:
        """Return the protocol of the client's first bytes: `tls`, `http` or `other`.

        Raises EgressRefused for a protocol that the port does not allow, or if TLS names another host.
        """
        client = self.client
        if client.ahead[0] == client_hello.HANDSHAKE:
            while not (parsed := client_hello.server_name(client.ahead))[0]:
                await self._must_more()
            _same(parsed[1], host)
            return "tls"
        if port == 443:
            raise EgressRefused("port 443 is for TLS, but the connection uses another protocol")
        while (like := http1.looks_like(client.ahead)) is None:
            await self._must_more()
        if port == 80 and not like:
            raise EgressRefused("port 80 is for HTTP, but the connection uses another protocol")
        return "http" if like else "other"

    async def _pass_on(self) -> None:
        client, server, attempt = self.client, self.connected, self.attempt
        if not (client.clear and server.clear):
            await self._pass_on_in_tls(client, server)
            return
        await client.flush_into(server, attempt.sends)
        await server.flush_into(client, attempt.receives)
        try:
            await relay(client.sock, server.sock, attempt.sends, attempt.receives, IDLE)
        except TimeoutError:
            attempt.end(Failed(f"no data was transferred for {IDLE:.0f} seconds", host=attempt.host))
        except OSError:  # one side has closed, so the other is closed too: most connections end like this
            await client.abort()
            await server.abort()

    async def _pass_on_in_tls(self, client: Stream, server: Stream) -> None:
        """Transfer in both directions until either side has ended the web socket that was opened inside TLS."""
        up = asyncio.create_task(client.pour_into(server, self.attempt.sends))
        down = asyncio.create_task(server.pour_into(client, self.attempt.receives))
        try:
            while not (up.done() or down.done()):
                await asyncio.wait((up, down), timeout=IDLE / 4, return_when=asyncio.FIRST_COMPLETED)
                if time.monotonic() - self.attempt.moved > IDLE:
                    raise Failed(f"no data was transferred for {IDLE:.0f} seconds", host=self.attempt.host)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)


def _same(name: str, host: str) -> None:
    """Raise EgressRefused unless the name in TLS is the host of the tunnel.

    THREAT T55: one address serves many hosts, and the name in TLS selects one.
    """
    named_host = host_name(name) or host_name(f"[{name}]")
    if name and named_host != host:
        description = named_host or "an invalid host"
        raise EgressRefused(f"the TLS ClientHello names {description}", host=host, right=named_host or "")
    if not name and not (host.startswith("[") or host.replace(".", "").isdigit()):
        raise EgressRefused("the TLS ClientHello names no host", host=host)


def _page(error: EgressRefused) -> bytes:
    """Return an answer that shows the reason in every client: in the status line and as the page."""
    text = "".join(char if " " <= char <= "~" else "?" for char in error.what)
    body = f"{text}\n{f'The user can allow `{error.right}`.' + chr(10) if error.right else ''}".encode()
    return (
        f"HTTP/1.1 {error.status} {text}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
