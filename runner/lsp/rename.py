"""A new name for a symbol: the edits that a language server proposes, each as an edit of the model through the gate.

THREAT T262: a server may propose edits of any file. Nothing is written for it. Each changed file is one call of the
tool `edit`, with its verdict, its question, its record and its undo step.
"""

import os
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.engine.execute import execute_call
from runner.engine.judge import judge_call
from runner.engine.tool_calls import CallResult, Judgement, ModelCall
from runner.lsp.answers import shown_path
from runner.lsp.gate_files import FileText, may_read, read_text
from runner.messages import ToolCall, joined_text
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.engine.run_context import RunContext
    from runner.lsp.client import LanguageClient, TextChange

_MOST_FILES = 50
_MOST_CHANGES = 5_000  # of one file


class RenameRefused(ProblemError):
    """The error for edits that are not proposed to the gate. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class _FileEdit:
    """The edit of one file: a part of its text, which occurs once, and the new text of that part."""

    path: str
    old: str
    new: str
    digest: str


async def rename(
    changes: "dict[str, list[TextChange]]",
    old: str,
    new: str,
    client: "LanguageClient",
    call: ModelCall,
    ctx: "RunContext",
) -> str:
    """Make the edits, one file after the other, and return what was changed. Raise RenameRefused."""
    workspace = ctx.look().workspace
    edits = [each for path in changes for each in await _edits(path, changes[path], client, ctx)]
    if not edits:
        return "the language server proposes no edits for this name"
    rows: list[str] = []
    for number, edit in enumerate(edits, 1):
        ctx.seen.note(edit.path, edit.digest)  # the edit is refused if the file changes until then
        result = await _perform(edit, number, call, ctx)
        text = one_line(joined_text(result.result.content), 2000) if result.result.is_error else ""
        where = shown_path(edit.path, workspace)
        rows.append(f"{where}: {'not changed: ' + text if text else 'changed'}")
        if result.result.is_error:
            rows += [f"{shown_path(left.path, workspace)}: not changed" for left in edits[number:]]
            rows.append("[the new name is incomplete: correct it, or change these files back]")
            break
    return "\n".join((f"`{one_line(old, 100)}` to `{one_line(new, 100)}`:", *rows))


async def _edits(
    path: str, changes: "Sequence[TextChange]", client: "LanguageClient", ctx: "RunContext"
) -> list[_FileEdit]:
    what = "the new name was not applied, and nothing was changed"
    if not path:
        raise RenameRefused(Problem(what, "the server names a place that is no file", "make the edits yourself"))
    path = os.path.normpath(path)
    shown = one_line(path, 300)
    allowed, own = may_read(path, ctx)
    if not allowed or not own:
        why = f"the server would change `{shown}`, which is no file of the workspace that this session may read"
        raise RenameRefused(Problem(what, why, "make the edits yourself"))
    if len(changes) > _MOST_CHANGES:
        raise RenameRefused(Problem(what, f"there are more than {_MOST_CHANGES:,} in `{shown}`", "use a command"))
    content = await read_text(path, ctx)
    if isinstance(content, Problem):
        raise RenameRefused(Problem(what, content.why, content.fix))
    if not content.whole:
        why = f"`{shown}` is not UTF-8 text, or has lines of more than 2,000 characters"
        raise RenameRefused(Problem(what, why, "make the edits yourself"))
    after = _applied(content, changes, client)
    if after is None:
        raise RenameRefused(Problem(what, f"the edits of `{shown}` do not fit its text", "make the edits yourself"))
    if after == content.text:
        return []
    return [_FileEdit(path, *_changed_part(content.text, after), content.digest)]


def _applied(content: FileText, changes: "Sequence[TextChange]", client: "LanguageClient") -> str | None:
    """Return the text with the changes applied, or None if they overlap or lie outside of it."""
    lines = content.lines
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    spans: list[tuple[int, int, str]] = []
    for change in changes:
        if not (0 <= change.line < len(lines) and change.line <= change.end_line <= len(lines)):
            return None
        start = starts[change.line] + client.column(lines, change.line, change.units)
        end = min(starts[change.end_line] + client.column(lines, change.end_line, change.end_units), len(content.text))
        spans.append((start, end, change.text))
    spans.sort(key=lambda span: span[:2])
    pieces, at = [], 0
    for start, end, text in spans:
        if start < at or end < start:
            return None
        pieces += [content.text[at:start], text]
        at = end
    return "".join((*pieces, content.text[at:]))


def _changed_part(before: str, after: str) -> tuple[str, str]:
    """Return the changed lines before and after, with as many lines around them as make the old ones occur once."""
    old, new = before.split("\n"), after.split("\n")
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] != new[n]), most)
    end = next((n for n in range(most - start) if old[-1 - n] != new[-1 - n]), most - start)
    while True:
        part = "\n".join(old[start : len(old) - end])
        fresh = new[start : len(new) - end]
        at = sum(len(line) + 1 for line in old[:start])
        alone = before.find(part) == at and before.find(part, at + 1) < 0  # also without an overlapping one
        if part and fresh and alone:  # without new lines, the end of the last old line would stay
            return part, "\n".join(fresh)
        if start == 0 and end == 0:
            return before, after
        start, end = max(start - 1, 0), max(end - 1, 0)


async def _perform(edit: _FileEdit, number: int, call: ModelCall, ctx: "RunContext") -> CallResult:
    """Let the model's own call pass through the gate, with the hooks about it."""
    arguments: dict[str, object] = {"path": edit.path, "old_string": edit.old, "new_string": edit.new}
    own = ModelCall(f"{call.key}.{number}", ToolCall(f"{call.of.id}.{number}", "edit", arguments), call.own)
    if ctx.hooks is None or call.own:
        judged = judge_call(own, ctx)
    else:
        from runner.engine.hooked_calls import after_call, judge_hooked  # few sessions have hooks

        judged = await judge_hooked(own, ctx)
        if isinstance(judged, Judgement):
            return await after_call(judged, await execute_call(judged, ctx, lambda report: None), ctx)
    return judged if isinstance(judged, CallResult) else await execute_call(judged, ctx, lambda report: None)
