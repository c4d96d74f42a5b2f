"""The Anthropic Messages API: messages as JSON requests, and the event stream as a Reply.

Usage counts are disjoint: `input` excludes what was read from or written to the cache.

Newer models bind a thinking block to everything before it, and refuse a conversation whose beginning has changed since:
another mode was chosen, or old turns were summarized. Such a request is sent again at once, with permission to ignore
the bound thinking blocks, and so are all later requests.
SOURCE: platform.claude.com/docs/en/build-with-claude/preserved-thinking.

Four points are marked for the prompt cache, which is as many as there may be: the tools, the system text, and the last
two turns of the user. The last marked turn of one request is the second last in the next, which reads the cache there.
SOURCE: platform.claude.com/docs/en/build-with-claude/prompt-caching, /thinking, /effort, /extended-thinking.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never

from runner.messages import (
    AssistantMessage,
    Block,
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
    ToolResult,
    UserMessage,
)
from runner.providers.catalog import SHARES, ThinkingKind, facts_of
from runner.providers.connection import SseEvent, WireRequest
from runner.providers.endpoint import Endpoint
from runner.providers.failures import ErrorReason, Failures, reason_of
from runner.providers.stream import AnswerParser, HttpProvider, tools_json
from runner.text.model_text import Json, count_of, parse_call, whole_text

VERSION = "2023-06-01"

STOPS = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "tool_use": Stop.TOOLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "refusal": Stop.REFUSAL,
}

# The HTTP status that the same error has outside a stream.
ERROR_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


@dataclass(slots=True)
class _Block:
    """A content block while it arrives. `kind` is the server's word; unknown kinds are kept out of the Reply."""

    kind: str
    id: str = ""
    name: str = ""
    text: list[str] = field(default_factory=list)
    signature: str = ""
    redacted: str = ""
    ended: bool = False


class _AnthropicAnswer(AnswerParser):
    """Parser of one event stream. Only the last event ends the answer."""

    def __init__(self, failures: Failures, model: str) -> None:
        super().__init__(failures, model)
        self._blocks: dict[int, _Block] = {}
        self._stop = ""
        self._complete = False

    def is_last(self, event: SseEvent) -> bool:
        return event.event == "message_stop"

    def take(self, event: SseEvent) -> Iterator[ReplyPiece]:
        content = self._object(event)
        match content:
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                yield from self._grow(index, str(delta.get("type")), delta)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(new)}:
                yield from self._start(index, new)
            case {"type": "content_block_stop", "index": int(index)}:
                yield from self._end(index)
            case {"type": "message_start", "message": {"usage": usage}}:
                self._count(usage)
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                self._stop = reason
                self._count(content.get("usage"))
            case {"type": "message_delta"}:
                self._count(content.get("usage"))
            case {"type": "message_stop"}:
                self._complete = True
            case {"type": "error"}:
                raise self._error(content)
            case {"type": "content_block_delta" | "content_block_start"}:
                raise self._failures.malformed("a content event in it lacks fields or has fields of wrong types")

    def reply(self) -> Reply:
        if not self._complete:
            open_call = any(block.kind == "tool_use" for block in self._blocks.values())
            raise self._failures.truncated("inside a tool call" if open_call else "before the answer was complete")
        stop = STOPS.get(self._stop, Stop.OTHER)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        content = [_finished(block) for block in blocks]
        ended = stop in (Stop.END, Stop.TOOLS)
        if not ended and content and isinstance(cut := content[-1], ToolCall) and not any(blocks[-1].text):
            content[-1] = replace(cut, arguments=None)  # cut before its first argument: that is not "no arguments"
        return Reply(AssistantMessage(tuple(block for block in content if block)), stop, self._usage)

    def _start(self, index: int, new: Json) -> Iterator[ReplyPiece]:
        if index in self._blocks:
            raise self._failures.malformed("a content block in it begins twice")
        match new:
            case {"type": "text", "text": str()}:
                self._blocks[index] = _Block("text")
                yield from self._grow(index, "text_delta", new)
            case {"type": "thinking"}:
                signature = new.get("signature")
                self._blocks[index] = _Block("thinking", signature=signature if isinstance(signature, str) else "")
                yield from self._grow(index, "thinking_delta", {"thinking": new.get("thinking") or ""})
            case {"type": "redacted_thinking", "data": str(data)}:
                self._blocks[index] = _Block("redacted_thinking", redacted=data)
            case {"type": "tool_use", "id": str(id_), "name": str(name)}:
                self._blocks[index] = _Block("tool_use", id=id_, name=name)
                yield CallOpened(name)
            case {"type": "text" | "redacted_thinking" | "tool_use"}:
                raise self._failures.malformed("a content block in it lacks fields or has fields of wrong types")
            case _:
                self._blocks[index] = _Block("other")

    def _grow(self, index: int, kind: str, delta: Json) -> Iterator[ReplyPiece]:
        block = self._blocks.get(index)
        match block, kind, delta:
            case None | _Block(ended=True), _, _:
                raise self._failures.malformed("a part in it belongs to no block")
            case _Block(kind="text"), "text_delta", {"text": str(text)}:
                block.text.append(text)
                if text:
                    yield TextDelta(text)
            case _Block(kind="thinking"), "thinking_delta", {"thinking": str(text)}:
                block.text.append(text)
                if text:
                    yield ThinkingDelta(text)
            case _Block(kind="thinking"), "signature_delta", {"signature": str(signature)}:
                block.signature = signature
            case _Block(kind="tool_use"), "input_json_delta", {"partial_json": str(text)}:
                block.text.append(text)
            case _Block(kind="other"), _, _:
                pass
            case _, "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta", _:
                raise self._failures.malformed("a part in it has another type than its block")

    def _end(self, index: int) -> Iterator[ReplyPiece]:
        block = self._blocks.get(index)
        if block is None or block.ended:
            return
        block.ended = True
        # A call without arguments may have been cut before the first; only the end of the answer shows that.
        if any(block.text) and isinstance(call := _finished(block), ToolCall) and call.arguments is not None:
            yield CallReady(call)

    def _count(self, usage: object) -> None:
        # Counts are totals so far: a later one replaces an earlier one, an absent one leaves it.
        counts = {
            "input": count_of(usage, "input_tokens"),
            "output": count_of(usage, "output_tokens"),
            "cache_read": count_of(usage, "cache_read_input_tokens"),
            "cache_write": count_of(usage, "cache_creation_input_tokens"),
        }
        self._usage = replace(self._usage, **{name: count for name, count in counts.items() if count is not None})

    def _error(self, content: Json) -> ProviderError:
        error = content.get("error")
        reason = reason_of(error) if isinstance(error, dict) else ErrorReason()
        return self._failures.status(reason.status(ERROR_STATUS), reason, self._model, late=True)


