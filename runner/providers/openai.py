"""The OpenAI Chat Completions API, as OpenAI and many others serve it: OpenRouter, Ollama, vLLM, llama.cpp.

Usage counts are disjoint: `input` excludes what was read from or written to the cache.
"""

import json
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    ProviderError,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    Usage,
)
from runner.providers.connection import Connection, KeyHeader
from runner.providers.endpoint import Endpoint, Timeouts
from runner.providers.failures import Failures, unframed
from runner.providers.modeltext import Closing, count_of, parse_arguments, parse_object, whole_text, wire_json
from runner.providers.openai_body import MARK, request_body
from runner.providers.said import Said, said_by
from runner.providers.sse import SseEvent
from runner.secrets import Secret

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

Json = dict[str, object]
Piece = TextDelta | ThinkingDelta | CallOpened | CallReady


class OpenAiProvider:
    name = "openai"

    def __init__(self, endpoint: Endpoint, secret: Secret | None, timeouts: Timeouts | None = None) -> None:
        self._own_server = endpoint.host.endswith((".openai.com", ".openai.azure.com"))
        self._connection = Connection(
            Failures(self.name, endpoint, secret, timeouts or Timeouts()),
            "chat/completions",
            auth=KeyHeader("authorization", "Bearer ", secret) if secret else None,
            headers={},
        )

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Text and thinking as they arrive, then the Reply. Raises ProviderError; closing it closes the connection."""
        return unframed(self._stream(request))

    async def _stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        answer = _Answer(self._connection.failures, request.model)
        body = wire_json(request_body(request, own_server=self._own_server))
        try:
            async with aclosing(self._connection.events(body, request.model, _is_last)) as events:
                async for event in events:
                    for delta in answer.take(event):
                        yield delta
        except ProviderError:
            # After the finish reason only the usage was still to come: a server that then breaks off loses no answer.
            if not answer.finished:
                raise
        yield answer.reply()

    async def close(self) -> None:
        await self._connection.close()


def _is_last(event: SseEvent) -> bool:
    return event.data.strip() == "[DONE]"


@dataclass(slots=True)
class _Call:
    """A tool call while it arrives."""

    given: str  # its id, which two calls may have
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    closing: Closing = field(default_factory=Closing)
    ready: bool = False  # it was given away as whole, and may not grow any more
    full: bool = False  # its object closed, with something in it: what comes behind that is no part of it


class _Answer:
    """Accumulates one stream of chunks. `finished` says that the server gave a finish reason."""

    def __init__(self, failures: Failures, model: str) -> None:
        self._failures = failures
        self._model = model
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._thinking_field = ""
        self._refused = False
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}  # of each number
        self._ids: set[str] = set()
        self._usage = Usage()
        self._stop = ""
        self._done = False
        self.finished = False

    def take(self, event: SseEvent) -> Iterator[Piece]:
        """Fields that are new to us are passed over."""
        if _is_last(event):
            self._done = True
            return
        chunk = parse_object(event.data)
        if chunk is None:
            raise self._failures.malformed("an event in it is not JSON")
        if (error := chunk.get("error")) or event.event == "error":
            raise self._error(error or chunk)
        self._count(chunk.get("usage"))
        match chunk.get("choices"):
            case [{"delta": dict(delta)} as choice, *_] if isinstance(choice, dict):
                yield from self._grow(delta)
                yield from self._finish(choice.get("finish_reason"))
            case [{"finish_reason": reason}, *_]:
                yield from self._finish(reason)
            case None | []:
                pass
            case _:
                raise self._failures.malformed("a chunk in it lacks what chunks have")

    def reply(self) -> Reply:
        """The whole answer. Raises ProviderError when the stream ended early."""
        if not (self.finished or self._done):
            raise self._failures.truncated("inside a tool call" if self._calls else "before the answer did")
        if not (self.finished or self._text or self._thinking or self._calls):
            raise self._failures.truncated("before the answer began")
        stop = self._stopped()
        content: list[TextBlock | ThinkingBlock | ToolCall] = []
        if thinking := whole_text(self._thinking):
            content.append(ThinkingBlock(thinking, MARK + self._thinking_field))
        if text := whole_text(self._text):
            content.append(TextBlock(text))
        content += (self._finished(call, stop) for call in self._calls)
        return Reply(AssistantMessage(tuple(content)), stop, self._usage)

    def _stopped(self) -> Stop:
        stop = STOPS.get(self._stop, Stop.OTHER)
        if self._refused:
            return Stop.REFUSAL
        return Stop.TOOLS if self._calls and stop is Stop.END else stop  # some servers say "stop" after calls

    def _grow(self, delta: Json) -> Iterator[Piece]:
        for name in REASONING:
            # A server that sends both names sends the same text twice.
            if (text := self._string(delta, name)) and self._thinking_field in ("", name):
                self._thinking_field = name
                self._thinking.append(text)
                yield ThinkingDelta(text)
        for name in ("content", "refusal"):
            if text := self._string(delta, name):
                self._refused = self._refused or name == "refusal"
                self._text.append(text)
                yield TextDelta(text)
        match delta.get("tool_calls"):
            case None:
                pass
            case list(pieces):
                for piece in pieces:
                    yield from self._grow_call(piece)
            case _:
                raise self._failures.malformed("a tool call in it lacks what tool calls have")

    def _grow_call(self, piece: object) -> Iterator[Piece]:
        function = (piece.get("function") or {}) if isinstance(piece, dict) else None
        if not (isinstance(piece, dict) and isinstance(function, dict)):
            raise self._failures.malformed("a tool call in it lacks what tool calls have")
        name = self._string(function, "name")
        call, new = self._call_for(piece.get("index"), self._string(piece, "id"), name)
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
                raise self._failures.malformed("a tool call in it goes on after its end")
            return  # small models write a brace too many, or a second object
        call.arguments.append(text)
        if call.closing.feed(text):
            yield from self._early()

    def _call_for(self, index: object, id_: str, name: str) -> tuple[_Call, bool]:
        """The call that a piece continues or begins, and whether it is new.

        Servers differ: some number every call 0, some give no numbers at all.
        """
        number = index if isinstance(index, int) else None
        call = self._latest.get(number)
        new = call is None or bool(id_ and call.given != id_)
        if call is None or new:
            given = id_ or f"call_{secrets.token_hex(8)}"
            call = _Call(given, given if given not in self._ids else f"{given}-{len(self._calls)}")
            self._ids.add(call.id)
            self._calls.append(call)
            self._latest[number] = call
        if name != call.name and not call.ready:  # a name may come in parts, and some servers repeat it with every part
            call.name += name
        return call, new

    def _finished(self, call: _Call, stop: Stop) -> ToolCall:
        text = whole_text(call.arguments)
        arguments = parse_arguments(text)
        if not text and stop is not Stop.TOOLS and call is self._calls[-1]:
            arguments = None  # cut before its first argument: that is not "no arguments"
        return ToolCall(call.id, call.name, arguments, "" if arguments is not None else text)

    def _early(self) -> Iterator[Piece]:
        """The calls that are whole, in order, up to the first that is not. The protocol marks no end of a call: it is
        where its object closes, or the next call begins. An empty object may be a place that is kept for what comes."""
        for call in self._calls:
            if call.ready:
                continue
            # Without arguments so far, they may still come: some servers open all calls first.
            over = call is not self._calls[-1] and any(call.arguments)
            if not (over or call.closing.closed):
                return
            whole = self._finished(call, Stop.TOOLS)
            if whole.arguments is None or not (over or whole.arguments):
                return
            call.ready, call.full = True, call.closing.closed and bool(whole.arguments)
            yield CallReady(whole)

    def _finish(self, reason: object) -> Iterator[Piece]:
        if isinstance(reason, str) and reason:
            self._stop = reason
            self.finished = True
            for call in self._calls:
                if not call.ready and (whole := self._finished(call, self._stopped())).arguments is not None:
                    call.ready = True
                    yield CallReady(whole)

    def _count(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        read, written = count_of(details, "cached_tokens") or 0, count_of(details, "cache_write_tokens") or 0
        prompt = count_of(usage, "prompt_tokens") or 0
        output = count_of(usage, "completion_tokens") or 0
        self._usage = Usage(max(prompt - read - written, 0), output, read, written)

    def _string(self, holder: Json, key: str) -> str:
        match holder.get(key):
            case None:
                return ""
            case str(text):
                return text
            case _:
                raise self._failures.malformed(f"`{key}` in it is not text")

    def _error(self, error: object) -> ProviderError:
        said = said_by(error) if isinstance(error, dict) else Said(error if isinstance(error, str) else "")
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else said.status(ERROR_STATUS)
        return self._failures.status(status, said, self._model, late=True)
