"""The OpenAI Responses API: its event stream as a Reply.

OpenAI's own servers are asked by it: their newer models call tools by no other. Servers that speak OpenAI's protocol
mean Chat Completions (`openai`), unless the setting `provider.openai.api` says otherwise.
Usage counts are disjoint: `input` excludes what was read from or written to the cache.
SOURCE: developers.openai.com/api/reference/resources/responses/streaming-events.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    ProviderError,
    Reply,
    Request,
    Stop,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    Usage,
)
from runner.providers.connection import Connection, KeyHeader
from runner.providers.endpoint import Endpoint, Timeouts
from runner.providers.error_reason import Said, said_by
from runner.providers.failures import Failures
from runner.providers.openai import ERROR_STATUS
from runner.providers.responses_body import PHASES, request_body, signed
from runner.providers.sse import SseEvent
from runner.providers.stream import Exchange, HttpProvider, Piece
from runner.secrets.secret import Secret
from runner.text.model_text import count_of, parse_arguments, parse_object, whole_text

INCOMPLETE = {"max_output_tokens": Stop.LENGTH, "content_filter": Stop.REFUSAL}
# Of what is wrong with the request, told in the stream: asking again gives the same.
_OURS = re.compile(r"(?:invalid|image|unsupported|empty|failed_to|bio|misalignment|data_residency)_.*")
_UNVERIFIED = re.compile(r"reasoning[. ]summar")
_LAST = re.compile(r'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')

Json = dict[str, object]


class ResponsesProvider(HttpProvider):
    name = "openai"

    def __init__(self, endpoint: Endpoint, secret: Secret | None, timeouts: Timeouts | None = None) -> None:
        connection = Connection(
            Failures(self.name, endpoint, secret, timeouts or Timeouts()),
            "responses",
            auth=KeyHeader("authorization", "Bearer ", secret) if secret else None,
            headers={},
        )
        super().__init__(connection)
        self._summaries = True

    def exchange(self, request: Request) -> Exchange:
        parser = _Answer(self._connection.failures, request.model)
        return Exchange(request.model, request_body(request, summaries=self._summaries), parser, _is_last)

    def retry_without(self, error: ProviderError) -> bool:
        """Return True, and ask for no summaries from now on, if the server refuses to summarize the reasoning."""
        if not self._summaries or error.status != 400 or not _UNVERIFIED.search(error.server_message):
            return False
        self._summaries = False
        return True


def _is_last(event: SseEvent) -> bool:
    return event.data.strip() == "[DONE]" or _LAST.search(event.data[:200]) is not None


@dataclass(slots=True)
class _Item:
    """An item of the output while it arrives. Items of unknown kinds are not part of the Reply."""

    kind: str
    id: str = ""
    name: str = ""
    text: list[str] = field(default_factory=list)
    part: object = None  # which part of a summary the last text belonged to
    kept: Json = field(default_factory=dict)
    ended: bool = False
    ready: ToolCall | None = None


class _Answer:
    """Accumulates one event stream."""

    finished = False  # nothing but the last event ends the answer

    def __init__(self, failures: Failures, model: str) -> None:
        self._failures = failures
        self._model = model
        self._items: dict[int, _Item] = {}
        self._ids: set[str] = set()
        self._usage = Usage()
        self._stop: Stop | None = None
        self._refused = False

    def take(self, event: SseEvent) -> Iterator[Piece]:
        """Yield the parts that `event` completes. Unknown events and fields are ignored."""
        if event.data.strip() == "[DONE]":
            return
        content = parse_object(event.data)
        match content:
            case None:
                raise self._failures.malformed("an event in it is not JSON")
            case {"type": "response.output_item.added", "output_index": int(index), "item": dict(item)}:
                yield from self._begin(index, item)
            case {"type": "response.output_item.done", "output_index": int(index), "item": dict(item)}:
                yield from self._end(index, item)
            case {"type": str(kind), "output_index": int(index), "delta": str(text)}:
                yield from self._grow(index, kind, text, content.get("summary_index"))
            case {"type": "response.completed" | "response.incomplete" as kind, "response": dict(response)}:
                self._finish(kind, response)
            case {"type": "response.failed", "response": {"error": error}} | {"type": "error", "error": error}:
                raise self._error(error)
            case {"type": "error"}:
                raise self._error(content)
            case {"error": dict(error)}:
                raise self._error(error)
            case {"type": str(kind)} if kind.endswith(".delta") or kind.startswith("response.output_item."):
                raise self._failures.malformed("an event in it lacks what such events have")
            case _:
                pass

    def reply(self) -> Reply:
        """Return the whole answer. Raises ProviderError if the stream ended early."""
        items = [self._items[index] for index in sorted(self._items)]
        calls = any(item.kind == "function_call" for item in items)
        if self._stop is None:
            raise self._failures.truncated("inside a tool call" if calls else "before the answer did")
        stop = Stop.REFUSAL if self._refused else Stop.TOOLS if calls and self._stop is Stop.END else self._stop
        content = [block for item in items for block in self._blocks(item, stop)]
        return Reply(AssistantMessage(tuple(content)), stop, self._usage)

    def _begin(self, index: int, item: Json) -> Iterator[Piece]:
        if index in self._items:
            raise self._failures.malformed("an item in it begins twice")
        match item:
            case {"type": "function_call", "call_id": str(id_), "name": str(name)} if id_ not in self._ids:
                self._ids.add(id_)
                self._items[index] = _Item("function_call", id_, name)
                yield CallOpened(name)
            case {"type": "function_call"}:
                raise self._failures.malformed("a tool call in it lacks what tool calls have")
            case {"type": "message" | "reasoning" as kind}:
                self._items[index] = _Item(kind)
            case _:
                self._items[index] = _Item("other")

    def _grow(self, index: int, kind: str, text: str, part: object) -> Iterator[Piece]:
        item = self._items.get(index)
        match item, kind:
            case None | _Item(ended=True), _:
                raise self._failures.malformed("a part in it belongs to no item")
            case _Item(kind="message"), "response.output_text.delta" | "response.refusal.delta":
                self._refused = self._refused or kind == "response.refusal.delta"
                item.text.append(text)
                if text:
                    yield TextDelta(text)
            case _Item(kind="reasoning"), "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                if item.text and part != item.part:
                    text = f"\n\n{text}"
                item.part = part
                item.text.append(text)
                if text:
                    yield ThinkingDelta(text)
            case _Item(kind="function_call"), "response.function_call_arguments.delta":
                item.text.append(text)
            case _:
                pass

    def _end(self, index: int, whole: Json) -> Iterator[Piece]:
        """Yield what the end of an item adds. The event repeats the whole item, for servers that sent no parts
        before.
        """
        if index not in self._items:
            yield from self._begin(index, whole)
        item = self._items[index]
        if item.ended:
            raise self._failures.malformed("an item in it ends twice")
        match item.kind:
            case "message":
                if not any(item.text):
                    for kind, text in _texts(whole.get("content")):
                        yield from self._grow(index, f"response.{kind}.delta", text, None)
                if (phase := whole.get("phase")) in PHASES:
                    item.kept = {"phase": phase}
            case "reasoning":
                if not any(item.text):
                    for part, (_, text) in enumerate(_texts(whole.get("summary"))):
                        yield from self._grow(index, "response.reasoning_summary_text.delta", text, part)
                id_, secret = whole.get("id"), whole.get("encrypted_content")
                if isinstance(id_, str) and isinstance(secret, str):
                    item.kept = {"item": {"id": id_, "encrypted_content": secret}}
            case "function_call":
                if isinstance(arguments := whole.get("arguments"), str):
                    item.text = [arguments]
                call = self._call(item, whole_text(item.text))
                if whole.get("status") != "incomplete" and call.arguments is not None and any(item.text):
                    item.ready = call
                    yield CallReady(call)
        item.ended = True

    def _finish(self, kind: str, response: Json) -> None:
        usage = response.get("usage")
        details = usage.get("input_tokens_details") if isinstance(usage, dict) else None
        read, written = count_of(details, "cached_tokens") or 0, count_of(details, "cache_write_tokens") or 0
        sent, output = count_of(usage, "input_tokens") or 0, count_of(usage, "output_tokens") or 0
        self._usage = Usage(max(sent - read - written, 0), output, read, written)
        match kind, response.get("incomplete_details"):
            case "response.completed", _:
                self._stop = Stop.END
            case _, {"reason": str(reason)}:
                self._stop = INCOMPLETE.get(reason, Stop.OTHER)
            case _:
                self._stop = Stop.OTHER

    def _blocks(self, item: _Item, stop: Stop) -> Iterator[TextBlock | ThinkingBlock | ToolCall]:
        text = whole_text(item.text)
        match item.kind:
            case "message":
                if text and item.kept:
                    yield ThinkingBlock("", signed(self._model, item.kept))
                if text:
                    yield TextBlock(text)
            case "reasoning":
                if text or item.kept:
                    yield ThinkingBlock(text, signed(self._model, item.kept) if item.kept else "")
            case "function_call":
                cut = not text and stop is not Stop.TOOLS  # before its first argument: that is not "no arguments"
                yield item.ready or (ToolCall(item.id, item.name, None) if cut else self._call(item, text))

    def _call(self, item: _Item, text: str) -> ToolCall:
        arguments = parse_arguments(text)
        return ToolCall(item.id, item.name, arguments, "" if arguments is not None else text)

    def _error(self, error: object) -> ProviderError:
        said = said_by(error) if isinstance(error, dict) else Said()
        status = said.status(ERROR_STATUS)
        if status == 500 and _OURS.fullmatch(said.code):
            status = 400
        return self._failures.status(status, said, self._model, late=True)


def _texts(parts: object) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each part of an item's content or summary."""
    for part in parts if isinstance(parts, list) else ():
        match part:
            case {"type": "refusal", "refusal": str(text)}:
                yield "refusal", text
            case {"type": "output_text" | "summary_text" as kind, "text": str(text)}:
                yield kind, text
            case _:
                pass