def _finished(block: _Block) -> ModelBlock | None:
    text = whole_text(block.text)
    match block.kind:
        case "text":
            return TextBlock(text) if text else None
        case "thinking":
            return ThinkingBlock(text, block.signature)
        case "redacted_thinking":
            return ThinkingBlock("", redacted=block.redacted)
        case "tool_use":
            return parse_call(block.id, block.name, text)
        case _:
            return None


class AnthropicProvider(HttpProvider):
    name = "anthropic"
    parser = _AnthropicAnswer
    key_header = ("x-api-key", "")
    headers = (("anthropic-version", VERSION),)
    refused_feature = re.compile("bound to a different conversation")  # thinking blocks; then they may be ignored

    def path(self, endpoint: Endpoint) -> str:
        return "messages" if endpoint.url.endswith("/v1") else "v1/messages"

    def models_path(self, endpoint: Endpoint) -> str:
        return self.path(endpoint).replace("messages", "models")

    def wire_request(self, request: Request) -> WireRequest:
        body = request_body(request, unbound=self.reduced)
        return WireRequest(request.model, body, headers=betas(body))


# ---- requests

TURNS_CACHED = 2  # marked turns at the end; with tools and system text the most marks that a request may have
LEAST_BUDGET = 1024  # tokens of thinking, the fewest that the server accepts; the most is `max_tokens`

BINDING = "thinking-binding-controls-2026-08-01"  # permission to ignore bound thoughts
INTERLEAVED = "interleaved-thinking-2025-05-14"  # older models think between two calls, too, as newer ones do anyway


