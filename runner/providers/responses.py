"""The OpenAI Responses API: messages as JSON requests, and the event stream as a Reply.

OpenAI's own servers are used with this API, because their newer models call tools with no other API. Other servers with
OpenAI's protocol offer Chat Completions (`openai`), unless the setting `provider.openai.api` is set.
Usage counts are disjoint: `input` excludes what was read from or written to the cache.
SOURCE: developers.openai.com/api/reference/resources/responses/streaming-events.

The server stores no data (`store` is off), so each request repeats what the model needs: its reasoning, encrypted as
received, and the phase of each text. Both are in the signature of a ThinkingBlock (`MARK`, then JSON), with the name of
their model: another model cannot read them. Thoughts in words are only in the text of the block, where secrets are
masked. As in `openai`, the text of a result that is an error starts with `TOOL_FAILED`.
SOURCE: developers.openai.com/api/docs/guides/reasoning (encrypted reasoning items), /migrate-to-responses,
/api/reference/resources/responses.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    ImageBlock,
    Message,
    ModelBlock,
    ProviderError,
    Reply,
    ReplyPiece,
    Request,
    Stop,
    TextBlock,
    TextDelta,
    Thinking,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    UserBlock,
    UserMessage,
)
from runner.providers.catalog import ThinkingKind, facts_of
from runner.providers.connection import SseEvent, WireRequest
from runner.providers.endpoint import Endpoint
from runner.providers.failures import ErrorReason, Failures, reason_of
from runner.providers.openai import ERROR_STATUS, TOOL_FAILED, arguments_json, data_url, usage_of
from runner.providers.stream import AnswerParser, HttpProvider, tools_json
from runner.text.model_text import Json, parse_call, parse_object, whole_text

INCOMPLETE = {"max_output_tokens": Stop.LENGTH, "content_filter": Stop.REFUSAL}
# Codes of errors in the stream that are caused by the request: repeating the request gives the same error.
_OURS = re.compile(r"(?:invalid|image|unsupported|empty|failed_to|bio|misalignment|data_residency)_.*")
_LAST = re.compile(r'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')


@dataclass(slots=True)
class _Item:
    """An item of the output while it arrives. Items of unknown kinds are not part of the Reply."""

    kind: str
    id: str = ""
    name: str = ""
    text: list[str] = field(default_factory=list)
    part: object = None  # the part of a summary that the last text belongs to
    kept: Json = field(default_factory=dict)
    ended: bool = False
    ready: ToolCall | None = None


class _ResponsesAnswer(AnswerParser):
    """Parser of one event stream. Only the last event ends the answer."""

    def __init__(self, failures: Failures, model: str) -> None:
        super().__init__(failures, model)
        self._items: dict[int, _Item] = {}
        self._ids: set[str] = set()
        self._stop: Stop | None = None
        self._refused = False

    def is_last(self, event: SseEvent) -> bool:
        return super().is_last(event) or _LAST.search(event.data[:200]) is not None

    def take(self, event: SseEvent) -> Iterator[ReplyPiece]:
        if super().is_last(event):
            return
        content = self._object(event)
        match content:
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
                raise self._failures.malformed("an event in it lacks fields or has fields of wrong types")

    def reply(self) -> Reply:
        items = [self._items[index] for index in sorted(self._items)]
        calls = any(item.kind == "function_call" for item in items)
        if self._stop is None:
            raise self._failures.truncated("inside a tool call" if calls else "before the answer was complete")
        stop = Stop.REFUSAL if self._refused else Stop.TOOLS if calls and self._stop is Stop.END else self._stop
        content = [block for item in items for block in self._blocks(item, stop)]
        return Reply(AssistantMessage(tuple(content)), stop, self._usage)

    def _begin(self, index: int, item: Json) -> Iterator[ReplyPiece]:
        if index in self._items:
            raise self._failures.malformed("an item in it begins twice")
        match item:
            case {"type": "function_call", "call_id": str(id_), "name": str(name)} if id_ not in self._ids:
                self._ids.add(id_)
                self._items[index] = _Item("function_call", id_, name)
                yield CallOpened(name)
            case {"type": "function_call"}:
                raise self._failures.malformed("a tool call in it lacks fields or has fields of wrong types")
            case {"type": "message" | "reasoning" as kind}:
                self._items[index] = _Item(kind)
            case _:
                self._items[index] = _Item("other")

    def _grow(self, index: int, kind: str, text: str, part: object) -> Iterator[ReplyPiece]:
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

    def _end(self, index: int, whole: Json) -> Iterator[ReplyPiece]:
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
                call = parse_call(item.id, item.name, whole_text(item.text))
                if whole.get("status") != "incomplete" and call.arguments is not None and any(item.text):
                    item.ready = call
                    yield CallReady(call)
        item.ended = True

    def _finish(self, kind: str, response: Json) -> None:
        self._usage = usage_of(response.get("usage"), "input", "output")
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        self._stop = Stop.END if kind == "response.completed" else INCOMPLETE.get(str(reason), Stop.OTHER)

    def _blocks(self, item: _Item, stop: Stop) -> Iterator[ModelBlock]:
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
                whole = ToolCall(item.id, item.name, None) if cut else parse_call(item.id, item.name, text)
                yield item.ready or whole

    def _error(self, error: object) -> ProviderError:
        reason = reason_of(error) if isinstance(error, dict) else ErrorReason()
        status = reason.status(ERROR_STATUS)
        if status == 500 and _OURS.fullmatch(reason.code):
            status = 400
        return self._failures.status(status, reason, self._model, late=True)


def _texts(parts: object) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each part of an item's content or summary."""
    for part in parts if isinstance(parts, list) else ():
        match part:
            case {"type": "refusal", "refusal": str(text)}:
                yield "refusal", text
            case {"type": "output_text" | "summary_text" as kind, "text": str(text)}:
                yield kind, text


