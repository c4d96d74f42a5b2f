"""The HTTPS server: the files of the page, signing in and out, and the WebSocket.

THREAT T286: every request, message, connection and wait has a limit; what exceeds it is closed. The process is not the
resident process, so that its end, however caused, stops neither sessions nor commands.
"""

import json
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from policy.model.deadline import deadline
from policy.model.verdict import ProblemError
from runner.frontends.remote.door import Door, HttpRefusal, PageRequest, security_headers
from runner.frontends.remote.tokens import Token
from runner.frontends.remote.viewer import LONGEST_MESSAGE, Viewer, ViewerPlaces
from runner.stderr import print_problem, unexpected

if TYPE_CHECKING:
    from runner.frontends.remote.certificate import ServerCertificate

MOST_PAGES = 32  # open WebSockets
MOST_OF_TOKEN = 8  # of them for one token
_SILENCE = deadline(10.0)  # seconds for the TLS handshake, and then for the head of a request
_PING = 20.0  # seconds between two pings, and until the answer to one
_GOODBYE = deadline(3.0)  # seconds for the end of a connection
_STATUS = {
    200: "OK", 204: "No Content", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    421: "Misdirected Request", 429: "Too Many Requests", 503: "Service Unavailable",
}  # fmt: skip
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class RemoteServer:
    """The server of one process. `certificate` is None without TLS."""

    def __init__(self, door: Door, places: ViewerPlaces, certificate: "ServerCertificate | None") -> None:
        self._door, self._places, self._certificate = door, places, certificate
        folder = files(__package__).joinpath("static")
        self._files = {path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}
        self._pages: Counter[str] = Counter()  # open WebSockets by the name of their token

    async def run(self, listener: socket.socket) -> None:
        """Serve until the task is cancelled."""
        quiet = logging.getLogger("ringfence.remote")
        quiet.propagate = False
        quiet.addHandler(logging.NullHandler())
        quiet.setLevel(logging.CRITICAL + 1)  # the texts of the library contain parts of requests
        async with serve(
            self._serve_page,
            sock=listener,
            ssl=None if self._certificate is None else self._certificate.context,
            process_request=self._answer,
            compression=None,  # SAFETY: the length of a compressed text tells something about its content
            server_header=None,
            open_timeout=_SILENCE,
            ping_interval=_PING,
            ping_timeout=_PING,
            close_timeout=_GOODBYE,
            max_size=LONGEST_MESSAGE,
            max_queue=4,
            logger=quiet,
        ) as server:
            await server.wait_closed()

    # ---- HTTP

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the answer to a request, or None to continue with the WebSocket."""
        asked = _asked(connection, request)
        try:
            refusal = self._door.refusal(asked)
            return self._refused(asked, refusal) if refusal is not None else self._allowed(asked, connection)
        except ProblemError as error:  # the list of tokens cannot be used: nobody may enter
            print_problem(error.problem, label="agent serve")
            return self._refused(asked, HttpRefusal(503, error.problem.what))
        except OSError as error:  # the log cannot be written
            self._places.log.refused(f"the log cannot be written: {error.strerror}", address=asked.address)
            return self._refused(asked, HttpRefusal(503, "the log of remote access cannot be written"))

    def _allowed(self, asked: PageRequest, connection: ServerConnection) -> Response | None:
        if asked.path in self._files:
            body, kind = self._files[asked.path]
            return self._response(asked, 200, body, kind)
        match asked.path:
            case "/me":
                token = self._door.token_of(asked, socket=False)
                if isinstance(token, HttpRefusal):
                    return self._refused(asked, token)
                about = {"token": token.name, "scope": token.scope.value, "folder": token.folder, "until": token.until}
                return self._response(asked, 200, json.dumps(about).encode(), "application/json")
            case "/sign-in":
                return self._sign_in(asked)
            case "/sign-out":
                cookie = self._door.sign_out(asked)
                if isinstance(cookie, HttpRefusal):
                    return self._refused(asked, cookie)
                self._places.log.write("signed out", address=asked.address)
                return self._response(asked, 204, more={"Set-Cookie": cookie})
            case "/socket":
                return self._open_socket(asked, connection)
        return self._refused(asked, HttpRefusal(404, "there is no such page"))

    def _sign_in(self, asked: PageRequest) -> Response:
        token = self._door.signing_in(asked)
        if isinstance(token, HttpRefusal):
            return self._refused(asked, token)
        cookie, seconds = self._door.sign_in(token)
        self._places.log.write("signed in", address=asked.address, token=token.name, seconds=seconds)
        return self._response(asked, 204, more={"Set-Cookie": cookie})

    def _open_socket(self, asked: PageRequest, connection: ServerConnection) -> Response | None:
        token = self._door.token_of(asked, socket=True)
        if isinstance(token, HttpRefusal):
            return self._refused(asked, token)
        if self._pages.total() >= MOST_PAGES or self._pages[token.name] >= MOST_OF_TOKEN:
            return self._refused(asked, HttpRefusal(503, "there are too many open pages", 30))
        # Only `_serve_page` counts a page: a client may still leave without a WebSocket.
        connection.ringfence_page = (token, asked)  # type: ignore[attr-defined]  # the library has no place for it
        return None

    def _refused(self, asked: PageRequest, refusal: HttpRefusal) -> Response:
        if not (refusal.status == 401 and asked.path == "/me"):  # every page asks who it is when it opens
            self._places.log.refused(f"{refusal.why} ({refusal.status} {asked.path})", address=asked.address)
        more = {"Retry-After": str(refusal.wait)} if refusal.wait else {}
        more |= {"Allow": "GET"} if refusal.status == 405 else {}
        more |= {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
        body = json.dumps({"why": refusal.why, "wait": refusal.wait}).encode()
        return self._response(asked, refusal.status, body, "application/json", more)

    def _response(
        self, asked: PageRequest, status: int, body: bytes = b"", kind: str = "", more: Mapping[str, str] | None = None
    ) -> Response:
        host = asked.one("Host") or ""
        origin = self._door.origin(host) if status != 421 else ""
        headers = {**security_headers(origin), **(more or {}), "Connection": "close", "Content-Length": str(len(body))}
        if kind:
            headers["Content-Type"] = kind
        return Response(status, _STATUS[status], Headers(headers), body)

    # ---- WebSocket

    async def _serve_page(self, connection: ServerConnection) -> None:
        token, asked = connection.ringfence_page  # type: ignore[attr-defined]  # set by `_open_socket`
        cookie = self._door.cookie(asked) if asked.one("Authorization") is None else None

        def valid() -> bool:
            try:
                return self._door.still_valid(token) and (cookie is None or self._door.still_signed_in(cookie))
            except ProblemError as error:  # the list of tokens cannot be used: nobody may stay
                print_problem(error.problem, label="agent serve")
                return False

        self._pages[token.name] += 1
        try:
            await Viewer(_Socket(connection), token, asked.address, self._places, valid).serve()
        except ConnectionClosed:
            pass
        except Exception as error:  # SEAM: one page. A defect ends its connection and is reported; the others continue
            print_problem(unexpected(error), label="agent serve")
        finally:
            self._pages[token.name] -= 1
            self._closed(token, asked.address)

    def _closed(self, token: Token, address: str) -> None:
        try:
            self._places.log.write("closed", address=address, token=token.name)
        except OSError as error:
            self._places.log.refused(f"the log cannot be written: {error.strerror}", address=address)


class _Socket:
    """The WebSocket of the library in the form that a viewer uses."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def send(self, message: str) -> None:
        await self._connection.send(message)

    async def recv(self) -> str | bytes:
        return await self._connection.recv()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self._connection.close(code, reason)

    def abort(self) -> None:
        self._connection.transport.abort()


def _asked(connection: ServerConnection, request: Request) -> PageRequest:
    local, remote = connection.local_address, connection.remote_address
    path = request.path.partition("?")[0]  # no query has a meaning here, and none is ever recorded
    return PageRequest(request.method, path, request.headers, (local[0], local[1]), remote[0] if remote else "unknown")
