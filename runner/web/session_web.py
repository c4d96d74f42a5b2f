"""The web of one session: what the actions `FetchAddress` and `SearchWeb` do after their verdict.

THREAT T235: a page is text of a stranger. The model gets it in marks, with invisible characters spelled out, and it is
labelled as text from outside.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from policy.model.action import FetchAddress, SearchWeb
from policy.model.frozen import dataclass, replace
from policy.model.verdict import Permit, Problem, ProblemError
from runner.text.sanitize import marked, visible_prose
from runner.web.content import PageKind, PageText, decoded, kind_of, plain_text
from runner.web.conversion import Convert, converted_page
from sandbox.backend import DIRECT, Backend, Connection, NetworkOptions, Outcome
from tools.text import BYTES

if TYPE_CHECKING:
    from runner.web.fetch import WebAnswer
    from runner.web.search import SearchService

_FRESH = 900.0  # seconds for which a fetched page is not fetched again
_HELD = 32 << 20  # characters of the pages that a session holds
_LONGEST = 20_000_000  # characters of one page
_RESULTS = 20_000  # characters of a page of results
_CHECK = "tell the user, who can check `[web]` in their configuration, or read pages whose address is known"


def usable() -> bool:
    """Return True if the libraries for pages are installed (the extra `web`)."""
    return find_spec("httpx2") is not None and find_spec("html_to_markdown") is not None


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page that the session has fetched. `at` is the time of the clock that `SessionWeb` uses."""

    url: str
    text: PageText
    at: float


