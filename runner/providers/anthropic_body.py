"""Our messages as the JSON of a request to the Anthropic Messages API.

Four points are marked for the prompt cache, which is as many as there may be: the tools, the system text, and the last
two turns of the user's. What is marked in one request is the second last in the next, and read from the cache there.
SOURCE: platform.claude.com/docs/en/build-with-claude/prompt-caching, /thinking, /effort, /extended-thinking.
"""

from typing import assert_never

from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    Request,
    TextBlock,
    Thinking,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from runner.providers.catalog import ThinkingKind, facts_of

TURNS_CACHED = 2  # at the end of the conversation; with tools and system text the most that a request may mark
LEAST_BUDGET = 1024  # tokens of thinking; the server takes no fewer, and no more than `max_tokens` either
SHARES = {Thinking.LOW: 1 / 8, Thinking.MEDIUM: 1 / 4, Thinking.HIGH: 1 / 2, Thinking.MAX: 3 / 4}  # of `max_tokens`

BINDING = "thinking-binding-controls-2026-08-01"  # leave to pass bound thoughts over
INTERLEAVED = "interleaved-thinking-2025-05-14"  # older models think between two calls, too, as newer ones do anyway

Json = dict[str, object]


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
        tools: list[Json] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in request.tools
        ]
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
        case UserMessage():
            return {"role": "user", "content": _blocks(message.content)}
        case AssistantMessage():
            return {"role": "assistant", "content": [wire for block in message.content if (wire := _own(block))]}
        case ToolMessage():
            results = [_result(result) for result in message.results]
            return {"role": "user", "content": results + _set_apart(message.results)}
        case never:
            assert_never(never)


def _blocks(content: tuple[TextBlock | ImageBlock, ...]) -> list[Json]:
    # Blank text blocks are refused by the server, and would make every later request of the session fail too.
    return [
        {"type": "text", "text": block.text} if isinstance(block, TextBlock) else _image(block)
        for block in content
        if isinstance(block, ImageBlock) or block.text.strip()
    ]


def _image(block: ImageBlock) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": block.media_type, "data": block.data}}


def _own(block: TextBlock | ThinkingBlock | ToolCall) -> Json | None:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text} if block.text.strip() else None
        case ThinkingBlock(signature="", redacted=data) if data:
            return {"type": "redacted_thinking", "data": data}
        case ThinkingBlock():
            # Unsigned thinking, and thinking that another provider marked (theirs has a colon), is not accepted here.
            if not block.signature or ":" in block.signature:
                return None
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case ToolCall():
            # Arguments that did not parse are sent as none: the server demands an object, and the result says why.
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments or {}}
        case never:
            assert_never(never)


def _result(result: ToolResult) -> Json:
    # The server takes no images in a result that is an error; they follow it (`_set_apart`).
    content = tuple(block for block in result.content if isinstance(block, TextBlock) or not result.is_error)
    wire: Json = {"type": "tool_result", "tool_use_id": result.call_id, "content": _blocks(content)}
    if result.is_error:
        wire["is_error"] = True
    return wire


def _set_apart(results: tuple[ToolResult, ...]) -> list[Json]:
    return [
        _image(block)
        for result in results
        if result.is_error
        for block in result.content
        if isinstance(block, ImageBlock)
    ]
