"""The checks of each request before anything is answered: the host, the origin, and who the request comes from.

THREAT T282: a page of another origin in the browser of a user can send requests here, with the cookie if the browser
allowed it. Such a page can neither open the WebSocket (its origin is compared), nor sign in or out (a header that needs
a permission which is never given), nor read or embed an answer (`security_headers`), nor reach this server under a name
of its own (the host is compared).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from policy.model.frozen import dataclass
from runner.frontends.remote.attempts import WrongTokens
from runner.frontends.remote.listen_address import is_own_host
from runner.frontends.remote.tokens import LINK, SIGN_IN, RemoteTokens, Token

COOKIE = "__Host-ringfence"
OWN_HEADER = "X-Ringfence"  # of the page's own requests; another origin cannot send it without a CORS permission
_LONGEST_ADDRESS = 64


class Headers(Protocol):
    """The headers of a request, whose names have no case."""

    def get_all(self, key: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request.

    Attributes:
        method: The method.
        path: The path without the query.
        headers: The headers.
        local: The IP address and the port at which the request arrived.
        address: The IP address that it came from.
    """

    method: str
    path: str
    headers: Headers
    local: tuple[str, int]
    address: str

    def one(self, name: str) -> str | None:
        """Return the header `name`, None without it, and an empty text if it is there more than once."""
        found = self.headers.get_all(name)
        return None if not found else found[0] if len(found) == 1 else ""


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """The answer to a request that is not allowed. `why` is for the log and for the user."""

    status: int
    why: str
    wait: int = 0  # seconds after which the client may try again


class Door:
    """The checks of one server. `secure` is True if it uses TLS; `names` are its host names."""

    def __init__(
        self, store: RemoteTokens, names: Iterable[str], *, secure: bool, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._names = frozenset(names)
        self._secure = secure
        self.clock = clock
        self._wrong = WrongTokens()

    def refusal(self, asked: PageRequest) -> HttpRefusal | None:
        """Return the refusal of a request whose host, origin or method cannot be allowed, or None."""
        host = asked.one("Host")
        if host is None or not is_own_host(host, asked.local, self._names, 443 if self._secure else 80):
            return HttpRefusal(421, "the request names another host")
        if asked.method != "GET":
            return HttpRefusal(405, "only GET is answered")
        origin = asked.one("Origin")
        if origin is not None and origin.lower() != self.origin(host):
            return HttpRefusal(403, "the request comes from a page of another origin")
        # SOURCE: Fetch Metadata Request Headers (W3C): every current browser states where a request comes from.
        site = asked.one("Sec-Fetch-Site")
        opened = (
            asked.path == "/"
            and asked.one("Sec-Fetch-Mode") == "navigate"
            and asked.one("Sec-Fetch-Dest") == "document"
        )  # fmt: skip
        if site not in (None, "same-origin", "none") and not opened:
            return HttpRefusal(403, "the request comes from a page of another site")
        return None

    def origin(self, host: str) -> str:
        """Return the origin of the page at `host`, a header that was checked."""
        return f"{'https' if self._secure else 'http'}://{host.strip().lower()}"

    def token_of(self, asked: PageRequest, *, socket: bool) -> Token | HttpRefusal:
        """Return the token of a request: the one that its browser is signed in with, or the one in its header.

        With `socket`, the cookie counts only with an origin, which every browser sends for a WebSocket.
        """
        if asked.one("Authorization") is not None:
            return self._of_header(asked, links=False)
        cookie = self.cookie(asked)
        if cookie is None:
            return HttpRefusal(401, "the request has no token")
        if socket and asked.one("Origin") is None:
            return HttpRefusal(403, "the request has a cookie, but no origin")
        token = self._store.of_sign_in(cookie, self.clock())
        return token if token is not None else HttpRefusal(401, "the sign-in has ended")

    def signing_in(self, asked: PageRequest) -> Token | HttpRefusal:
        """Return the token with which a browser signs in: a token or a one-time link, in the header."""
        if asked.one(OWN_HEADER) is None:
            return HttpRefusal(403, "the request does not come from the page")
        return self._of_header(asked, links=True)

    def sign_in(self, token: Token) -> tuple[str, int]:
        """Return the value of a new cookie and its life in seconds."""
        value, until = self._store.sign_in(token, self.clock())
        return self._cookie(value, max(int(until - self.clock()), 1)), int(until - self.clock())

    def sign_out(self, asked: PageRequest) -> str | HttpRefusal:
        """End the sign-in of a request, and return the value of the header that removes its cookie."""
        if asked.one(OWN_HEADER) is None:
            return HttpRefusal(403, "the request does not come from the page")
        if (cookie := self.cookie(asked)) is not None:
            self._store.sign_out(cookie, self.clock())
        return self._cookie("", 0)

    def still_valid(self, token: Token) -> bool:
        """Return True if a token that was valid before still is."""
        return self._store.still_valid(token, self.clock())

    def still_signed_in(self, cookie: str) -> bool:
        """Return True if the sign-in with this cookie has not ended."""
        return self._store.of_sign_in(cookie, self.clock()) is not None

    def cookie(self, asked: PageRequest) -> str | None:
        """Return the value of our cookie, or None if the request has none or more than one."""
        pairs = [pair.strip().partition("=") for line in asked.headers.get_all("Cookie") for pair in line.split(";")]
        values = [value for name, _, value in pairs if name == COOKIE]
        return values[0] if len(values) == 1 and values[0].startswith(SIGN_IN) else None

    def _cookie(self, value: str, seconds: int) -> str:
        # SAFETY: `Secure` also without TLS, which is possible only on loopback: browsers count it as secure there.
        return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"

    def _of_header(self, asked: PageRequest, *, links: bool) -> Token | HttpRefusal:
        """Return the token in the header `Authorization`.

        THREAT T283: after a few wrong tokens, an address waits. A right token is refused in that time as well.
        """
        now = self.clock()
        if (wait := self._wrong.wait(asked.address, now)) > 0:
            return HttpRefusal(429, "there were too many wrong tokens", int(wait) + 1)
        scheme, _, secret = (asked.one("Authorization") or "").partition(" ")
        secret = secret.strip()
        token = None
        if scheme.lower() == "bearer":
            single = links and secret.startswith(LINK)
            token = self._store.of_link(secret, now) if single else self._store.of_token(secret, now)
        if token is None:
            self._wrong.add(asked.address, now)
            return HttpRefusal(401, "the token is wrong, was removed, or has expired")
        return token


def security_headers(origin: str) -> Mapping[str, str]:
    """Return the headers of every answer to a page of `origin`."""
    socket = origin.replace("http", "ws", 1)
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        f"connect-src 'self' {socket}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=(), clipboard-read=()",
    }