class ResponsesProvider(HttpProvider):
    name = "openai"
    parser = _ResponsesAnswer
    refused_feature = re.compile(r"reasoning[. ]summar")  # the error for organizations that are not verified

    def path(self, endpoint: Endpoint) -> str:
        return "responses"

    def wire_request(self, request: Request) -> WireRequest:
        return WireRequest(request.model, request_body(request, summaries=not self.reduced))


# ---- requests

MARK = "responses:"
PHASES = ("commentary", "final_answer")


def request_body(request: Request, *, summaries: bool = True) -> Json:
    """Return the JSON body for `request`.

    With `summaries`, the server is asked for summaries of the thinking, which OpenAI sends to verified organizations
    only.
    """
    facts = facts_of(f"openai:{request.model}")
    body: Json = {
        "model": request.model,
        "max_output_tokens": request.max_tokens,
        "stream": True,
        "store": False,
        "input": [item for message in request.messages for item in _items(message, request.model)],
    }
    if request.system.strip():
        body["instructions"] = request.system
    if facts.window is not None and facts.thinking is ThinkingKind.EFFORT:  # a model that does not reason refuses it
        body["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        body["tools"] = [{"type": "function", **each, "strict": False} for each in tools_json(request, "parameters")]
    if request.thinking is not Thinking.OFF and facts.thinking is ThinkingKind.EFFORT:
        reasoning: Json = {"effort": facts.effort(request.thinking)}
        body["reasoning"] = {**reasoning, "summary": "auto"} if summaries else reasoning
    return body


def signed(model: str, kept: Json) -> str:
    """Return the signature of a block that sends `kept` back to `model`."""
    return MARK + json.dumps({"model": model, **kept}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _items(message: Message, model: str) -> Iterator[Json]:
    match message:
        case UserMessage():
            if content := _content(message.content):
                yield {"type": "message", "role": "user", "content": content}
        case AssistantMessage():
            yield from _own(message, model)
        case ToolMessage():
            for result in message.results:
                failed = (TextBlock(TOOL_FAILED),) if result.is_error else ()
                blocks = (*failed, *result.content)
                texts = [block.text for block in blocks if isinstance(block, TextBlock) and block.text.strip()]
                images = any(isinstance(block, ImageBlock) for block in blocks)
                output = _content(blocks) if images else "\n".join(texts) or "(no output)"
                yield {"type": "function_call_output", "call_id": result.call_id, "output": output}
        case never:
            assert_never(never)


def _content(blocks: Sequence[UserBlock]) -> list[Json]:
    return [
        {"type": "input_text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "input_image", "detail": "auto", "image_url": data_url(block)}
        for block in blocks
        if isinstance(block, ImageBlock) or block.text.strip()
    ]


def _own(message: AssistantMessage, model: str) -> Iterator[Json]:
    item: Json
    reasoning: Json | None = None  # precedes the item that it led to; the server refuses reasoning alone
    phase = ""
    for block in message.content:
        match block:
            case ThinkingBlock():
                kept = _kept(block, model)
                if isinstance(thought := kept.get("item"), dict):
                    summary = [{"type": "summary_text", "text": block.text}] if block.text else []
                    reasoning = {"type": "reasoning", **thought, "summary": summary}
                phase = value if (value := kept.get("phase")) in PHASES and isinstance(value, str) else phase
                continue
            case TextBlock(text):
                if not text.strip():
                    continue
                item = {"type": "message", "role": "assistant", "content": text, **({"phase": phase} if phase else {})}
                phase = ""
            case ToolCall():
                item = {
                    "type": "function_call",
                    "call_id": block.id,
                    "name": block.name,
                    "arguments": arguments_json(block),
                }
            case never:
                assert_never(never)
        if reasoning is not None:
            yield reasoning
            reasoning = None
        yield item


def _kept(block: ThinkingBlock, model: str) -> Json:
    """Return the data in the signature of a block that came from `model` by this API; an empty object for another
    block.
    """
    if not block.signature.startswith(MARK):
        return {}
    kept = parse_object(block.signature.removeprefix(MARK)) or {}
    return kept if kept.get("model") == model else {}
