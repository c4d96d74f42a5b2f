"""The Gemini API of Google AI: its stream of partial answers as a Reply.

Usage counts are disjoint: `input` excludes what was read from the cache, and `output` has the thoughts in it.
SOURCE: ai.google.dev/api/generate-content (streamGenerateContent, FinishReason, UsageMetadata).
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

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
from runner.providers.gemini_body import request_body, signed
from runner.providers.sse import SseEvent
from runner.providers.stream import Exchange, HttpProvider, Piece
from runner.secrets.secret import Secret
from runner.text.model_text import count_of, parse_arguments, parse_object, whole_text

VERSIONS = ("/v1beta", "/v1", "/v1alpha")

STOPS = {
    "STOP": Stop.END,
    "MAX_TOKENS": Stop.LENGTH,
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), Stop.REFUSAL),
}
UNREADABLE = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")  # the same request may do better

Json = dict[str, object]


class GeminiProvider(HttpProvider):
    name = "gemini"

    def __init__(self, endpoint: Endpoint, secret: Secret | None, timeouts: Timeouts | None = None) -> None:
        connection = Connection(
            Failures(self.name, endpoint, secret, timeouts or Timeouts()),
            "models" if endpoint.url.endswith(VERSIONS) else "v1beta/models",
            auth=KeyHeader("x-goog-api-key", "", secret) if secret else None,
            headers={},
        )
        super().__init__(connection)

    def exchange(self, request: Request) -> Exchange:
        parser = _Answer(self._connection.failures, request.model)
        below = f"/{quote(request.model.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"
        return Exchange(request.model, request_body(request), parser, _is_last, below=below)


def _is_last(event: SseEvent) -> bool:
    return event.data.strip() == "[DONE]"  # Google's own servers just end


class _Answer:
    """Accumulates one stream of partial answers. `finished` says that the server gave a finish reason."""

    def __init__(self, failures: Failures, model: str) -> None:
        self._failures = failures
        self._model = model
        self._content: list[TextBlock | ThinkingBlock | ToolCall] = []
        self._pieces: list[str] = []  # of the text or thought that is still growing
        self._thinks = False  # whether that is a thought
        self._usage = Usage()
        self._stop = ""
        self._ids: set[str] = set()
        self._called = False
        self.finished = False

    def take(self, event: SseEvent) -> Iterator[Piece]:
        """Yield the parts that `event` completes. Unknown parts and fields are ignored."""
        if _is_last(event):
            return
        chunk = parse_object(event.data)
        if chunk is None:
            raise self._failures.malformed("an event in it is not JSON")
        if "error" in chunk:
            raise self._error(chunk["error"])
        self._count(chunk.get("usageMetadata"))
        match chunk.get("candidates"):
            case [dict(candidate), *_]:
                match candidate.get("content"):
                    case {"parts": [*parts]}:
                        for part in parts:
                            yield from self._grow(part if isinstance(part, dict) else {})
                    case None | {}:
                        pass
                    case _:
                        raise self._failures.malformed("a candidate in it lacks what candidates have")
                self._finish(candidate.get("finishReason"))
            case None | []:
                match chunk.get("promptFeedback"):
                    case {"blockReason": str()}:
                        self._finish("SAFETY")
            case _:
                raise self._failures.malformed("a part of the answer in it lacks what such parts have")

    def reply(self) -> Reply:
        """Return the whole answer. Raises ProviderError if the stream ended early."""
        self._settle()
        if not self.finished:
            raise self._failures.truncated("inside a turn of calls" if self._called else "before the answer did")
        if self._stop in UNREADABLE:
            raise self._failures.truncated("in a tool call that its own server could not read")
        stop = STOPS.get(self._stop, Stop.OTHER)
        if self._called and stop is Stop.END:
            stop = Stop.TOOLS
        return Reply(AssistantMessage(tuple(self._content)), stop, self._usage)

    def _grow(self, part: Json) -> Iterator[Piece]:
        match part:
            case {"functionCall": dict(call)} if isinstance(name := call.get("name"), str):
                self._sign(part)
                yield CallOpened(name)
                made = self._call(name, call)
                self._content.append(made)
                if made.arguments is not None:
                    yield CallReady(made)
            case {"text": str(text)}:
                thinks = part.get("thought") is True
                signature = isinstance(part.get("thoughtSignature"), str)
                if thinks is not self._thinks or signature:
                    self._settle()
                self._thinks = thinks
                if signature and not thinks:
                    self._sign(part)
                self._pieces.append(text)
                if text:
                    yield ThinkingDelta(text) if thinks else TextDelta(text)
                if signature:
                    self._settle(signed(self._model, str(part["thoughtSignature"])) if thinks else "")
            case {"functionCall": _} | {"text": _}:
                raise self._failures.malformed("a part in it lacks what such parts have")
            case _:
                pass

    def _sign(self, part: Json) -> None:
        """Keep the signature of a part before it."""
        self._settle()
        if isinstance(signature := part.get("thoughtSignature"), str):
            self._content.append(ThinkingBlock("", signed(self._model, signature)))

    def _settle(self, signature: str = "") -> None:
        """End the text or thought that was growing."""
        text = whole_text(self._pieces)
        self._pieces.clear()
        if text:
            self._content.append(ThinkingBlock(text, signature) if self._thinks else TextBlock(text))
        elif signature:
            self._content.append(ThinkingBlock("", signature))

    def _call(self, name: str, call: Json) -> ToolCall:
        id_ = call.get("id")
        if not isinstance(id_, str) or not id_ or id_ in self._ids:
            id_ = f"call_{secrets.token_hex(8)}"
        self._ids.add(id_)
        self._called = True
        raw = json.dumps(call.get("args") or {}, ensure_ascii=False)
        arguments = parse_arguments(raw)
        return ToolCall(id_, name, arguments, "" if arguments is not None else raw)

    def _finish(self, reason: object) -> None:
        if isinstance(reason, str) and reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._stop = reason
            self.finished = True

    def _count(self, usage: object) -> None:
        # Counts are totals so far: a later one replaces an earlier one, an absent one leaves it.
        sent, used = count_of(usage, "promptTokenCount"), count_of(usage, "toolUsePromptTokenCount") or 0
        read = count_of(usage, "cachedContentTokenCount")
        said, thought = count_of(usage, "candidatesTokenCount"), count_of(usage, "thoughtsTokenCount")
        if read is not None:
            self._usage = replace(self._usage, cache_read=read)
        if sent is not None:
            self._usage = replace(self._usage, input=max(sent + used - self._usage.cache_read, 0))
        if said is not None or thought is not None:
            self._usage = replace(self._usage, output=(said or 0) + (thought or 0))

    def _error(self, error: object) -> ProviderError:
        said = said_by(error) if isinstance(error, dict) else Said(error if isinstance(error, str) else "")
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        return self._failures.status(status, said, self._model, late=True)
