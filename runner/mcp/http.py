"""The transport of one remote tool server: streamable HTTP, or HTTP+SSE for servers of before 2025-03.

`open_remote` returns a transport for the client of the protocol library. Headers of the configuration and tokens go to
the origin of `url` and nowhere else. An answer of another origin, for another request, or beyond a bound is an error of
one call and does not end the connection.

This module imports the protocol library, which is slow to import. Import it only while a remote server is used.
"""

import contextlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import httpx2

from policy.model.frozen import dataclass
from policy.model.host_rule import HostRule
from policy.model.profile import Layer
from policy.model.verdict import Problem, ProblemError
from runner.mcp.old_sse import OldServer
from runner.mcp.server_config import ServerConfig
from runner.secrets.secret import Secret
from runner.web.pinned_http import (
    EVENTS,
    MESSAGE,
    SIGN_IN,
    AnswerBounds,
    BrokenAnswer,
    PinnedTransport,
    RemoteHosts,
    RemoteRefused,
    authority_of,
    error_answer,
    origin_of,
    parsed_rules,
    shown,
    whole,
)
from sandbox.backend import DIRECT, NetworkOptions
from sandbox.egress.dialer import Resolve, resolve

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 3
_MOST_RENEWALS = 2  # one for a refused token, and one for missing scopes
_STREAMS = 20  # streams of events that the client opens at once by GET, after which one more each second is allowed
_OLD = (400, 404, 405)  # answers of an old server to a POST (specification 2025-11-25, "Backwards Compatibility")
# Headers that the connection or the protocol sets. A configuration that replaces one changes what is sent to whom.
_OWN_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect", "content-type")
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """The refusal of a token by a server.

    Attributes:
        status: 401 for a missing or refused token, or 403 for missing scopes.
        header: The header `WWW-Authenticate`; empty if there is none.
        scope: The scopes that the server asks for; empty if it names none.
    """

    status: int
    header: str = ""
    scope: str = ""


class RemoteAuth(Protocol):
    """The source of the tokens of one server."""

    async def token(self) -> Secret | None:
        """Return the token for the next request, renewed if it has expired; None if there is none."""
        ...

    async def renewed(self, refused: Secret | None, challenge: Challenge) -> Secret:
        """Return another token after the server refused `refused`. Raises ProblemError if there is none."""
        ...


