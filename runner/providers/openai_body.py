"""Our messages as the JSON of a request to the Chat Completions API.

What the protocol lacks, and what is done instead:
- a tool result has no error flag: its text starts with `TOOL_FAILED`;
- a tool result holds text only: its images follow, numbered, in a user message right after the turn's results;
- there is no field for thinking: servers stream it as `reasoning_content` or `reasoning`. Some of them demand it back
  beside tool calls, so it returns there, under the name it came with, and is left out everywhere else.
"""

import json
from collections.abc import Sequence
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
    UserMessage,
)
from runner.providers.catalog import ThinkingKind, facts_of

TOOL_FAILED = "[this tool call failed]"
MARK = "openai:"  # before the field name, in the signature of a ThinkingBlock that came from here

Json = dict[str, object]


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
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in request.tools
        ]
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
            return _own(message)
        case ToolMessage():
            return _results(message)
        case never:
            assert_never(never)


def _content(blocks: Sequence[TextBlock | ImageBlock]) -> str | list[Json]:
    if any(isinstance(block, ImageBlock) for block in blocks):
        return [_part(block) for block in blocks if isinstance(block, ImageBlock) or block.text.strip()]
    return "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock) and block.text.strip())


def _part(block: TextBlock | ImageBlock) -> Json:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{block.data}"}}


def _own(message: AssistantMessage) -> list[Json]:
    text = "\n\n".join(block.text for block in message.content if isinstance(block, TextBlock) and block.text.strip())
    if not message.calls:
        return [{"role": "assistant", "content": text}] if text else []
    wire: Json = {"role": "assistant", "content": text or None}
    for block in message.content:
        if isinstance(block, ThinkingBlock) and block.signature.startswith(MARK):
            wire[block.signature.removeprefix(MARK)] = block.text
    wire["tool_calls"] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
        for call in message.calls
    ]
    return [wire]


def _arguments(call: ToolCall) -> str:
    # Arguments that did not parse are sent as none: servers that parse them again would fail every later request.
    return json.dumps(call.arguments or {}, ensure_ascii=False, allow_nan=False)


def _results(message: ToolMessage) -> list[Json]:
    wire: list[Json] = []
    images: list[TextBlock | ImageBlock] = []
    for result in message.results:
        lines = [TOOL_FAILED] if result.is_error else []
        for block in result.content:
            if isinstance(block, TextBlock):
                lines.append(block.text)
            else:
                label = f"[image {len(images) // 2 + 1}]"
                lines.append(f"{label} follows in the next message")
                images += [TextBlock(label), block]
        text = "\n".join(line for line in lines if line.strip())
        wire.append({"role": "tool", "tool_call_id": result.call_id, "content": text or "(no output)"})
    return [*wire, {"role": "user", "content": _content(images)}] if images else wire
