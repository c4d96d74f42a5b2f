"""Files that a prompt attaches with `@`: images and PDF documents, read like any call of the `read` tool.

THREAT T249: a prompt may contain text of other people (an issue, a pipe). A name in it gets no more than a call of the
model would: the gate judges the reading, which is recorded, and the converter reads the document.
"""

import re

from policy.model.facts import Kind
from runner.engine.execute import execute_call
from runner.engine.judge import judge_call
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, ModelCall
from runner.events import Notice
from runner.messages import TextBlock, ToolCall, UserBlock, joined_text
from runner.text.phrases import many
from runner.text.sanitize import marked, one_line
from tools.paths import place

MOST = 10  # files of one prompt
_TYPES = "png|jpe?g|gif|webp|bmp|tiff?|avif|ico|jp2|ppm|pdf"
_NAME = rf"\.(?:{_TYPES})"
_END = r"(?=$|[\s,;:!?)]|\.(?:\s|$))"
_TOKEN = re.compile(rf'(?:^|(?<=\s))@(?:"([^"\n]+{_NAME})"|([^\s"]+?{_NAME}){_END})', re.IGNORECASE)


def named_files(prompt: str) -> tuple[str, ...]:
    """Return the names of images and PDF documents behind `@`, as typed, each once."""
    return tuple(dict.fromkeys(match[1] or match[2] for match in _TOKEN.finditer(prompt)))


async def attachments(prompt: str, ctx: RunContext, key: str) -> tuple[UserBlock, ...]:
    """Return the content of the files that `prompt` attaches, for the message of the user.

    Raise what `execute_call` raises. `key` is the beginning of the keys of the calls.
    """
    names = named_files(prompt)
    if len(names) > MOST:
        ctx.emit(Notice(f"the prompt names {many(len(names), 'file')}, and the first {MOST} are attached"))
    blocks: list[UserBlock] = []
    for number, name in enumerate(names[:MOST], 1):
        path = place(name, ctx.cwd)
        if not isinstance(path, str) or ctx.look().look(path).kind is Kind.MISSING:
            ctx.emit(Notice(f"`{one_line(name, 200)}` is not attached: there is no such file"))
            continue
        call = ModelCall(f"{key}.{number}", ToolCall(f"attach-{number}", "read", {"path": path}), own=True)
        judged = judge_call(call, ctx)
        report = judged if isinstance(judged, CallResult) else await execute_call(judged, ctx, lambda report: None)
        text = marked("attached-file", joined_text(report.result.content), name=name)
        blocks.append(TextBlock(f"\n\n{text}"))
        blocks += [block for block in report.result.content if not isinstance(block, TextBlock)]
    return tuple(blocks)
