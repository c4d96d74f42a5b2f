"""Our messages as the JSON of a request to the OpenAI Responses API.

Nothing is stored at the server (`store` is off), so everything goes back that the model needs: its reasoning, encrypted
as it came, and the phase of what it said. Both lie in the signature of a ThinkingBlock (`MARK`, then JSON), with the
model that they are from: another cannot read them. What the model thought in words is the block's text alone, where
secrets are masked. What the protocol lacks is done as in `openai`: the text of a result that is an error starts with
`TOOL_FAILED`.
SOURCE: developers.openai.com/api/docs/guides/reasoning (encrypted reasoning items), /migrate-to-responses,
/api/reference/resources/responses.
"""

import json
from collections.abc import Iterator, Sequence
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
from runner.providers.openai_body import TOOL_FAILED
from runner.text.model_text import parse_object

MARK = "responses:"
PHASES = ("commentary", "final_answer")

Json = dict[str, object]


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
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": False,
            }
            for tool in request.tools
        ]
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
                yield {"type": "function_call_output", "call_id": result.call_id, "output": _output(result)}
        case never:
            assert_never(never)


def _content(blocks: Sequence[TextBlock | ImageBlock]) -> list[Json]:
    return [
        {"type": "input_text", "text": block.text}
        if isinstance(block, TextBlock)
        else {
            "type": "input_image",
            "detail": "auto",
            "image_url": f"data:{block.media_type};base64,{block.data}",
        }
        for block in blocks
        if isinstance(block, ImageBlock) or block.text.strip()
    ]


def _own(message: AssistantMessage, model: str) -> Iterator[Json]:
    item: Json
    reasoning: Json | None = None  # goes before what it led to; without that, the server takes none
    phase = ""
    for block in message.content:
        match block:
            case ThinkingBlock():
                kept = _kept(block, model)
                if isinstance(thought := kept.get("item"), dict):
                    summary = [{"type": "summary_text", "text": block.text}] if block.text else []
                    reasoning = {"type": "reasoning", **thought, "summary": summary}
                phase = said if (said := kept.get("phase")) in PHASES and isinstance(said, str) else phase
                continue
            case TextBlock(text):
                if not text.strip():
                    continue
                item = {"type": "message", "role": "assistant", "content": text, **({"phase": phase} if phase else {})}
                phase = ""
            case ToolCall():
                # Arguments that did not parse are sent as none, as the other providers do.
                arguments = json.dumps(block.arguments or {}, ensure_ascii=False, allow_nan=False)
                item = {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
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


def _output(result: ToolResult) -> str | list[Json]:
    failed = (TextBlock(TOOL_FAILED),) if result.is_error else ()
    blocks = (*failed, *result.content)
    if any(isinstance(block, ImageBlock) for block in blocks):
        return _content(blocks)
    text = "\n".join(block.text for block in blocks if isinstance(block, TextBlock) and block.text.strip())
    return text or "(no output)"
