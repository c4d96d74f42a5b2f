"""The tools of a session's servers, described to the model at once if they are few, else found by the tool
`tool_search`.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from policy.model.action import SearchTools
from policy.model.verdict import Problem
from runner.engine.context.context import tool_specs
from runner.engine.context.tokens import weight_of_tools
from runner.mcp.server_config import ServerConfig
from runner.mcp.server_tool import ReadResourceTool, ServerTool
from runner.text.phrases import many
from runner.text.sanitize import marked
from tools.file_result import tell
from tools.paths import SeenFiles
from tools.registry import ToolRegistry
from tools.server_offer import OfferedResource, OfferedTool, ServerOffer
from tools.tool import Arguments, Finished, Keep, TextPart

MOST_DESCRIBED = 40  # tools of servers that are described to the model at once
MOST_TOKENS = 10_000  # tokens of their descriptions
_MOST_FOUND = 20  # tools of one answer
_LONGEST_QUERY = 500  # characters
_LONGEST_TEXT = 4_000  # characters of a description or a schema in an answer; the next request has all of it
_LONGEST_ANSWER = 24_000  # characters of all descriptions in an answer, and as many of all schemas

# Constants of Okapi BM25, and the weight of a word by its place.
_K1, _B = 1.2, 0.75
_IN_NAME, _IN_TITLE = 4, 2

_WORD = re.compile(r"[a-z]+|[0-9]+|[^\W\d_a-z]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_ENDINGS = ("ing", "ed", "es", "s", "e")


def _words(text: str) -> list[str]:
    """Return the stems of the words of a text; `createIssue`, `create_issues` and `creating an issue` share theirs."""
    return [_stem(word) for word in _WORD.findall(_HUMP.sub(" ", text).lower())]


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    ending = next((each for each in _ENDINGS if word.endswith(each)), "")
    return word[: -len(ending)] if ending and len(word) - len(ending) >= 3 and not word.endswith("ss") else word


class ToolIndex:
    """An index of tools for searches by words: names, titles, descriptions, and names of arguments."""

    def __init__(self, tools: Sequence[ServerTool]) -> None:
        self._tools = tools
        self._rows: dict[str, list[tuple[int, int]]] = {}  # the places of a word: number of the tool, count
        self._lengths: list[int] = []
        for number, tool in enumerate(tools):
            words = _counted(tool)
            self._lengths.append(sum(words.values()))
            for word, times in words.items():
                self._rows.setdefault(word, []).append((number, times))
        self._average = sum(self._lengths) / max(len(tools), 1) or 1.0

    def best(self, query: str, limit: int) -> list[ServerTool]:
        """Return at most `limit` tools that match, the best first. A tool that the query names exactly is the first."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in dict.fromkeys(_words(query)):
            rows = self._rows.get(word) or self._beginning(word)
            rarity = math.log(1 + (len(self._tools) - len(rows) + 0.5) / (len(rows) + 0.5))
            for number, times in rows:
                long = self._lengths[number] / self._average
                scores[number] += rarity * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * long))
        named = frozenset(query.split())
        for number, tool in enumerate(self._tools):
            if tool.name in named or tool.offered.name in named:
                scores[number] += 1_000
        order = sorted(scores, key=lambda number: (-scores[number], self._tools[number].name))
        return [self._tools[number] for number in order[:limit]]

    def _beginning(self, word: str) -> list[tuple[int, int]]:
        """Return the places of the words that begin with `word`, for a word that no tool has."""
        if len(word) < 3:
            return []
        found: Counter[int] = Counter()
        for known, rows in self._rows.items():
            if known.startswith(word) or (len(known) > 3 and word.startswith(known)):
                found.update(dict(rows))
        return list(found.items())


def _counted(tool: ServerTool) -> Counter[str]:
    offered, words = tool.offered, Counter[str]()
    name = f"{tool.server} {offered.name}"
    for text, times in ((name, _IN_NAME), (offered.title, _IN_TITLE), (offered.description, 1)):
        words.update(_words(text) * times)
    properties = offered.input_schema.get("properties")
    for argument, inner in properties.items() if isinstance(properties, Mapping) else ():
        described = inner.get("description") if isinstance(inner, Mapping) else None
        words.update(_words(f"{argument} {described if isinstance(described, str) else ''}"))
    return words


class SearchArgs(Arguments):
    query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=_LONGEST_QUERY,
            description="What the tool should do, in a few words, or the name of a tool.",
        ),
    ]
    limit: Annotated[int, Field(ge=1, le=_MOST_FOUND, description="The most tools to describe.")] = 5


