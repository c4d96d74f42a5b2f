"""Searches: the request to the configured service, and its results as plain values.

THREAT T240: the words of a query leave the machine, so the query is the action that the card shows and the record has.
The key of the service is sent to that service alone, in a header, and only the runner holds it.

SOURCE: docs.searxng.org/dev/search_api.html; api-dashboard.search.brave.com, "Web Search API"; help.kagi.com,
"Search API" (v0); platform.claude.com, "Web search tool"; developers.openai.com, "Web search"; ai.google.dev,
"Grounding with Google Search".
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from urllib.parse import quote

from policy.model.frozen import dataclass
from policy.model.page_address import page_address
from policy.model.verdict import Problem, ProblemError
from runner.secrets.secret import Secret
from runner.text.model_text import parse_object
from runner.text.sanitize import one_line

SERVICES = ("searxng", "brave", "kagi", "template", "anthropic", "openai", "gemini")
VENDORS = ("anthropic", "openai", "gemini")  # model vendors whose own search tool is used
MOST = 10  # results
LARGEST = 4 << 20  # bytes of an answer
PATIENCE = 20.0  # seconds; a vendor's model reads pages before it answers
VENDOR_PATIENCE = 90.0
_TITLE, _SNIPPET, _ANSWER = 200, 600, 20_000  # characters
_ANSWER_TOKENS = 2000
_TAG = re.compile(r"<[^<>]{0,100}>")
_FIX = "tell the user, or search without this tool"


@dataclass(frozen=True, slots=True)
class SearchService:
    """The configured service.

    Attributes:
        name: One of SERVICES.
        url: The address; for `template` with `{query}` in it.
        host: The host of the address in the form of Terms.
        model: The model of a vendor; empty for other services.
        key: A function that looks the key up, or returns None if none is needed. It may raise ProblemError.
    """

    name: str
    url: str
    host: str
    model: str = ""
    key: Callable[[], Secret | None] = field(default=lambda: None, repr=False)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One HTTP request. The key is not in it: `header` and `prefix` say where the key is sent."""

    url: str
    body: bytes = b""  # JSON of a POST request
    headers: tuple[tuple[str, str], ...] = ()
    header: str = ""
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class FoundPage:
    """One result, with texts of the service on one line each. `url` is in canonical form."""

    title: str
    url: str
    snippet: str = ""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The results, and the text of a vendor's model or of a page without known results; empty for none."""

    results: tuple[FoundPage, ...]
    text: str = ""


def search_request(service: SearchService, query: str) -> SearchRequest:
    """Return the request for `query`."""
    word, base = quote(query, safe=""), service.url.rstrip("/")
    asked = f"Search the web and list what you find, with the facts and the addresses: {query}"
    match service.name:
        case "searxng":
            return SearchRequest(f"{base.removesuffix('/search')}/search?q={word}&format=json")
        case "brave":
            return SearchRequest(f"{base}?q={word}&count={MOST}", header="X-Subscription-Token")
        case "kagi":
            return SearchRequest(f"{base}?q={word}&limit={MOST}", header="Authorization", prefix="Bot ")
        case "anthropic":
            tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
            message = {"role": "user", "content": asked}
            body = {"model": service.model, "max_tokens": _ANSWER_TOKENS, "tools": [tool], "messages": [message]}
            return _post(f"{base}/v1/messages", body, "x-api-key", headers=(("anthropic-version", "2023-06-01"),))
        case "openai":
            body = {"model": service.model, "tools": [{"type": "web_search"}], "input": asked, "store": False}
            return _post(f"{base}/responses", body, "Authorization", "Bearer ")
        case "gemini":
            body = {"contents": [{"role": "user", "parts": [{"text": asked}]}], "tools": [{"google_search": {}}]}
            path = f"v1beta/models/{quote(service.model, safe='')}:generateContent"
            return _post(f"{base}/{path}", body, "x-goog-api-key")
        case _:
            return SearchRequest(service.url.replace("{query}", word))


def _post(
    url: str,
    body: Mapping[str, object],
    header: str,
    prefix: str = "",
    headers: tuple[tuple[str, str], ...] = (),
) -> SearchRequest:
    return SearchRequest(url, json.dumps(body).encode(), headers, header, prefix)


def search_answer(service: SearchService, data: bytes) -> SearchAnswer:
    """Return the results in the JSON text `data`. Raises ProblemError if it has another form."""
    found = parse_object(data)
    if found is None:
        raise _broken(service, "its answer is not JSON")
    match service.name:
        case "searxng":
            return SearchAnswer(_results(found.get("results"), "content"))
        case "brave":
            return SearchAnswer(_results(_at(found, "web", "results"), "description"))
        case "kagi":
            data_rows = [row for row in _list(found.get("data")) if isinstance(row, Mapping) and row.get("t") == 0]
            return SearchAnswer(_results(data_rows, "snippet"))
        case "anthropic":
            return _of_anthropic(found)
        case "openai":
            return _of_openai(found)
        case "gemini":
            return _of_gemini(found)
        case _:
            return _of_template(found, data)


