"""The OpenAI Chat Completions API, as OpenAI and many others serve it: OpenRouter, Ollama, vLLM, llama.cpp.

Messages become JSON requests, and the event stream becomes a Reply. Usage counts are disjoint: `input` excludes what
was read from or written to the cache.

The protocol lacks three features, which are replaced:
- a tool result has no error flag: its text starts with `TOOL_FAILED`;
- a tool result holds text only: its images follow, numbered, in a user message right after the turn's results;
- there is no field for thinking: servers stream it as `reasoning_content` or `reasoning`. Some of them demand it back
  beside tool calls, so it returns there, under the name it came with, and is left out everywhere else.
"""

import json
import secrets
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
    Usage,
    UserBlock,
    UserMessage,
)
from runner.providers.catalog import ThinkingKind, facts_of
from runner.providers.connection import SseEvent, WireRequest
from runner.providers.endpoint import Endpoint
from runner.providers.failures import Failures
from runner.providers.stream import AnswerParser, HttpProvider, tools_json
from runner.text.model_text import Closing, Json, count_of, parse_call, whole_text

REASONING = ("reasoning_content", "reasoning")

STOPS = {
    "stop": Stop.END,
    "tool_calls": Stop.TOOLS,
    "function_call": Stop.TOOLS,
    "length": Stop.LENGTH,
    "content_filter": Stop.REFUSAL,
}

ERROR_STATUS = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
}


@dataclass(slots=True)
class _Call:
    """A tool call while it arrives."""

    sent_id: str  # the id from the server, which several calls may have
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    closing: Closing = field(default_factory=Closing)
    broken: bool = False  # the closed object is not valid JSON
    ready: bool = False  # the call was returned as complete and may not grow any more
    full: bool = False  # the object is closed and not empty: later text is not part of it