class RemoteTransport(httpx2.AsyncBaseTransport):
    """The HTTP transport of one server, which adds the headers and the token, and turns errors into answers.

    Attributes:
        problem: The last error of a request, or None.
    """

    def __init__(self, config: ServerConfig, pinned: PinnedTransport, auth: RemoteAuth | None) -> None:
        self._config, self._pinned, self._auth = config, pinned, auth
        self._url = httpx2.URL(config.url)
        self._origin = origin_of(self._url)
        self._headers = _checked_headers(config)
        self._own_authorization = any(name.lower() == "authorization" for name, _ in self._headers)
        self._old: OldServer | None = None
        self._streams, self._streamed = float(_STREAMS), time.monotonic()
        self.problem: Problem | None = None
        if config.transport == "sse":
            self._old = OldServer(self._url, self._answered, self._pinned.bounds)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()  # the request that follows a redirect has its text as a stream
        message = _message(request)
        try:
            return await self._exchange(request, message)
        except (RemoteRefused, BrokenAnswer, ProblemError) as error:
            self.problem = error.problem
            if not isinstance(message.get("id"), str | int) and request.method == "POST" and message:
                return error_answer(request, str(error))  # a notification has no answer
            if request.method != "POST":
                raise _as_transport_error(error) from None
            return error_answer(request, str(error))

    async def _exchange(self, request: httpx2.Request, message: dict[str, object]) -> httpx2.Response:
        if request.method == "GET":
            self._count_stream()
        if self._old is not None:
            return await self._old.exchange(request, message)
        if message.get("method") == "subscriptions/listen":
            request.extensions = {**request.extensions, "ringfence_standing": True}
        response = await self._answered(request)
        if request.method != "POST":
            return response
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == EVENTS and response.status_code < 400:
            return response
        # All other answers are complete texts, and are read here, so that an error of reading is an error of the call.
        body = await whole(response)
        content = json_object(body) if kind == "application/json" else {}
        refused = "error" in content and "jsonrpc" in content
        if message.get("method") == "initialize" and response.status_code in _OLD and not refused:
            old = OldServer(self._url, self._answered, self._pinned.bounds)
            try:
                await old.open()
            except BaseException:
                await old.aclose()
                raise
            self._old = old
            return await old.exchange(request, message)
        answers = kind == "application/json" and "id" in message and 200 <= response.status_code < 300
        if answers and content.get("id") != message["id"]:
            what = f"the server {self._config.name} answers another request than the one it was asked"
            raise RemoteRefused(Problem(what, "the number of its answer differs", "report this to its operator"))
        return response

    def _count_stream(self) -> None:
        """Raise RemoteRefused if too many streams are opened: the library opens a stream again when it ends."""
        now = time.monotonic()
        self._streams = min(float(_STREAMS), self._streams + now - self._streamed)
        self._streamed = now
        if self._streams < 1:
            what = f"the server {self._config.name} ends its streams as fast as they are opened"
            why = f"more than {_STREAMS} were opened at once"
            raise RemoteRefused(Problem(what, why, "report this to the operator of the server"))
        self._streams -= 1

    async def _answered(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request with headers and token to the origin of the server and return the answer."""
        token = await self._auth.token() if self._auth and not self._own_authorization else None
        renewals = 0
        while True:
            response = await self.send_once(request, token)
            challenge = challenge_of(response)
            if challenge is None:
                return self._not_elsewhere(request, response)
            await response.aclose()
            if self._auth is None or self._own_authorization or renewals == _MOST_RENEWALS:
                raise ProblemError(self._unsigned(challenge))
            token = await self._auth.renewed(token, challenge)
            renewals += 1

    async def send_once(self, request: httpx2.Request, token: Secret | None) -> httpx2.Response:
        """Send a request with the configured headers, and with `token` if it is given. Raises RemoteRefused."""
        if origin_of(request.url) != self._origin:
            what = f"`{shown(request.url)}` is not on the origin of the server {self._config.name}"
            raise RemoteRefused(Problem(what, "headers and tokens are for the origin of `url` only", "correct `url`"))
        headers = httpx2.Headers(request.headers)
        for name, value in self._headers:
            headers[name] = value
        if token is not None:
            headers["Authorization"] = f"Bearer {token.reveal()}"
        # A new request: the one of the client is copied into the request that follows a redirect.
        sent = httpx2.Request(
            request.method, request.url, headers=headers, content=request.content, extensions=request.extensions
        )
        return await self._pinned.handle_async_request(sent)

    def _not_elsewhere(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return `response` unless it redirects to another origin. The client follows the other redirects."""
        if response.status_code not in _REDIRECTS or "location" not in response.headers:
            return response
        try:
            target = request.url.join(response.headers["location"])
        except httpx2.InvalidURL:
            target = None
        try:
            elsewhere = target is None or bool(target.userinfo) or origin_of(target) != self._origin
        except RemoteRefused:
            elsewhere = True
        if not elsewhere:
            return response
        named = shown(target) if target is not None else "an address that is not valid"
        problem = Problem(
            f"the server {self._config.name} redirects to {named}",
            "it is another origin, which gets no message, no header and no token",
            f"set `url` in `[mcp.{self._config.name}]` to that address if it is the intended server",
        )
        raise RemoteRefused(problem)

    def _unsigned(self, challenge: Challenge) -> Problem:
        if self._own_authorization:
            fix = f"correct the header `Authorization` in `[mcp.{self._config.name}]`"
            return Problem(f"the server {self._config.name} refuses the configured header", "it asks to sign in", fix)
        return unsigned(self._config.name, challenge)

    async def aclose(self) -> None:
        if self._old is not None:
            await self._old.aclose()
        await self._pinned.aclose()


def unsigned(name: str, challenge: Challenge) -> Problem:
    """Return the Problem for a server that asks for a token, or for more scopes."""
    scopes = "".join(f" --scope {scope}" for scope in challenge.scope.split() if _plain_scope(scope))
    if challenge.status == 403:
        what, why = f"the server {name} asks for more rights", "the token does not have the scopes of this call"
        return Problem(what, why, f"sign in again: `agent mcp login {name}{scopes}`")
    what, why = f"the server {name} asks to sign in", "there is no valid token for it"
    return Problem(what, why, f"sign in at a terminal: `agent mcp login {name}`")


def _plain_scope(scope: str) -> bool:
    """Return True if `scope` can stand in a command line as it is."""
    return (
        len(scope) <= 200
        and not scope.startswith("-")
        and all(c.isascii() and (c.isalnum() or c in ".:/_-") for c in scope)
    )


def remote_hosts(config: ServerConfig) -> RemoteHosts:
    """Return the rules of the connections to the server: its own host and port. Raises RemoteRefused or ValueError."""
    return RemoteHosts(authority_of(httpx2.URL(config.url)), private_rules(config))


def private_rules(config: ServerConfig) -> tuple[HostRule, ...]:
    """Return the host rules of the server. Only the user's own files may name a host of a private network."""
    return () if config.layer in (Layer.REPOSITORY, Layer.TRUSTED) else parsed_rules(config.hosts)


def open_remote(
    config: ServerConfig,
    network: NetworkOptions = DIRECT,
    auth: RemoteAuth | None = None,
    *,
    context: ssl.SSLContext | None = None,
    resolver: Resolve = resolve,
    bounds: AnswerBounds | None = None,
) -> "RemoteConnection":
    """Return the transport of a remote server for `mcp.client.Client`. Raises ProblemError for a wrong configuration.

    `auth` is the source of tokens, or None for a server without them. The other arguments replace parts in tests.
    """
    if bounds is None:
        bounds = AnswerBounds(idle=config.timeout, longest=max(600.0, 10 * config.timeout))
    try:
        pinned = PinnedTransport(remote_hosts(config), network, bounds=bounds, context=context, resolver=resolver)
        pinned.check(httpx2.URL(config.url))
        return RemoteConnection(config, RemoteTransport(config, pinned, auth))
    except RemoteRefused as error:
        raise ProblemError(error.problem) from None
    except (ValueError, httpx2.InvalidURL) as error:
        what = f"`[mcp.{config.name}]` cannot be used"
        raise ProblemError(Problem(what, str(error), f"correct it in {config.place or 'the configuration'}")) from None


class RemoteConnection:
    """The transport of one remote server: an asynchronous context manager that returns two streams of messages."""

    def __init__(self, config: ServerConfig, transport: RemoteTransport) -> None:
        self._config, self._transport = config, transport
        self._open: AbstractAsyncContextManager[TransportStreams] | None = None

    @property
    def problem(self) -> Problem | None:
        """Return the last error of a request, for the state of the server; None if there was none."""
        return self._transport.problem

    async def __aenter__(self) -> "TransportStreams":
        self._open = _streams(self._config.url, self._transport)
        return await self._open.__aenter__()

    async def __aexit__(self, *error: object) -> bool | None:
        assert self._open is not None
        return await self._open.__aexit__(*error)  # type: ignore[arg-type]  # the three arguments of the interpreter


@contextlib.asynccontextmanager
async def _streams(url: str, transport: RemoteTransport) -> "AsyncIterator[TransportStreams]":
    from mcp.client.streamable_http import streamable_http_client

    quiet_library()
    async with (
        httpx2.AsyncClient(
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            max_redirects=_MOST_REDIRECTS,
            timeout=None,  # `AnswerBounds` has the limits of time
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE) as streams,
    ):
        yield streams


def quiet_library() -> None:
    """Stop the protocol library from writing errors with their tracebacks to standard error: the caller gets them."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def json_object(body: bytes) -> dict[str, object]:
    """Return the JSON object in `body`, or an empty one if it has another content."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _message(request: httpx2.Request) -> dict[str, object]:
    return json_object(request.content) if request.method == "POST" else {}


def challenge_of(response: httpx2.Response) -> Challenge | None:
    """Return the refusal that an answer states, or None."""
    header = response.headers.get("www-authenticate", "")
    from mcp.client.auth.utils import extract_field_from_www_auth

    if response.status_code == 401:
        return Challenge(401, header, extract_field_from_www_auth(response, "scope") or "")
    if response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope":
        return Challenge(403, header, extract_field_from_www_auth(response, "scope") or "")
    return None


def _checked_headers(config: ServerConfig) -> tuple[tuple[str, str], ...]:
    for name, value in config.headers:
        if name.lower() in _OWN_HEADERS or name.lower().startswith(("mcp-", "proxy-")):
            raise ValueError(f"the header `{name}` is set by the connection itself")
        if not name or not all("!" <= char <= "~" and char not in '"(),/:;<=>?@[\\]{}' for char in name):
            raise ValueError(f"`{name}` is not the name of a header")
        if not all(char == "\t" or " " <= char <= "~" for char in value):
            raise ValueError(f"the value of the header `{name}` has characters that a header cannot have")
    return config.headers


def _as_transport_error(error: Exception) -> Exception:
    """Return an error that the client of the library handles in a request that is not a call."""
    return error if isinstance(error, httpx2.TransportError) else httpx2.ConnectError(str(error))


def sign_in_transport(
    config: ServerConfig,
    network: NetworkOptions = DIRECT,
    *,
    context: ssl.SSLContext | None = None,
    resolver: Resolve = resolve,
) -> PinnedTransport:
    """Return the transport for the requests of a sign-in: any public host, and private ones by `hosts`."""
    return PinnedTransport(
        RemoteHosts(None, private_rules(config)), network, bounds=SIGN_IN, context=context, resolver=resolver
    )