def _of_anthropic(found: Mapping[str, object]) -> SearchAnswer:
    texts, results = list[str](), list[Mapping[str, object]]()
    cited: dict[object, object] = {}
    for block in _rows(found.get("content")):
        if block.get("type") == "text":
            texts.append(_text(block.get("text")))
            for each in _rows(block.get("citations")):
                cited.setdefault(each.get("url"), each.get("cited_text"))
        elif block.get("type") == "web_search_tool_result":
            results += _rows(block.get("content"))
    results = [{**each, "snippet": cited.get(each.get("url"))} for each in results]
    return SearchAnswer(_results(results, "snippet"), "".join(texts)[:_ANSWER])


def _of_openai(found: Mapping[str, object]) -> SearchAnswer:
    texts, results = list[str](), list[Mapping[str, object]]()
    for item in _rows(found.get("output")):
        for part in _rows(item.get("content")):
            if part.get("type") == "output_text":
                texts.append(_text(part.get("text")))
                results += [each for each in _rows(part.get("annotations")) if each.get("type") == "url_citation"]
    return SearchAnswer(_results(results, ""), "\n".join(texts)[:_ANSWER])


def _of_gemini(found: Mapping[str, object]) -> SearchAnswer:
    """Return the answer of the first candidate. The addresses of Google lead to the pages by a redirect."""
    first = next(iter(_rows(found.get("candidates"))), {})
    texts = [_text(part.get("text")) for part in _rows(_at(first, "content", "parts"))]
    chunks = _rows(_at(first, "groundingMetadata", "groundingChunks"))
    sources = [web for chunk in chunks if isinstance(web := chunk.get("web"), Mapping)]
    return SearchAnswer(_results([{**web, "url": web.get("uri")} for web in sources], ""), "".join(texts)[:_ANSWER])


# Names under which services list their results, and the parts of one result.
_LISTS = (
    ("results",),
    ("web", "results"),
    ("items",),
    ("data",),
    ("organic",),
    ("organic_results",),
    ("webPages", "value"),
)
_URLS, _TITLES, _SNIPPETS = ("url", "link", "href"), ("title", "name"), ("snippet", "content", "description", "text")


def _of_template(found: Mapping[str, object], data: bytes) -> SearchAnswer:
    """Return the results of a service whose form is not known, or its JSON text."""
    for path in _LISTS:
        rows = [
            {
                "url": _first(row, _URLS),
                "title": _first(row, _TITLES),
                "snippet": _first(row, _SNIPPETS),
            }
            for row in _rows(_at(found, *path))
        ]
        if results := _results(rows, "snippet"):
            return SearchAnswer(results)
    return SearchAnswer((), data.decode("utf-8", "replace")[:_ANSWER])


def _first(row: Mapping[str, object], names: Iterable[str]) -> object:
    return next((row[name] for name in names if isinstance(row.get(name), str)), "")


def _results(rows: object, snippet: str) -> tuple[FoundPage, ...]:
    """Return at most MOST results. A row without a usable address is left out, and an address is listed once."""
    found: dict[str, FoundPage] = {}
    for row in _rows(rows):
        url = page_address(_text(row.get("url")))
        if isinstance(url, Problem) or url in found:
            continue
        title = one_line(_plain(_text(row.get("title"))), _TITLE) or url
        found[url] = FoundPage(title, url, one_line(_plain(_text(row.get(snippet))), _SNIPPET) if snippet else "")
        if len(found) == MOST:
            break
    return tuple(found.values())


def _plain(text: str) -> str:
    """Return a text of a service without the tags with which it marks the words of the query."""
    return html.unescape(_TAG.sub("", text[:4000])).replace("\n", " ")


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _rows(value: object) -> list[Mapping[str, object]]:
    return [row for row in _list(value) if isinstance(row, Mapping)]


def _at(value: Mapping[str, object], *names: str) -> object:
    found: object = value
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _broken(service: SearchService, why: str) -> ProblemError:
    fix = "the user can check `url` in `[web]` of their configuration"
    if service.name == "searxng":
        fix += ", and that the server offers JSON (`formats` in its `settings.yml`)"
    return ProblemError(Problem(f"{service.name} gave no results", why, fix))


def answer_text(answer: SearchAnswer) -> str:
    """Return the answer as the text for the model, without marks."""
    lines = [answer.text.strip(), ""] if answer.text.strip() else []
    for number, each in enumerate(answer.results, 1):
        lines.append(f"{number}. {each.title}\n   {each.url}")
        if each.snippet:
            lines.append(f"   {each.snippet}")
    return "\n".join(lines).strip() or "no results"