class _StreamedCalls:
    """The tool calls of one answer while they arrive, in the order in which they began."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}  # the latest call of each number
        self._ids: set[str] = set()
        self._returned = 0  # the number of calls that were returned as complete

    def __bool__(self) -> bool:
        return bool(self._calls)

    def finished(self, stop: Stop) -> Iterator[ToolCall]:
        """Return all calls of an answer that ended for the reason `stop`."""
        return (self._finished(call, stop) for call in self._calls)

    def ready(self, stop: Stop) -> Iterator[CallReady]:
        """Return the calls that are complete at the end of the answer and were not returned before."""
        for call in self._calls:
            if not call.ready and (whole := self._finished(call, stop)).arguments is not None:
                call.ready = True
                yield CallReady(whole)

    def grow(self, piece: object) -> Iterator[CallOpened | CallReady]:
        """Yield what a piece of a call completes. Raises ProviderError for a malformed piece."""
        function = (piece.get("function") or {}) if isinstance(piece, dict) else None
        if not (isinstance(piece, dict) and isinstance(function, dict)):
            raise self._failures.malformed("a tool call in it lacks fields or has fields of wrong types")
        name = self._failures.string(function, "name")
        call, new = self._call_for(piece.get("index"), self._failures.string(piece, "id"), name)
        if new:
            yield from self._early()
            yield CallOpened(call.name)
        match function.get("arguments"):
            case None:
                text = ""
            case str(text):
                pass
            case dict(whole):
                text = json.dumps(whole)  # some servers send the object itself
            case _:
                raise self._failures.malformed("a tool call in it has arguments that are neither text nor an object")
        if call.ready:
            if (text.strip() and not call.full) or (name and not new and name != call.name):
                raise self._failures.malformed("a tool call in it continues after its end")
            return  # small models write an additional brace or a second object
        call.arguments.append(text)
        if call.closing.feed(text):
            yield from self._early()

    def _early(self) -> Iterator[CallReady]:
        """Return the complete calls in order, up to the first incomplete one.

        The protocol marks no end of a call: a call is complete when its JSON object is closed. An empty object may be a
        placeholder until the next call begins.
        """
        while self._returned < len(self._calls):
            call = self._calls[self._returned]
            if call.broken or not call.closing.closed:
                return
            whole = self._finished(call, Stop.TOOLS)
            call.broken = whole.arguments is None
            if call.broken or not (whole.arguments or call is not self._calls[-1]):
                return
            call.ready, call.full = True, bool(whole.arguments)
            self._returned += 1
            yield CallReady(whole)

    def _call_for(self, index: object, id_: str, name: str) -> tuple[_Call, bool]:
        """Return the call that a piece continues or begins, and True if the call is new.

        Servers differ: some number every call 0, some send no numbers.
        """
        number = index if isinstance(index, int) else None
        call = self._latest.get(number)
        new = call is None or bool(id_ and call.sent_id != id_)
        if call is None or new:
            sent_id = id_ or f"call_{secrets.token_hex(8)}"
            call = _Call(sent_id, sent_id if sent_id not in self._ids else f"{sent_id}-{len(self._calls)}")
            self._ids.add(call.id)
            self._calls.append(call)
            self._latest[number] = call
        if name != call.name and not call.ready:  # a name may come in parts, and some servers repeat it with every part
            call.name += name
        return call, new

    def _finished(self, call: _Call, stop: Stop) -> ToolCall:
        text = whole_text(call.arguments)
        if not text and stop is not Stop.TOOLS and call is self._calls[-1]:
            return ToolCall(call.id, call.name, None)  # cut before its first argument: that is not "no arguments"
        return parse_call(call.id, call.name, text)


class _ChatAnswer(AnswerParser):
    """Parser of one stream of chunks."""

    def __init__(self, failures: Failures, model: str) -> None:
        super().__init__(failures, model)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._thinking_field = ""
        self._refused = False
        self._calls = _StreamedCalls(failures)
        self._stop = ""
        self._done = False

    def take(self, event: SseEvent) -> Iterator[ReplyPiece]:
        if self.is_last(event):
            self._done = True
            return
        chunk = self._object(event)
        if (error := chunk.get("error")) or event.event == "error":
            raise self._coded_error(error or chunk, ERROR_STATUS)
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage = usage_of(usage, "prompt", "completion")
        match chunk.get("choices"):
            case [{"delta": dict(delta)} as choice, *_] if isinstance(choice, dict):
                yield from self._grow(delta)
                yield from self._finish(choice.get("finish_reason"))
            case [{"finish_reason": reason}, *_]:
                yield from self._finish(reason)
            case None | []:
                pass
            case _:
                raise self._failures.malformed("a chunk in it lacks fields or has fields of wrong types")

    def reply(self) -> Reply:
        if not (self.finished or self._done):
            raise self._failures.truncated("inside a tool call" if self._calls else "before the answer was complete")
        if not (self.finished or self._text or self._thinking or self._calls):
            raise self._failures.truncated("before the answer began")
        stop = self._stopped()
        content: list[ModelBlock] = []
        if thinking := whole_text(self._thinking):
            content.append(ThinkingBlock(thinking, MARK + self._thinking_field))
        if text := whole_text(self._text):
            content.append(TextBlock(text))
        content += self._calls.finished(stop)
        return Reply(AssistantMessage(tuple(content)), stop, self._usage)

    def _stopped(self) -> Stop:
        stop = STOPS.get(self._stop, Stop.OTHER)
        if self._refused:
            return Stop.REFUSAL
        return Stop.TOOLS if self._calls and stop is Stop.END else stop  # some servers say "stop" after calls

    def _grow(self, delta: Json) -> Iterator[ReplyPiece]:
        for name in REASONING:
            # A server that sends both names sends the same text twice.
            if (text := self._failures.string(delta, name)) and self._thinking_field in ("", name):
                self._thinking_field = name
                self._thinking.append(text)
                yield ThinkingDelta(text)
        for name in ("content", "refusal"):
            if text := self._failures.string(delta, name):
                self._refused = self._refused or name == "refusal"
                self._text.append(text)
                yield TextDelta(text)
        match delta.get("tool_calls"):
            case None:
                pass
            case list(pieces):
                for piece in pieces:
                    yield from self._calls.grow(piece)
            case _:
                raise self._failures.malformed("a tool call in it lacks fields or has fields of wrong types")

    def _finish(self, reason: object) -> Iterator[ReplyPiece]:
        if isinstance(reason, str) and reason:
            self._stop, again = reason, self.finished
            self.finished = True
            if not again:
                yield from self._calls.ready(self._stopped())


def usage_of(usage: object, sent: str, answered: str) -> Usage:
    """Return the disjoint counts of OpenAI's APIs. `sent` and `answered` are their words for the two kinds of token."""
    details = usage.get(f"{sent}_tokens_details") if isinstance(usage, dict) else None
    read, written = count_of(details, "cached_tokens") or 0, count_of(details, "cache_write_tokens") or 0
    total, output = count_of(usage, f"{sent}_tokens") or 0, count_of(usage, f"{answered}_tokens") or 0
    return Usage(max(total - read - written, 0), output, read, written)


