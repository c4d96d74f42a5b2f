"""An HTTP client whose every connection is made by the dialer of the egress proxy, with bounds for what a server sends.

INVARIANT: no library resolves a name or opens a connection here. `Dialer` resolves the name once, checks each address,
and connects to exactly that address. Proxies of the environment are not used, redirects are not followed, and
compressed answers are refused, because a small compressed answer can expand to any size. A caller that unpacks gzip
itself, with a limit, may ask for it.

This module imports `httpx2`, which is slow to import. Import it only while a remote server is used.
"""

import ipaddress
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import field

import anyio
import anyio.abc
import httpcore2
import httpx2

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.host_rule import HostRule, host_name, host_rule
from policy.model.verdict import Problem
from runner.text.gunzip import layer_of
from sandbox.backend import DIRECT, NetworkOptions
from sandbox.egress.dialer import Dialer, Resolve, resolve
from sandbox.egress.ledger import EgressRefused

MESSAGE = 32 << 20  # bytes of one message of a server
SMALL = 1 << 20  # bytes of one answer of a sign-in server, and of the text of an error
_BURST = 64 << 20  # bytes that one answer may have at once, in addition to `_STEADY`
_STEADY = 1 << 20  # bytes that are added to the budget of one answer each second
_LINE = 1024  # bytes that one line of an event stream counts in addition to its length
_CONNECT, _WRITE = deadline(10.0), 60.0  # seconds
_CLOSE = deadline(5.0)  # seconds for the request that ends a session at the server
_LOOPBACK_NAMES = ("localhost", "ip6-localhost")
EVENTS = "text/event-stream"


class RemoteRefused(httpx2.TransportError):
    """The error for a request that is not allowed, or whose answer is not acceptable. `problem` tells the user why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.what}: {problem.why}; {problem.fix}")
        self.problem = problem


class BrokenAnswer(httpx2.SSEError, httpx2.StreamError):
    """The error for an answer that exceeds a bound while it is read. It ends one call and not the connection."""

    def __init__(self, problem: Problem) -> None:
        httpx2.SSEError.__init__(self, f"{problem.what} ({problem.why})")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """The bounds of the answers of one server.

    Attributes:
        message: The most bytes of one message.
        burst: The most bytes of one answer at once. One line of an event stream counts as 1,024 more bytes.
        steady: The bytes that one answer may have each second in addition to `burst`.
        idle: The longest time in seconds until an answer is complete. Each event of a stream starts the time anew.
        longest: The longest time in seconds of one answer in total.
        packed: True if an answer may be packed with gzip. The caller reads it with `aiter_raw`, and unpacks it with a
            limit.
    """

    message: int = MESSAGE
    burst: int = _BURST
    steady: int = _STEADY
    idle: float = 60.0
    longest: float = 600.0
    packed: bool = False


SIGN_IN = AnswerBounds(message=SMALL, burst=SMALL, idle=30.0, longest=30.0)


@dataclass(frozen=True, slots=True)
class RemoteHosts:
    """The hosts to which one client may connect.

    Attributes:
        only: The one host and port that may be reached, or None for every public host.
        rules: Host rules of the configuration. A rule with `private` also allows addresses of private networks.
        plain: True if hosts may be reached without encryption.
        opening: The words with which an error names the way to allow a host; `{right}` is replaced by the host rule.
    """

    only: tuple[str, int] | None = None
    rules: tuple[HostRule, ...] = field(default=())
    plain: bool = False
    opening: str = "add `{right}` to `hosts` of the server in your own configuration"

    def private(self, host: str, port: int) -> bool:
        """Return True if a rule allows that this host is this machine or in a private network."""
        return any(rule.private and not rule.bound and rule.names(host, port) for rule in self.rules)


def parsed_rules(texts: Iterable[str]) -> tuple[HostRule, ...]:
    """Return the host rules that `texts` state. Raises ValueError for an invalid one."""
    rules = tuple(map(host_rule, texts))
    for rule in rules:
        if isinstance(rule, Problem):
            raise ValueError(str(rule))
    return tuple(rule for rule in rules if isinstance(rule, HostRule))


def authority_of(url: httpx2.URL) -> tuple[str, int]:
    """Return the host of `url` in the form of `host_name`, and the port. Raises RemoteRefused for another form."""
    text = f"[{url.host}]" if ":" in url.host else url.raw_host.decode("ascii", "replace")
    host = host_name(text)
    if host is None or url.scheme not in ("http", "https"):
        problem = Problem(
            f"`{shown(url)}` is not an address that can be used",
            "its host is not written in the usual form, or it is neither https nor http",
            "write it like `https://mcp.example.org/mcp`",
        )
        raise RemoteRefused(problem)
    return host, url.port or (443 if url.scheme == "https" else 80)


def origin_of(url: httpx2.URL) -> tuple[str, str, int]:
    """Return the scheme, the host and the port of `url`. Raises RemoteRefused as `authority_of` does."""
    return (url.scheme, *authority_of(url))


def shown(url: httpx2.URL) -> str:
    """Return `url` without user name, password, query and fragment, which may be secrets."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


