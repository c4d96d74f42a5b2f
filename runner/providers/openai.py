"""The OpenAI Chat Completions API, as OpenAI and many others serve it: OpenRouter, Ollama, vLLM, llama.cpp.

Usage counts are disjoint: `input` excludes what was read from or written to the cache.
"""

from collections.abc import Iterator

from runner.messages import (
    AssistantMessage,
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
from runner.providers.openai_body import MARK, request_body
from runner.providers.openai_calls import Calls
from runner.providers.sse import SseEvent
from runner.providers.stream import Exchange, HttpProvider, Piece
from runner.secrets.secret import Secret
from runner.text.model_text import count_of, parse_object, whole_text

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


class OpenAiProvider(HttpProvider):
    name = "openai"

    def __init__(self, endpoint: Endpoint, secret: Secret | None, timeouts: Timeouts | None = None) -> None:
        self._own_server = endpoint.host.endswith((".openai.com", ".openai.azure.com"))
        connection = Connection(
            Failures(self.name, endpoint, secret, timeouts or Timeouts()),
            "chat/completions",
            auth=KeyHeader("authorization", "Bearer ", secret) if secret else None,
            headers={},
        )
        super().__init__(connection)

    def exchange(self, request: Request) -> Exchange:
        parser = _Answer(self._connection.failures, request.model)
        return Exchange(request.model, request_body(request, own_server=self._own_server), parser, _is_last)


def _is_last(event: SseEvent) -> bool:
    return event.data.strip() == "[DONE]"


class _Answer:
    """Accumulates one stream of chunks. `finished` says that the server gave a finish reason."""

    def __init__(self, failures: Failures, model: str) -> None:
        self._failures = failures
        self._model = model
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._thinking_field = ""
        self._refused = False
        self._calls = Calls(failures)
        self._usage = Usage()
        self._stop = ""
        self._done = False
        self.finished = False

    def take(self, event: SseEvent) -> Iterator[Piece]:
        """Yield the parts that `event` completes. Unknown fields are ignored."""
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
        """Return the whole answer. Raises ProviderError if the stream ended early."""
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
        content += self._calls.finished(stop)
        return Reply(AssistantMessage(tuple(content)), stop, self._usage)

    def _stopped(self) -> Stop:
        stop = STOPS.get(self._stop, Stop.OTHER)
        if self._refused:
            return Stop.REFUSAL
        return Stop.TOOLS if self._calls and stop is Stop.END else stop  # some servers say "stop" after calls

    def _grow(self, delta: Json) -> Iterator[Piece]:
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
                raise self._failures.malformed("a tool call in it lacks what tool calls have")

    def _finish(self, reason: object) -> Iterator[Piece]:
        if isinstance(reason, str) and reason:
            self._stop, again = reason, self.finished
            self.finished = True
            if not again:
                yield from self._calls.ready(self._stopped())

    def _count(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        read, written = count_of(details, "cached_tokens") or 0, count_of(details, "cache_write_tokens") or 0
        prompt = count_of(usage, "prompt_tokens") or 0
        output = count_of(usage, "completion_tokens") or 0
        self._usage = Usage(max(prompt - read - written, 0), output, read, written)

    def _error(self, error: object) -> ProviderError:
        said = said_by(error) if isinstance(error, dict) else Said(error if isinstance(error, str) else "")
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else said.status(ERROR_STATUS)
        return self._failures.status(status, said, self._model, late=True)