class OpenAiProvider(HttpProvider):
    name = "openai"
    parser = _ChatAnswer

    def path(self, endpoint: Endpoint) -> str:
        return "chat/completions"

    def wire_request(self, request: Request) -> WireRequest:
        own_server = self._failures.endpoint.host.endswith((".openai.com", ".openai.azure.com"))
        return WireRequest(request.model, request_body(request, own_server=own_server))


# ---- requests

TOOL_FAILED = "[this tool call failed]"
MARK = "openai:"  # before the field name, in the signature of a ThinkingBlock that came from here


def request_body(request: Request, *, own_server: bool) -> Json:
    """Return the JSON body for `request`. OpenAI's own servers name the token limit differently from all other
    servers.
    """
    messages: list[Json] = [{"role": "system", "content": request.system}] if request.system.strip() else []
    for message in request.messages:
        messages.extend(_messages(message))
    body: Json = {
        "model": request.model,
        "max_completion_tokens" if own_server else "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": messages,
    }
    if request.tools:
        body["tools"] = [{"type": "function", "function": each} for each in tools_json(request, "parameters")]
    facts = facts_of(f"openai:{request.model}")
    if request.thinking is not Thinking.OFF and facts.thinking is ThinkingKind.EFFORT:
        body["reasoning_effort"] = facts.effort(request.thinking)
    return body


def _messages(message: Message) -> list[Json]:
    match message:
        case UserMessage():
            content = _content(message.content)
            return [{"role": "user", "content": content}] if content else []
        case AssistantMessage():
            text = _text(message.content)
            if not message.calls:
                return [{"role": "assistant", "content": text}] if text else []
            answer: Json = {"role": "assistant", "content": text or None}
            for block in message.content:
                if isinstance(block, ThinkingBlock) and block.signature.startswith(MARK):
                    answer[block.signature.removeprefix(MARK)] = block.text
            answer["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_json(call)}}
                for call in message.calls
            ]
            return [answer]
        case ToolMessage():
            wire: list[Json] = []
            images: list[UserBlock] = []
            for result in message.results:
                text = result_text(result, images, head=TOOL_FAILED if result.is_error else "")
                wire.append({"role": "tool", "tool_call_id": result.call_id, "content": text})
            return [*wire, {"role": "user", "content": _content(images)}] if images else wire
        case never:
            assert_never(never)


def _content(blocks: Sequence[UserBlock]) -> str | list[Json]:
    if not any(isinstance(block, ImageBlock) for block in blocks):
        return _text(blocks)
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image_url", "image_url": {"url": data_url(block)}}
        for block in blocks
        if isinstance(block, ImageBlock) or block.text.strip()
    ]


def _text(blocks: Sequence[object]) -> str:
    return "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock) and block.text.strip())


def data_url(image: ImageBlock) -> str:
    """Return the image as a `data:` URL."""
    return f"data:{image.media_type};base64,{image.data}"


def arguments_json(call: ToolCall) -> str:
    """Return the arguments as JSON.

    Arguments that did not parse are sent as an empty object: servers that parse them would refuse every later request.
    """
    return json.dumps(call.arguments or {}, ensure_ascii=False, allow_nan=False)


def result_text(result: ToolResult, images: list[UserBlock], *, head: str = "") -> str:
    """Return the text of a result below `head`. Its images are added to `images`, each after the label in the text."""
    lines = [head]
    for block in result.content:
        if isinstance(block, TextBlock):
            lines.append(block.text)
        else:
            label = f"[image {len(images) // 2 + 1}]"
            lines.append(f"{label} follows in the next message")
            images += [TextBlock(label), block]
    return "\n".join(line for line in lines if line.strip()) or "(no output)"