class PinnedTransport(httpx2.AsyncBaseTransport):
    """The transport of one client.

    `context` replaces the verification by the system's store, and `resolver` the resolution of names, in tests.
    """

    def __init__(
        self,
        hosts: RemoteHosts,
        network: NetworkOptions = DIRECT,
        *,
        bounds: AnswerBounds | None = None,
        context: ssl.SSLContext | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self.hosts, self.bounds = hosts, bounds or AnswerBounds()
        if context is None:
            # The same context as for the servers behind the proxy of the sandbox, which names HTTP/1.1.
            context = ssl.create_default_context()
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.reached: list[tuple[str, int, str]] = []  # host, port and address of each connection
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=32,
            max_keepalive_connections=4,
            keepalive_expiry=30.0,
            http1=True,
            http2=False,
            retries=0,
            network_backend=_PinnedBackend(hosts, Dialer((), resolver, network), self.reached),
        )

    def check(self, url: httpx2.URL) -> None:
        """Raise RemoteRefused unless a request to `url` is allowed. The address of its host is checked later."""
        host, port = authority_of(url)
        if url.userinfo:
            problem = Problem(
                f"`{shown(url)}` contains a user name or a password",
                "text of an address is shown and recorded",
                "use `headers`, or sign in",
            )
            raise RemoteRefused(problem)
        if self.hosts.only is not None and (host, port) != self.hosts.only:
            named = f"{self.hosts.only[0]}:{self.hosts.only[1]}"
            problem = Problem(
                f"`{shown(url)}` is not on the configured host",
                f"this connection is for {named} only",
                "correct `url` in the configuration if the other host is meant",
            )
            raise RemoteRefused(problem)
        if (
            url.scheme == "http"
            and not self.hosts.plain
            and not (_is_loopback(host) and self.hosts.private(host, port))
        ):
            problem = Problem(
                f"`{shown(url)}` is not encrypted",
                "http is used only for this machine, and only if `hosts` has an entry with `private` for it",
                f"use https, or add `{host}:{port} private` to `hosts` of the server if it runs on this machine",
            )
            raise RemoteRefused(problem)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request` and return the answer, whose stream keeps the bounds. Raises RemoteRefused."""
        self.check(request.url)
        request.headers["Accept-Encoding"] = "gzip" if self.bounds.packed else "identity"
        # A standing stream waits for events of the server without a limit of time.
        standing = request.method == "GET" or "ringfence_standing" in request.extensions
        begun = time.monotonic()
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions={"timeout": {"connect": _CONNECT, "pool": _WRITE, "write": _WRITE, "read": None}},
        )
        seconds = min(self.bounds.idle, _CLOSE) if request.method == "DELETE" else self.bounds.idle
        try:
            with anyio.fail_after(seconds):
                answer = await self._pool.handle_async_request(sent)
        except Exception as error:
            raise _translated(error, request.url, seconds, self.hosts.opening) from None
        headers = httpx2.Headers(answer.headers)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        stream = _BoundedStream(answer, self.bounds, begun, kind == EVENTS, standing and kind == EVENTS)
        packed = layer_of(headers.get_list("content-encoding"))
        if packed is None or (packed and not self.bounds.packed):
            await stream.aclose()
            what = f"{shown(request.url)} sends a compressed answer"
            raise RemoteRefused(Problem(what, "the request excludes it, and it can expand to any size", _SERVER))
        return httpx2.Response(answer.status, headers=headers, stream=stream, request=request)

    async def aclose(self) -> None:
        await self._pool.aclose()


_SERVER = "report this to the operator of the server"


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of one answer. Reading it raises BrokenAnswer as soon as it exceeds a bound."""

    def __init__(
        self, answer: httpcore2.Response, bounds: AnswerBounds, begun: float, events: bool, standing: bool
    ) -> None:
        self._answer, self._bounds, self._events, self._standing = answer, bounds, events, standing
        self._begun = begun
        self._last = begun + bounds.longest
        self._deadline = begun + bounds.idle
        self._counted = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = aiter(self._answer.aiter_stream())
        while True:
            left = None if self._standing else max(0.0, min(self._deadline, self._last) - time.monotonic())
            try:
                with anyio.fail_after(left):
                    part = await anext(parts)
            except StopAsyncIteration:
                return
            except TimeoutError:
                seconds = time.monotonic() - self._begun
                why = f"the limit was reached after {seconds:.0f} seconds"
                raise BrokenAnswer(Problem("the server did not complete its answer in time", why, _SERVER)) from None
            except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
                why = str(error) or "the connection was closed"
                raise BrokenAnswer(Problem("the connection to the server broke", why, "try again")) from None
            self._count(part)
            yield part

    def _count(self, part: bytes) -> None:
        self._counted += len(part)
        if not self._events:
            if self._counted > self._bounds.message:
                raise self._large(f"an answer has more than {_size(self._bounds.message)}")
            return
        self._counted += _LINE * part.count(b"\n")
        if self._counted > self._bounds.burst + self._bounds.steady * (time.monotonic() - self._begun):
            raise self._large("it sends events faster than they can be useful")
        if b"data:" in part:
            self._deadline = time.monotonic() + self._bounds.idle
            if b"elicitation/create" in part:  # the user is asked, and thinks
                self._deadline = self._last

    def _large(self, why: str) -> BrokenAnswer:
        return BrokenAnswer(Problem("the server sends too much", why, _SERVER))

    async def aclose(self) -> None:
        await self._answer.aclose()


class _PinnedBackend(httpcore2.AsyncNetworkBackend):
    """The connections of one client. `Dialer` resolves, checks and connects."""

    def __init__(self, hosts: RemoteHosts, dialer: Dialer, reached: list[tuple[str, int, str]]) -> None:
        self._hosts, self._dialer, self._reached = hosts, dialer, reached

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of the library
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        name = host_name(f"[{host}]" if ":" in host else host)
        if name is None or (self._hosts.only is not None and (name, port) != self._hosts.only):
            raise EgressRefused(f"host {host} is not the configured host", host=host)
        made, address = await self._dialer.connect(name, port, private=self._hosts.private(name, port))
        self._reached.append((name, port, address))
        try:
            if _is_loopback(name) and not ipaddress.ip_address(address).is_loopback:
                raise EgressRefused(f"host {name} leads to {address}, which is not this machine", host=name)
            return _PinnedStream(await anyio.abc.SocketStream.from_socket(made))
        except BaseException:
            made.close()
            raise

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of the library
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise EgressRefused("a remote server is not reached by a socket file")

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class _PinnedStream(httpcore2.AsyncNetworkStream):
    """One connection, in the clear or inside TLS."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # the library's signature
        try:
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError:
            raise httpcore2.ReadTimeout("no answer in time") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
            raise httpcore2.ReadError("the connection was closed") from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the library's signature
        if not buffer:
            return
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError:
            raise httpcore2.WriteTimeout("the server does not read") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
            raise httpcore2.WriteError("the connection was closed") from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of the library
    ) -> httpcore2.AsyncNetworkStream:
        from anyio.streams.tls import TLSStream

        try:
            with anyio.fail_after(timeout):
                # `standard_compatible=False`: many servers close without the alert that TLS asks for. HTTP has lengths.
                wrapped = await TLSStream.wrap(
                    self._stream,
                    hostname=(server_hostname or "").strip("[]"),
                    ssl_context=ssl_context,
                    standard_compatible=False,
                    server_side=False,
                )
        except BaseException:
            await anyio.aclose_forcefully(self._stream)
            raise
        return _PinnedStream(wrapped)

    def get_extra_info(self, info: str) -> object:
        from anyio.streams.tls import TLSAttribute

        if info == "ssl_object":
            return self._stream.extra(TLSAttribute.ssl_object, None)  # noqa: S610  # an attribute of the connection
        if info == "is_readable":  # an idle connection that is readable was closed by the server
            import select

            raw = self._stream.extra(anyio.abc.SocketAttribute.raw_socket, None)  # noqa: S610  # the same
            if raw is None or raw.fileno() < 0:
                return True
            poll = select.poll()
            poll.register(raw.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        return None


def _translated(error: Exception, url: httpx2.URL, seconds: float, opening: str) -> Exception:
    """Return the error to raise for an error of a connection. Other errors are defects, and are returned unchanged."""
    host = url.host
    match error:
        case EgressRefused():
            fix = error.fix
            if error.right:
                fix = f"if this is meant, {opening.replace('{right}', error.right)}"
            return RemoteRefused(Problem(f"{shown(url)} cannot be used", error.what, fix))
        case ssl.SSLCertVerificationError():
            why = error.verify_message.lower().rstrip(".")
            return RemoteRefused(Problem(f"the certificate of host {host} is not valid", why, _SERVER))
        case ssl.SSLError():
            why = (error.reason or "the connection was interrupted").replace("_", " ").lower()
            return RemoteRefused(Problem(f"the TLS handshake with host {host} failed", why, _SERVER))
        case TimeoutError():
            why = f"no answer came within {seconds:g} seconds"
            return RemoteRefused(Problem(f"host {host} does not answer", why, "try again, or raise `timeout`"))
        case (
            OSError()
            | httpcore2.NetworkError()
            | httpcore2.TimeoutException()
            | anyio.BrokenResourceError()
            | anyio.EndOfStream()
        ):
            why = str(error) or "the connection was closed"
            return RemoteRefused(Problem(f"the connection to host {host} broke", why, "try again"))
        case httpcore2.ProtocolError():
            return RemoteRefused(Problem(f"the answer of host {host} is not valid HTTP", str(error), _SERVER))
        case httpcore2.UnsupportedProtocol():
            return RemoteRefused(Problem(f"`{shown(url)}` cannot be used", str(error), "use https"))
    return error


def _is_loopback(host: str) -> bool:
    """Return True for names and literal addresses of this machine."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


async def whole(response: httpx2.Response) -> bytes:
    """Return the complete text of an answer. If it exceeds a bound, close its connection and raise BrokenAnswer."""
    try:
        return await response.aread()
    except BaseException:
        await response.aclose()
        raise


def error_answer(request: httpx2.Request, text: str) -> httpx2.Response:
    """Return an answer that reports `text` as the error of one request of the protocol (JSON-RPC)."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": text}}
    headers = {"content-type": "application/json"}
    return httpx2.Response(502, headers=headers, content=json.dumps(body).encode(), request=request)
