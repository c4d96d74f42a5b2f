"""One GET request for a page, with its redirects on the same host.

THREAT T233: the user approved one host. A redirect to another one, or from https to http, is not followed: the model is
told the address, and a call for it is judged as an action of its own.

This module imports `httpx2`, which is slow to import. Import it only when a page is fetched.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import field

import httpx2

from policy.model.frozen import dataclass, replace
from policy.model.page_address import page_address
from policy.model.verdict import Problem, ProblemError
from runner.text.gunzip import Gunzip, PackedError, PackedTooLarge, layer_of
from runner.web.pinned_http import (
    AnswerBounds,
    BrokenAnswer,
    PinnedTransport,
    RemoteHosts,
    RemoteRefused,
    authority_of,
    parsed_rules,
    shown,
)
from sandbox.backend import DIRECT, Connection, NetworkOptions
from sandbox.egress.dialer import Resolve, resolve

LARGEST = 20 << 20  # bytes of a page, unpacked
PATIENCE = 30.0  # seconds for a page with its redirects
_REDIRECTS = 5
_REDIRECTING = (301, 302, 303, 307, 308)
_AGENT = "ringfence"  # no version and no system: a page learns nothing about the machine
_ACCEPT = (
    "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, application/json;q=0.8, "
    "application/pdf;q=0.7, */*;q=0.1"
)
OPENING = 'the user can add a rule with `host = "{right}"` and `verdict = "allow"` to their own configuration'
_READ = "read another page, or tell the user"


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """The answer of a server.

    Attributes:
        url: The address that answered.
        status: The status from 200 to 299.
        kind: The field `Content-Type`; empty if the server sent none.
        data: The unpacked body.
    """

    url: str
    status: int
    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class AwayRedirect:
    """A redirect to an address that the verdict does not cover. `url` is in canonical form."""

    url: str


@dataclass(frozen=True, slots=True)
class WebReach:
    """The hosts that one action may reach, and the way to them.

    Attributes:
        hosts: Host rules, as the Terms of the permit have them.
        network: The way to the network.
        largest: The most bytes of an unpacked answer.
        seconds: The most seconds of a request with its redirects.
        context: The verification of certificates; None for that of the system.
        resolver: The resolution of names.
    """

    hosts: tuple[str, ...]
    network: NetworkOptions = DIRECT
    largest: int = LARGEST
    seconds: float = PATIENCE
    context: ssl.SSLContext | None = None
    resolver: Resolve = field(default=resolve)


class WebRequest:
    """One request. `connections` are the attempts to reach a host so far, for the record."""

    def __init__(self, reach: WebReach) -> None:
        self._reach = reach
        self.connections: list[Connection] = []

    async def get(self, url: str, headers: Iterable[tuple[str, str]] = ()) -> WebAnswer | AwayRedirect:
        """Return the answer of the page at `url` (in canonical form). Follow redirects on its host only.

        `headers` are sent to that host. Raises ProblemError.
        """
        return await self._followed("GET", url, dict(headers), b"")

    async def post(self, url: str, headers: Iterable[tuple[str, str]], body: bytes) -> WebAnswer | AwayRedirect:
        """Return the answer to a request with the JSON text `body`. No redirect is followed. Raises ProblemError."""
        return await self._followed("POST", url, {"Content-Type": "application/json", **dict(headers)}, body)

    async def _followed(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> WebAnswer | AwayRedirect:
        try:
            async with asyncio.timeout(self._reach.seconds):
                for _ in range(_REDIRECTS + 1):
                    answer = await self._answer(method, url, headers, body)
                    if isinstance(answer, WebAnswer):
                        return answer
                    if method != "GET" or not self._covers(url, answer):
                        self._note("GET", answer, "", "a redirect that the verdict does not cover")
                        return AwayRedirect(answer)
                    url = answer
        except TimeoutError:
            what, why = "the page was not read", f"it was not complete after {self._reach.seconds:g} seconds"
            raise ProblemError(Problem(what, why, "try again later, or read another page")) from None
        why = f"it redirects more than {_REDIRECTS} times"
        raise ProblemError(Problem("the page was not read", why, _READ))

    def _covers(self, url: str, target: str) -> bool:
        """Return True if the redirect from `url` to `target` stays on the host and is not less protected."""
        before, after = httpx2.URL(url), httpx2.URL(target)
        downgraded = before.scheme == "https" and after.scheme != "https"
        return before.host == after.host and not downgraded and self._permits(after)

    def _permits(self, url: httpx2.URL, method: str = "GET") -> bool:
        host, port = authority_of(url)
        path = url.raw_path.decode("ascii", "replace").partition("?")[0]
        return any(rule.meets(host, port, method, path) for rule in parsed_rules(self._reach.hosts))

    async def _answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> WebAnswer | str:
        """Return the answer of one address, or the address to which it redirects."""
        try:
            asked = httpx2.URL(url)
            host = authority_of(asked)
            if not self._permits(asked, method):
                fix = "ask for the address that was approved"
                raise ProblemError(Problem(f"`{shown(asked)}` was not read", "the verdict does not cover it", fix))
            hosts = RemoteHosts(host, parsed_rules(self._reach.hosts), plain=True, opening=OPENING)
            seconds = self._reach.seconds
            bounds = AnswerBounds(self._reach.largest, idle=seconds, longest=seconds, packed=True)
            transport = PinnedTransport(
                hosts, self._reach.network, bounds=bounds, context=self._reach.context, resolver=self._reach.resolver
            )
            request = httpx2.Request(
                method,
                asked,
                headers={"User-Agent": _AGENT, "Accept": _ACCEPT, "Connection": "close", **headers},
                content=body or None,
            )
            try:
                return await self._read(transport, request, url)
            except BaseException as error:
                if not transport.reached:
                    self._note(method, url, "", _why(error))
                raise
            finally:
                for _, _, address in transport.reached:
                    self._note(method, url, address, "")
                await transport.aclose()
        except (RemoteRefused, BrokenAnswer) as error:
            raise ProblemError(error.problem) from None
        except (httpx2.InvalidURL, ValueError) as error:
            raise ProblemError(Problem("this address cannot be read", str(error)[:200], _READ)) from None

    async def _read(self, transport: PinnedTransport, request: httpx2.Request, url: str) -> WebAnswer | str:
        response = await transport.handle_async_request(request)
        try:
            location = response.headers.get("location", "")
            if response.status_code in _REDIRECTING and location:
                return _target(url, location)
            if not 200 <= response.status_code < 300:
                why = f"the server answered with status {response.status_code}{_meaning(response.status_code)}"
                raise ProblemError(Problem("the page was not read", why, _READ))
            length = response.headers.get("content-length", "")
            if length.isdigit() and int(length[:15]) > self._reach.largest:
                raise self._too_large()
            data = await self._body(response)
        finally:
            await response.aclose()
        if (sent := self.connections) and sent[-1].received == 0:
            self.connections[-1] = replace(sent[-1], received=len(data))
        return WebAnswer(url, response.status_code, response.headers.get("content-type", ""), data)

    async def _body(self, response: httpx2.Response) -> bytes:
        """Return the unpacked body. THREAT T236: what is packed can expand to any size, so it is unpacked in steps."""
        packed = layer_of(response.headers.get_list("content-encoding"))
        inflate = Gunzip(self._reach.largest) if packed else None
        data = bytearray()
        try:
            async with aclosing(response.aiter_raw()) as parts:
                async for part in parts:
                    for piece in inflate.feed(part) if inflate is not None else (part,):
                        data += piece
                        if len(data) > self._reach.largest:
                            raise self._too_large()
        except PackedTooLarge:
            raise self._too_large() from None
        except PackedError as error:
            raise ProblemError(Problem("the page was not read", f"its text {error}", _READ)) from None
        if inflate is not None and not inflate.whole:
            raise ProblemError(Problem("the page was not read", "its text is compressed and incomplete", _READ))
        return bytes(data)

    def _too_large(self) -> ProblemError:
        why = f"it has more than {self._reach.largest >> 20} MiB"
        return ProblemError(Problem("the page was not read", why, "read a smaller page, or tell the user"))

    def _note(self, method: str, url: str, address: str, why: str) -> None:
        """Add one attempt to the connections. The query of an address is left out: the action has it."""
        parsed = httpx2.URL(url)
        host, port = authority_of(parsed)
        asked = f"{method} {parsed.raw_path.decode('ascii', 'replace').partition('?')[0]}"[:200]
        self.connections.append(Connection(host, port, asked, address, not why, why, 0, 0, 0.0))


def _why(error: BaseException) -> str:
    problem = getattr(error, "problem", None)
    return problem.why if isinstance(problem, Problem) else "the request ended"


def _target(url: str, location: str) -> str:
    """Return the address to which `url` redirects, in canonical form. Raises ProblemError."""
    what = "the page redirects to an address that is not used"
    try:
        joined = str(httpx2.URL(url).join(location[:8192]))
    except (httpx2.InvalidURL, ValueError):
        raise ProblemError(Problem(what, "it is not the address of a web page", _READ)) from None
    target = page_address(joined)
    if isinstance(target, Problem):
        raise ProblemError(Problem(what, target.why, _READ))
    return target


# fmt: off
_MEANINGS = {401: "a sign-in is needed", 403: "it refuses", 404: "there is no such page", 410: "the page was removed",
             429: "too many requests", 451: "it may not be shown", 500: "the server failed", 503: "it is overloaded"}
# fmt: on


def _meaning(status: int) -> str:
    return f" ({_MEANINGS[status]})" if status in _MEANINGS else ""
