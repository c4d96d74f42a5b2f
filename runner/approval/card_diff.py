"""The change to one file as a diff, which the user reads before answering."""

from policy.model.action import EditFile, WriteFile
from runner.approval.card_text import safe_line
from runner.events import Change
from sandbox.inside.files.diff import unified_rows

_MOST_COMPARED = 4000  # lines of both sides; beyond that only what will be there is shown
_MOST_LINES = 4000  # of a diff; the beginning and the end are shown
_END = 200
_LONGEST = 2000  # characters of one line


def change(action: WriteFile | EditFile, before: str | None, path: str, *, new: bool) -> Change:
    """Return the change that `action` makes to a file.

    `path` is the path as shown. `before` is the text of the file, or None if it could not be read or the file is `new`.
    """
    note = "" if new or before is not None else "what is there now could not be read"
    if isinstance(action, WriteFile):
        first, second = before or "", action.content
    elif before is not None and action.old and action.old in before:
        first, second = before, before.replace(action.old, action.new, -1 if action.replace_all else 1)
    else:
        first, second = action.old, action.new
        note = f"where in the file this stands is not known{', and it may be often' if action.replace_all else ''}"
    rows, cut = _rows(first, second)
    added = sum(row.startswith("+") for row in rows)
    removed = len(_lines(first)) if cut else sum(row.startswith("-") for row in rows)
    return Change(path, new, added, removed, tuple(map(_row, _cut(rows))), "; ".join(filter(None, (note, cut))))


def _rows(old: str, new: str) -> tuple[list[str], str]:
    """Return the rows of the diff, and a note if the texts are too long to compare."""
    first, second = _lines(old), _lines(new)
    if first and len(first) + len(second) > _MOST_COMPARED:
        return [f"+{line}" for line in second], f"too long to compare: all of {len(first)} lines are replaced"
    if not first:
        return [f"+{line}" for line in second], ""
    return unified_rows(first, second), ""


def _lines(text: str) -> list[str]:
    """Split `text` at newlines alone. Other characters that `str.splitlines` splits at would hide the real end of a
    line.
    """
    if not text:
        return []
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "⟨no newline at the end⟩"]


def _cut(rows: list[str]) -> list[str]:
    if len(rows) <= _MOST_LINES:
        return rows
    left = len(rows) - _MOST_LINES
    return [*rows[: _MOST_LINES - _END], f"@@ {left} lines are not shown @@", *rows[-_END:]]


def _row(row: str) -> str:
    shown = safe_line(row[:_LONGEST])
    return shown if len(row) <= _LONGEST else f"{shown}⟨{len(row) - _LONGEST} characters more⟩"