class SessionWeb:
    """The pages that a session fetched, and its search service.

    `network` is the way to the network, and `service` the configured service. `convert` turns a document into text,
    confined. `clock` returns seconds.
    """

    def __init__(
        self,
        network: NetworkOptions = DIRECT,
        service: "SearchService | None" = None,
        convert: Convert = converted_page,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._convert, self._network, self._service, self._clock = convert, network, service, clock
        self._pages: OrderedDict[str, FetchedPage] = OrderedDict()

    async def perform(self, permit: Permit, sandbox: Backend) -> Outcome:
        """Do what `permit` allows, and convert documents in `sandbox`. A failure is a Problem of the outcome."""
        action, began = permit.action, self._clock()
        assert isinstance(action, FetchAddress | SearchWeb)
        connections: list[Connection] = []
        try:
            if isinstance(action, SearchWeb):
                text, data = await self._searched(action, permit, sandbox, connections), dict[str, object]()
            else:
                text, data = await self._fetched(action, permit, sandbox, connections)
        except ProblemError as error:
            seconds = self._clock() - began
            return Outcome(1, seconds=seconds, connections=tuple(connections), problem=error.problem)
        stdout = text.encode("utf-8", "replace")
        return Outcome(0, stdout, seconds=self._clock() - began, connections=tuple(connections), data=data)

    async def _page(
        self, action: FetchAddress, permit: Permit, sandbox: Backend, connections: list[Connection]
    ) -> "FetchedPage | str":
        """Return the page, or the address of another host to which it redirects. Raise ProblemError.

        The attempts to reach a host are added to `connections`.
        """
        from runner.web.fetch import PATIENCE, AwayRedirect, WebReach, WebRequest  # few sessions fetch pages

        seconds = min(permit.terms.limits.wall, PATIENCE)
        request = WebRequest(WebReach(permit.terms.hosts, self._network, seconds=seconds))
        try:
            answer = await request.get(action.url)
        finally:
            connections += request.connections
        if isinstance(answer, AwayRedirect):
            return answer.url
        text = await self._text_of(answer, permit, sandbox)
        if len(text.text) > _LONGEST:
            text = replace(text, text=text.text[:_LONGEST], notes=(*text.notes, "the end of the page is left out"))
        return FetchedPage(answer.url, text, self._clock())

    async def _text_of(self, answer: "WebAnswer", permit: Permit, sandbox: Backend) -> PageText:
        """Return the text of an answer. Raise ProblemError."""
        kind = kind_of(answer.kind, answer.data)
        if kind is PageKind.TEXT:
            return plain_text(answer.kind, answer.data)
        if kind is PageKind.PDF:
            return await self._convert(answer.data, kind, answer.url, permit, sandbox)
        html, notes = decoded(answer.kind, answer.data, html=True)
        text = await self._convert(html.encode("utf-8", "replace"), kind, answer.url, permit, sandbox)
        return replace(text, notes=(*notes, *text.notes))

    async def _fetched(
        self, action: FetchAddress, permit: Permit, sandbox: Backend, connections: list[Connection]
    ) -> tuple[str, dict[str, object]]:
        """Return the marked text for the model, and the data for the rendering."""
        page = self._held(action.url)
        if action.offset:
            if page is None:
                why = "this session does not hold this page (any more)"
                raise ProblemError(Problem("there is nothing to read on", why, "fetch it again without `offset`"))
        elif page is None or self._clock() - page.at > _FRESH:
            found = await self._page(action, permit, sandbox, connections)
            if isinstance(found, str):
                said = "the page redirects to another host and was not read; if this host is meant, fetch this address:"
                return f"[{said}]\n{marked('redirect', found)}", {}
            page = found
            self._hold(action.url, page)
        return shown_page(page, action.offset)

    async def _searched(
        self, action: SearchWeb, permit: Permit, sandbox: Backend, connections: list[Connection]
    ) -> str:
        """Return the marked results of a search. Raise ProblemError."""
        from runner.web.fetch import AwayRedirect, WebReach, WebRequest  # few sessions search
        from runner.web.search import (
            LARGEST,
            PATIENCE,
            VENDOR_PATIENCE,
            VENDORS,
            answer_text,
            search_answer,
            search_request,
        )

        service = self._service
        if service is None or (service.name, service.host) != (action.provider, action.host):
            raise ProblemError(Problem("nothing was searched", "this search service is not configured", "read pages"))
        # The user's own configuration names this host, so it may be this machine or in a private network.
        named = {each.removesuffix(" private") for each in permit.terms.hosts}
        hosts = (*permit.terms.hosts, f"{service.host} private") if service.host in named else ()
        seconds = min(VENDOR_PATIENCE if service.name in VENDORS else PATIENCE, permit.terms.limits.wall)
        asked = search_request(service, action.query)
        key = await asyncio.to_thread(service.key)
        headers = [("Accept", "application/json, text/html;q=0.5"), *asked.headers]
        if key is not None and asked.header:
            headers.append((asked.header, asked.prefix + key.reveal()))
        request = WebRequest(WebReach(hosts, self._network, largest=LARGEST, seconds=seconds))
        try:
            answer = await (
                request.post(asked.url, headers, asked.body) if asked.body else request.get(asked.url, headers)
            )
        except ProblemError as error:
            raise ProblemError(replace(error.problem, what=f"{service.name} gave no results", fix=_CHECK)) from None
        finally:
            connections += request.connections
        if isinstance(answer, AwayRedirect):
            raise ProblemError(Problem(f"{service.name} gave no results", "it redirects to another host", _CHECK))
        if service.name == "template" and kind_of(answer.kind, answer.data) is PageKind.HTML:
            text = (await self._text_of(answer, permit, sandbox)).text[:_RESULTS]
        else:
            text = answer_text(search_answer(service, answer.data))
        return marked("search-results", visible_prose(text), query=action.query, source=service.name)

    def _held(self, url: str) -> FetchedPage | None:
        page = self._pages.get(url)
        if page is not None:
            self._pages.move_to_end(url)
        return page

    def _hold(self, url: str, page: FetchedPage) -> None:
        """Hold the page, and forget those that were used the longest ago beyond the bound."""
        self._pages[url] = page
        self._pages.move_to_end(url)
        while len(self._pages) > 1 and sum(len(each.text.text) for each in self._pages.values()) > _HELD:
            self._pages.popitem(last=False)


def shown_page(page: FetchedPage, offset: int, room: int = BYTES) -> tuple[str, dict[str, object]]:
    """Return the part of a page from the character `offset` on, at most `room` bytes in marks, and the data for the
    rendering: `whole` and `more` if there is more.
    """
    whole = page.text.text
    if offset and offset >= len(whole):
        why = f"the page has {len(whole):,} characters"
        raise ProblemError(Problem("there is nothing to read on", why, "use a smaller `offset`"))
    end = offset + room
    while len((shown := visible_prose(whole[offset:end])).encode("utf-8", "replace")) > room:
        end -= max((end - offset) // 4, 1)
    if end < len(whole) and (line := whole.rfind("\n", offset + (end - offset) // 2, end)) >= 0:
        end = line + 1
        shown = visible_prose(whole[offset:end])
    title = {"title": page.text.title} if page.text.title else {}
    notes = "".join(f"[{note}]\n" for note in page.text.notes) if not offset else ""
    body = marked("web-page", shown, url=page.url, **title) if shown.strip() else "[the page has no text]"
    return f"{notes}{body}", {"whole": whole, "more": end} if end < len(whole) else {}