def request_body(request: Request, *, unbound: bool = False) -> Json:
    """Return the JSON body for `request`.

    With `unbound`, the server ignores thinking blocks that are bound to another beginning of the conversation;
    otherwise it refuses them.
    """
    messages = [wire for message in request.messages if (wire := _message(message))["content"]]
    body: Json = {"model": request.model, "max_tokens": request.max_tokens, "stream": True, "messages": messages}
    if request.system.strip():
        body["system"] = [_cached({"type": "text", "text": request.system})]
    if request.tools:
        tools = tools_json(request, "input_schema")
        body["tools"] = [*tools[:-1], _cached(tools[-1])]
    for message in [each for each in messages if each["role"] == "user"][-TURNS_CACHED:]:
        if isinstance(content := message["content"], list):
            content[-1] = _cached(content[-1])
    return {**body, **_thinking(request, messages, unbound=unbound)}


def betas(body: Json) -> dict[str, str]:
    """Return the header for the beta features that `body` uses; no header if it uses none."""
    thinking = body.get("thinking")
    wanted: list[str] = []
    if isinstance(thinking, dict):
        wanted += [INTERLEAVED] * (thinking.get("type") == "enabled" and "tools" in body)
        wanted += [BINDING] * ("block_binding" in thinking)
    return {"anthropic-beta": ",".join(wanted)} if wanted else {}


def _thinking(request: Request, messages: list[Json], *, unbound: bool) -> Json:
    facts = facts_of(f"anthropic:{request.model}")
    asked = request.thinking is not Thinking.OFF
    body: Json = {}
    thinking: Json = {}
    if facts.thinking is ThinkingKind.ADAPTIVE and (asked or facts.thinks):
        # Shown also without a request: newer models put their text between two calls into thinking blocks.
        thinking = {"type": "adaptive", "display": "summarized"}
        if asked:
            body["output_config"] = {"effort": facts.effort(request.thinking)}
    elif facts.thinking is ThinkingKind.BUDGET and asked and not _thoughtless_calls(messages):
        budget = max(int(request.max_tokens * SHARES[request.thinking]), LEAST_BUDGET)
        if budget + LEAST_BUDGET <= request.max_tokens:  # else there is no room for an answer
            thinking = {"type": "enabled", "budget_tokens": budget}
    if unbound:
        thinking = {"type": "adaptive", **thinking, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    return {**body, "thinking": thinking} if thinking else body


def _thoughtless_calls(messages: list[Json]) -> bool:
    """Return True if the calls whose results are sent came without a thinking block.

    Such calls are from an interrupted answer or from another model. A server with thinking enabled refuses them,
    because the answer that contains them must begin with a thinking block.
    """
    for message in reversed(messages):
        if message["role"] == "assistant" and isinstance(content := message["content"], list):
            return content[0]["type"] not in ("thinking", "redacted_thinking") and content[-1]["type"] == "tool_use"
    return False


def _cached(block: Json) -> Json:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _message(message: Message) -> Json:
    match message:
        case UserMessage(content):
            return {"role": "user", "content": _blocks(content)}
        case AssistantMessage(content):
            return {"role": "assistant", "content": _blocks(content)}
        case ToolMessage(results):
            # The server takes no images in a result that is an error; they follow the results.
            failed = (block for result in results if result.is_error for block in result.content)
            images = [block for block in failed if isinstance(block, ImageBlock)]
            return {"role": "user", "content": [*map(_result, results), *_blocks(images)]}
        case never:
            assert_never(never)


def _blocks(content: Iterable[Block]) -> list[Json]:
    return [wire for block in content if (wire := _block(block))]


def _block(block: Block) -> Json | None:
    match block:
        case TextBlock(text):
            # Blank text blocks are refused by the server, and would make every later request of the session fail too.
            return {"type": "text", "text": text} if text.strip() else None
        case ImageBlock():
            return {"type": "image", "source": {"type": "base64", "media_type": block.media_type, "data": block.data}}
        case ThinkingBlock(signature="", redacted=data) if data:
            return {"type": "redacted_thinking", "data": data}
        case ThinkingBlock():
            # Unsigned thinking, and thinking that another provider marked (theirs has a colon), is not accepted here.
            if not block.signature or ":" in block.signature:
                return None
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case ToolCall():
            # Arguments that did not parse are sent as an empty object: the server demands one, and the result says why.
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments or {}}
        case never:
            assert_never(never)


def _result(result: ToolResult) -> Json:
    content = (block for block in result.content if isinstance(block, TextBlock) or not result.is_error)
    wire: Json = {"type": "tool_result", "tool_use_id": result.call_id, "content": _blocks(content)}
    return {**wire, "is_error": True} if result.is_error else wire
