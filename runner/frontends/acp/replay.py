"""The updates for the earlier part of a session: its prompts, answers, calls and results, from the session file."""

import json
from collections.abc import Iterator, Sequence

from acp import schema

from runner.frontends.acp.markdown import code, fenced, inert
from runner.frontends.acp.updates import KINDS_OF_TOOLS, Update, clipped, heard, said, shown
from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    joined_text,
)
from runner.sessions.rewind import RewindPoint, said_of
from runner.text.sanitize import one_line, visible, visible_prose

_LONGEST_TITLE = 200  # characters


def replayed(history: Sequence[Message], marks: Sequence[RewindPoint]) -> Iterator[Update]:
    """Yield the updates for `history`. `marks` have the prompts as the user typed them."""
    typed = {mark.length: mark.text for mark in marks}
    calls: list[str] = []
    for place, message in enumerate(history):
        match message:
            case UserMessage():
                words = typed.get(place) or said_of(message)
                if words:
                    yield heard(inert(visible_prose(words)), f"h{place}")
                for part in message.content:
                    if isinstance(part, ImageBlock):
                        yield _image(part, f"h{place}")
            case AssistantMessage():
                calls = []
                for block in message.content:
                    if isinstance(block, ToolCall):
                        calls.append(f"h{place}.{len(calls) + 1}")
                        yield _called(block, calls[-1])
                    elif isinstance(block, TextBlock | ThinkingBlock) and block.text:
                        thought = isinstance(block, ThinkingBlock)
                        yield said(inert(visible_prose(block.text)), f"h{place}.{int(thought)}", thought=thought)
            case ToolMessage():
                for id, result in zip(calls, message.results, strict=False):
                    yield _answered(id, result)


def _image(image: ImageBlock, message: str) -> Update:
    block = schema.ImageContentBlock(type="image", mime_type=image.media_type, data=image.data)
    return schema.UserMessageChunk(session_update="user_message_chunk", content=block, message_id=message)


def _called(call: ToolCall, id: str) -> Update:
    arguments = call.arguments or {}
    words = next((arguments[name] for name in ("command", "path", "url", "pattern") if name in arguments), None)
    if not isinstance(words, str):
        words = call.raw or json.dumps(call.arguments, ensure_ascii=False)
    words = f"$ {words}" if call.name == "bash" else f"{call.name} {words}"
    return schema.ToolCallStart(
        session_update="tool_call",
        tool_call_id=id,
        title=code(one_line(words, _LONGEST_TITLE) or "call"),
        kind=KINDS_OF_TOOLS.get(call.name, "other"),
        status="in_progress",
        raw_input={"tool": one_line(call.name, _LONGEST_TITLE)},
    )


def _answered(id: str, result: ToolResult) -> Update:
    words = clipped(visible(joined_text(result.content)))
    return schema.ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=id,
        status="failed" if result.is_error else "completed",
        content=[shown(fenced(words))] if words.strip() else None,
    )
