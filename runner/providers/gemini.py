"""The Gemini API of Google AI: messages as JSON requests, and the stream of partial answers as a Reply.

Usage counts are disjoint: `input` excludes what was read from the cache, and `output` has the thoughts in it.
SOURCE: ai.google.dev/api/generate-content (streamGenerateContent, FinishReason, UsageMetadata).

The server sends a signature in place of the model's thoughts. A signature belongs to one part of the answer: a text, or
the first of several calls. It is stored in a ThinkingBlock without text before that part (`MARK`, the model, the
signature) and is sent back with the part; newer models refuse a call without a signature. A call of another model has
no readable signature, and gets the placeholder that Google publishes for this case.
Images of results follow, numbered, in a message of the user, as in `openai`.
SOURCE: ai.google.dev/api/generate-content, /gemini-api/docs/thought-signatures, /thinking, /function-calling.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never
from urllib.parse import quote

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
    UserBlock,
    UserMessage,
)
from runner.providers.catalog import SHARES, ThinkingKind, facts_of
from runner.providers.connection import SseEvent, WireRequest
from runner.providers.endpoint import Endpoint
from runner.providers.failures import Failures
from runner.providers.openai import result_text
from runner.providers.stream import AnswerParser, HttpProvider, tools_json
from runner.text.model_text import Json, count_of, parse_call, whole_text

VERSIONS = ("/v1beta", "/v1", "/v1alpha")

STOPS = {
    "STOP": Stop.END,
    "MAX_TOKENS": Stop.LENGTH,
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), Stop.REFUSAL),
}
UNREADABLE = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")  # the same request may do better


class _GeminiAnswer(AnswerParser):
    """Parser of one stream of partial answers."""

    def __init__(self, failures: Failures, model: str) -> None:
        super().__init__(failures, model)
        self._content: list[ModelBlock] = []
        self._pieces: list[str] = []  # pieces of the unfinished text or thought
        self._thinks = False  # True if `_pieces` is a thought
        self._stop = ""
        self._ids: set[str] = set()  # ids of the calls so far

    def take(self, event: SseEvent) -> Iterator[ReplyPiece]:
        if self.is_last(event):
            return
        chunk = self._object(event)
        if "error" in chunk:
            raise self._coded_error(chunk["error"], {})
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
                        raise self._failures.malformed("a candidate in it lacks fields or has fields of wrong types")
                self._finish(candidate.get("finishReason"))
            case None | []:
                match chunk.get("promptFeedback"):
                    case {"blockReason": str()}:
                        self._finish("SAFETY")
            case _:
                raise self._failures.malformed("a part of the answer lacks fields or has fields of wrong types")

    def reply(self) -> Reply:
        self._settle()
        if not self.finished:
            raise self._failures.truncated("inside a turn of calls" if self._ids else "before the answer was complete")
        if self._stop in UNREADABLE:
            raise self._failures.truncated("in a tool call that the server could not read itself")
        stop = STOPS.get(self._stop, Stop.OTHER)
        if self._ids and stop is Stop.END:
            stop = Stop.TOOLS
        return Reply(AssistantMessage(tuple(self._content)), stop, self._usage)

    def _grow(self, part: Json) -> Iterator[ReplyPiece]:
        match part:
            case {"functionCall": dict(call)} if isinstance(name := call.get("name"), str):
                self._sign(part)
                yield CallOpened(name)
                id_ = call.get("id")
                if not isinstance(id_, str) or not id_ or id_ in self._ids:
                    id_ = f"call_{secrets.token_hex(8)}"
                self._ids.add(id_)
                made = parse_call(id_, name, json.dumps(call.get("args") or {}, ensure_ascii=False))
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
                raise self._failures.malformed("a part in it lacks fields or has fields of wrong types")

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

    def _finish(self, reason: object) -> None:
        if isinstance(reason, str) and reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._stop = reason
            self.finished = True

    def _count(self, usage: object) -> None:
        # Counts are totals so far: a later one replaces an earlier one, an absent one leaves it.
        sent, used = count_of(usage, "promptTokenCount"), count_of(usage, "toolUsePromptTokenCount") or 0
        read = count_of(usage, "cachedContentTokenCount")
        answered, thought = count_of(usage, "candidatesTokenCount"), count_of(usage, "thoughtsTokenCount")
        if read is not None:
            self._usage = replace(self._usage, cache_read=read)
        if sent is not None:
            self._usage = replace(self._usage, input=max(sent + used - self._usage.cache_read, 0))
        if answered is not None or thought is not None:
            self._usage = replace(self._usage, output=(answered or 0) + (thought or 0))


class GeminiProvider(HttpProvider):
    name = "gemini"
    parser = _GeminiAnswer
    key_header = ("x-goog-api-key", "")

    def path(self, endpoint: Endpoint) -> str:
        return "models" if endpoint.url.endswith(VERSIONS) else "v1beta/models"

    def models_path(self, endpoint: Endpoint) -> str:
        return self.path(endpoint)

    def wire_request(self, request: Request) -> WireRequest:
        below = f"/{quote(request.model.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"
        return WireRequest(request.model, request_body(request), below)


# ---- requests

MARK = "gemini:"
UNSIGNED = "skip_thought_signature_validator"
BUDGETS = (512, 24_576)  # least and most tokens of thinking that every model with a token budget accepts


def request_body(request: Request) -> Json:
    """Return the JSON body for `request`. The model is in the URL."""
    facts = facts_of(f"gemini:{request.model}")
    level = facts.thinking is ThinkingKind.LEVEL
    names: dict[str, str] = {}
    contents = [each for message in request.messages for each in _contents(message, request.model, names, signs=level)]
    config: Json = {"maxOutputTokens": request.max_tokens}
    if request.thinking is not Thinking.OFF and level:
        config["thinkingConfig"] = {"includeThoughts": True, "thinkingLevel": facts.effort(request.thinking).upper()}
    elif request.thinking is not Thinking.OFF and facts.thinking is ThinkingKind.BUDGET:
        budget = min(max(int(request.max_tokens * SHARES[request.thinking]), BUDGETS[0]), BUDGETS[1])
        config["thinkingConfig"] = {"includeThoughts": True, "thinkingBudget": budget}
    body: Json = {"contents": contents, "generationConfig": config}
    if request.system.strip():
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": tools_json(request, "parametersJsonSchema")}]
    return body


def signed(model: str, signature: str) -> str:
    """Return the signature of a block that sends `signature` back to `model`."""
    return f"{MARK}{model}:{signature}"


def _contents(message: Message, model: str, names: dict[str, str], *, signs: bool) -> Iterator[Json]:
    """Yield the contents for one message.

    `names` contains the tool of each call so far, which the result of the call names too. With `signs`, calls need
    signatures.
    """
    match message:
        case UserMessage():
            if parts := _parts(message.content):
                yield {"role": "user", "parts": parts}
        case AssistantMessage():
            names |= {call.id: call.name for call in message.calls}
            if parts := list(_own(message, model, signs=signs)):
                yield {"role": "model", "parts": parts}
        case ToolMessage():
            answers: list[Json] = []
            images: list[UserBlock] = []
            for result in message.results:
                response: Json = {"error" if result.is_error else "output": result_text(result, images)}
                name = names.get(result.call_id, "unknown")
                answers.append({"functionResponse": {"id": result.call_id, "name": name, "response": response}})
            if answers:
                yield {"role": "user", "parts": answers}
            if images:
                yield {"role": "user", "parts": _parts(images)}
        case never:
            assert_never(never)


def _parts(blocks: Sequence[UserBlock]) -> list[Json]:
    return [
        {"text": block.text}
        if isinstance(block, TextBlock)
        else {"inlineData": {"mimeType": block.media_type, "data": block.data}}
        for block in blocks
        if isinstance(block, ImageBlock) or block.text.strip()
    ]


def _own(message: AssistantMessage, model: str, *, signs: bool) -> Iterator[Json]:
    signature = ""
    called = False
    for block in message.content:
        match block:
            case ThinkingBlock():
                of, _, stored = block.signature.removeprefix(MARK).rpartition(":")
                if of != model or not block.signature.startswith(MARK):
                    continue  # the block is from another model or another API
                if block.text and stored:
                    yield {"text": block.text, "thought": True, "thoughtSignature": stored}
                elif stored:
                    signature = stored
                continue
            case TextBlock():
                if not block.text.strip() and not signature:
                    continue
                part: Json = {"text": block.text}
            case ToolCall():
                # Arguments that did not parse are sent as an empty object, as to the other servers.
                part = {"functionCall": {"id": block.id, "name": block.name, "args": block.arguments or {}}}
                if signs and not called and not signature:
                    signature = UNSIGNED
                called = True
            case never:
                assert_never(never)
        yield {**part, "thoughtSignature": signature} if signature else part
        signature = ""
    if signature:  # the signature arrived alone, after all other parts
        yield {"text": "", "thoughtSignature": signature}
