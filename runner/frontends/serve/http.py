"""The protocol over HTTP on the loopback of this machine, for several clients.

THREAT T199: every program of this machine, each of its users, and every page in a browser can connect to the port.
Therefore a request needs the token, which is compared in constant time; the name of the host must be that of this
address, so that no foreign name leads here (DNS rebinding); and no request of a page of a browser is accepted. Requests
without the token are refused before anything of their body is read. Connections, their silence, headers, bodies and
requests have limits.
"""

import asyncio
import hmac
import logging
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner.frontends.serve.token_file import TokenFile
from runner.frontends.wire_lines import LONGEST_MESSAGE
from runner.problems import Exit, Stopped
from runner.stderr import say
from runner.text.phrases import os_reason

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from runner.frontends.serve.server import ToolServer

LOOPBACK = "127.0.0.1"
PATH = "/mcp"
MOST_CONNECTIONS = 64
_MOST_SESSIONS = 32  # of clients of the older generation
_LONGEST_HEAD = 32 << 10  # bytes of the request line and the headers
_SILENCE = deadline(10.0)  # seconds in which a new connection must send the head of a request
_IDLE = 30  # seconds between two requests of a connection
_GOODBYE = round(deadline(1))  # seconds for open answers at the end


class HttpTransport:
    """The HTTP server of one session. The port is taken, and the token is made, when the object is created."""

    def __init__(self, port: int, token_file: str | None, cwd: str, environ: "Mapping[str, str]") -> None:
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        try:
            self.file = TokenFile.opened(token_file, cwd, environ)
        except BaseException:
            self._socket.close()
            raise

    async def run(self, server: "ToolServer") -> str:
        """Serve until the task is cancelled."""
        hosts = [f"{name}:{self.port}" for name in (LOOPBACK, "localhost")]
        manager = StreamableHTTPSessionManager(
            server.protocol,
            security_settings=TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[]),
            max_request_body_size=LONGEST_MESSAGE,
            max_sessions=_MOST_SESSIONS,
        )
        config = uvicorn.Config(
            _Door(manager, self.file.token.reveal(), hosts),
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=_GOODBYE,
        )
        http = _HttpServer(config)
        for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # its texts contain parts of requests
        self._announce()
        try:
            async with manager.run():
                serving = asyncio.create_task(http.serve(sockets=[self._socket]))
                try:
                    await asyncio.shield(serving)
                except asyncio.CancelledError:
                    await server.close()
                    http.should_exit = True
                    await asyncio.wait({serving})
                    raise
        finally:
            self._socket.close()
            self.file.close()
        return "the server ended"

    def _announce(self) -> None:
        """Print the address and the token. Only here a token is printed: `say` would mask it."""
        say(f"agent mcp serve: http://{LOOPBACK}:{self.port}{PATH}")
        sys.stderr.write(f"agent mcp serve: token {self.file.token.reveal()}\n")
        say(f"agent mcp serve: the token is also in {self.file.path}")


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address alone. Raise Stopped."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(MOST_CONNECTIONS)
    except OSError as error:
        listener.close()
        problem = Problem(f"port {port} cannot be used", os_reason(error), "choose another `--port`, or leave it out")
        raise Stopped(problem, Exit.USAGE) from None
    return listener


class _Door:
    """The application that refuses a request before the protocol library sees it."""

    def __init__(self, manager: StreamableHTTPSessionManager, token: str, hosts: list[str]) -> None:
        self._manager = manager
        self._authorization = f"Bearer {token}".encode()
        self._hosts = [host.encode() for host in hosts]

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        status = self._refusal(scope)
        if status is None:
            await self._manager.handle_request(scope, receive, send)
            return
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _refusal(self, scope: "Scope") -> int | None:
        """Return the status that refuses the request, or None."""
        if scope["type"] != "http":
            return 404
        given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name, []).append(value)
        if [host.lower() for host in given.get(b"host", [])] not in [[host] for host in self._hosts]:
            return 421
        if b"origin" in given:
            return 403
        said = given.get(b"authorization", [])
        if len(said) != 1 or not hmac.compare_digest(_normal(said[0]), self._authorization):
            return 401
        return None if scope["path"] == PATH else 404


def _normal(authorization: bytes) -> bytes:
    """Return the value of the header with the usual spelling of the scheme, which has no case (RFC 9110, 11.1)."""
    scheme, _, token = authorization.partition(b" ")
    return b"Bearer " + token.strip(b" ") if scheme.lower() == b"bearer" else authorization


class _Connection(H11Protocol):
    """One connection. It is closed at once if there are too many, and later if it sends no request."""

    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._silence = self.loop.call_later(_SILENCE, self._end_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        super().connection_lost(exc)

    def _end_silent(self) -> None:
        if self.cycle is None:  # no head of a request was complete
            self.transport.abort()


class _HttpServer(uvicorn.Server):
    """A server that leaves the signals to `end_by_signals`."""

    def capture_signals(self) -> "contextlib.AbstractContextManager[None]":  # type: ignore[override]  # a generator there
        import contextlib

        return contextlib.nullcontext()