class ServerTools:
    """The tools of all servers of one session, beside the registry of the tools that the model is told about.

    With few tools, the registry has all of them. With many, it has `tool_search` and the tools that searches found. A
    tool that is not in the registry cannot be called.

    Attributes:
        searched: True if the tools are so many that the model has to search them.
    """

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._offered: dict[str, ServerTool] = {}
        self._resources: dict[str, tuple[OfferedResource, ...]] = {}
        self._found: dict[str, None] = {}  # names, the oldest first
        self._index: ToolIndex | None = None
        self.searched = False
        self._search = ToolSearch(self)
        self._reader = ReadResourceTool(self._resources)

    def put(self, server: ServerConfig, offer: ServerOffer, tools: Sequence[OfferedTool]) -> None:
        """Offer exactly these tools of the server, and its resources, from the next request on."""
        self._offered = {name: tool for name, tool in self._offered.items() if tool.server != server.name}
        made = [ServerTool(server, each) for each in tools]
        for tool in made:
            # THREAT T184: the other name of one server's tool may be the name of another's, which stays what it is.
            self._offered.setdefault(tool.name, tool)
        self._resources.pop(server.name, None)
        if offer.resources:
            self._resources[server.name] = offer.resources
        self._index = None
        described = tool_specs(self.offered)
        many_tools = len(described) > MOST_DESCRIBED or weight_of_tools(described) > MOST_TOKENS
        self.searched = many_tools and self._registry.selection.selects(ToolSearch.name)
        self._update()

    @property
    def offered(self) -> tuple[ServerTool, ...]:
        """Return the tools of all servers that the session's selection allows, described or not."""
        selects = self._registry.selection.selects
        return tuple(tool for tool in self._offered.values() if selects(tool.name))

    def find(self, query: str, limit: int) -> list[ServerTool]:
        """Return the best matches, and describe them to the model from the next request on."""
        if self._index is None:
            self._index = ToolIndex(self.offered)
        found = self._index.best(query, min(limit, _MOST_FOUND))
        for tool in found:
            self._found.pop(tool.name, None)
            self._found[tool.name] = None
        for oldest in list(self._found)[:-MOST_DESCRIBED]:
            del self._found[oldest]
        self._update()
        return found

    def _update(self) -> None:
        """Make the registry equal to what the model may be told."""
        wanted: dict[str, ServerTool | ToolSearch | ReadResourceTool] = {}
        if self.searched:
            wanted[ToolSearch.name] = self._search
        if self._resources:
            wanted[ReadResourceTool.name] = self._reader
        wanted |= {name: tool for name, tool in self._offered.items() if not self.searched or name in self._found}
        kinds = ServerTool | ToolSearch | ReadResourceTool
        ours = {each.name: each for each in self._registry.every if isinstance(each, kinds)}
        for name, tool in ours.items():
            if wanted.get(name) is not tool:
                self._registry.remove(name)
        present = {each.name for each in self._registry.every}
        for name, tool in wanted.items():
            if name not in present:
                self._registry.add(tool)


class ToolSearch:
    """The tool that finds tools of servers. It answers when it renders: no server and no sandbox is asked."""

    name = "tool_search"
    example = '{"query": "create an issue"}'
    Args = SearchArgs

    def __init__(self, tools: ServerTools) -> None:
        self._tools = tools

    @property
    def description(self) -> str:
        """Return the description with the names of the servers and the numbers of their tools."""
        counts = Counter(tool.server for tool in self._tools.offered)
        servers = ", ".join(f"{server} ({number:,})" for server, number in counts.items())
        return (
            "Find tools of the connected tool servers. They are too many to be described here: search for what you "
            f"need, then call what was found by its name. The servers and the numbers of their tools: {servers}."
        )

    def plan(self, args: SearchArgs, cwd: str, seen: SeenFiles) -> SearchTools | Problem:
        """Return the search."""
        return SearchTools(args.query, args.limit)

    def render(
        self, action: SearchTools, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        """Search, and return the names, descriptions and schemas of what was found."""
        if finished.problem is not None:
            return (TextPart(tell(finished.problem)),)
        found = self._tools.find(action.query, action.limit)
        if not found:
            return (TextPart("[no tool matches; try other words, or the name of a server]"),)
        texts = []
        room = min(_LONGEST_TEXT, _LONGEST_ANSWER // len(found))
        for tool in found:
            schema = json.dumps(tool.Args.schema_for_model(), ensure_ascii=False)
            texts.append(f"{tool.name}\n{tool.description[:room]}\narguments: {schema[:room]}")
        body = marked("tools", "\n\n".join(texts))
        return (TextPart(f"[{many(len(found), 'tool')} found; call them by these names from now on]\n{body}"),)
