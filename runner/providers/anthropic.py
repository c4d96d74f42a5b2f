"""The Anthropic Messages API: its event stream as a Reply.

Usage counts are disjoint: `input` excludes what was read from or written to the cache.

Newer models bind a thought to everything before it, and refuse a conversation whose beginning has changed since: the
mode is another, or old turns were summed up. Such a request is sent again at once, with leave to pass the bound
thoughts over, and so are all that follow. SOURCE: platform.claude.com/docs/en/build-with-claude/preserved-thinking.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

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
from runner.providers.anthropic_body import betas, request_body
from runner.providers.connection import Connection, KeyHeader
from runner.providers.endpoint import Endpoint, Timeouts
from runner.providers.error_reason import Said, said_by
from runner.providers.failures import Failures
from runner.providers.sse import SseEvent
from runner.providers.stream import Exchange, HttpProvider, Piece
from runner.secrets.secret import Secret
from runner.text.model_text import count_of, parse_arguments, parse_object, whole_text

VERSION = "2023-06-01"
_BOUND = re.compile("bound to a different conversation")

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

Json = dict[str, object]


class AnthropicProvider(HttpProvider):
    name = "anthropic"

    def __init__(self, endpoint: Endpoint, secret: Secret | None, timeouts: Timeouts | None = None) -> None:
        path = "messages" if endpoint.url.endswith("/v1") else "v1/messages"
        connection = Connection(
            Failures(self.name, endpoint, secret, timeouts or Timeouts()),
            path,
            auth=KeyHeader("x-api-key", "", secret) if secret else None,
            headers={"anthropic-version": VERSION},
        )
        super().__init__(connection)
        self._unbound = False

    def exchange(self, request: Request) -> Exchange:
        parser = _Answer(self._connection.failures, request.model)
        body = request_body(request, unbound=self._unbound)
        return Exchange(request.model, body, parser, _is_last, headers=betas(body))

    def retry_without(self, error: ProviderError) -> bool:
        """Return True, and let the server skip bound thinking blocks from now on, if the server refuses one."""
        if self._unbound or error.status != 400 or not _BOUND.search(error.server_message):
            return False
        self._unbound = True
        return True


def _is_last(event: SseEvent) -> bool:
    return event.event == "message_stop"


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


class _Answer:
    """Accumulates one event stream."""

    finished = False  # nothing but the last event ends the answer

    def __init__(self, failures: Failures, model: str) -> None:
        self._failures = failures
        self._model = model
        self._blocks: dict[int, _Block] = {}
        self._usage = Usage()
        self._stop = ""
        self._complete = False

    def take(self, event: SseEvent) -> Iterator[Piece]:
        """Yield the parts that `event` completes. Unknown events and fields are ignored, as the API requires of
        clients.
        """
        content = parse_object(event.data)
        match content:
            case None:
                raise self._failures.malformed("an event in it is not JSON")
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
                raise self._failures.malformed("a content event in it lacks what such events have")
            case _:
                pass

    def reply(self) -> Reply:
        """Return the whole answer. Raises ProviderError if the stream ended early."""
        if not self._complete:
            open_call = any(block.kind == "tool_use" for block in self._blocks.values())
            raise self._failures.truncated("inside a tool call" if open_call else "before the answer did")
        stop = STOPS.get(self._stop, Stop.OTHER)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        content = [_finished(block) for block in blocks]
        ended = stop in (Stop.END, Stop.TOOLS)
        if not ended and content and isinstance(cut := content[-1], ToolCall) and not any(blocks[-1].text):
            content[-1] = replace(cut, arguments=None)  # cut before its first argument: that is not "no arguments"
        return Reply(AssistantMessage(tuple(block for block in content if block)), stop, self._usage)

    def _start(self, index: int, new: Json) -> Iterator[Piece]:
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
                raise self._failures.malformed("a content block in it lacks what such blocks have")
            case _:
                self._blocks[index] = _Block("other")

    def _grow(self, index: int, kind: str, delta: Json) -> Iterator[Piece]:
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
                raise self._failures.malformed("a part in it does not fit its block")
            case _:
                pass

    def _end(self, index: int) -> Iterator[Piece]:
        block = self._blocks.get(index)
        if block is None or block.ended:
            return
        block.ended = True
        # Without arguments it may have been cut before the first: only the end of the answer tells.
        if block.kind == "tool_use" and any(block.text):
            call = _finished(block)
            if isinstance(call, ToolCall) and call.arguments is not None:
                yield CallReady(call)

    def _count(self, usage: object) -> None:
        # Counts are totals so far: a later one replaces an earlier one, an absent one leaves it.
        old = self._usage
        fresh = {
            "input": count_of(usage, "input_tokens"),
            "output": count_of(usage, "output_tokens"),
            "cache_read": count_of(usage, "cache_read_input_tokens"),
            "cache_write": count_of(usage, "cache_creation_input_tokens"),
        }
        self._usage = replace(old, **{name: value for name, value in fresh.items() if value is not None})

    def _error(self, content: Json) -> ProviderError:
        error = content.get("error")
        said = said_by(error) if isinstance(error, dict) else Said()
        return self._failures.status(said.status(ERROR_STATUS), said, self._model, late=True)


def _finished(block: _Block) -> TextBlock | ThinkingBlock | ToolCall | None:
    text = whole_text(block.text)
    match block.kind:
        case "text":
            return TextBlock(text) if text else None
        case "thinking":
            return ThinkingBlock(text, block.signature)
        case "redacted_thinking":
            return ThinkingBlock("", redacted=block.redacted)
        case "tool_use":
            arguments = parse_arguments(text)
            return ToolCall(block.id, block.name, arguments, "" if arguments is not None else text)
        case _:
            return None
