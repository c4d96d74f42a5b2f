"""Answers of a language server as text for the model: places with the text of their lines, and diagnostics.

THREAT T261: a server may name any path. A place is shown only if the session may read the file, and the text of a line
only for a file of the workspace, which is read through the gate. THREAT T264: names and messages are text of a program
over files of the workspace. Each is bounded, on one line, and without control characters.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.model.secret_paths import inside
from policy.model.verdict import Problem
from runner.lsp.gate_files import FileText, may_read, read_text
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.engine.run_context import RunContext
    from runner.lsp.client import CodePlace, Diagnosis, LanguageClient

MOST_SHOWN = 100  # places, symbols or diagnostics in one answer
_MOST_FILES = 30  # files that are read for one answer
_LONGEST_LINE = 200  # characters
_LONGEST_MESSAGE = 500  # characters
_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}


class AnswerWriter:
    """A writer of the places of one answer."""

    def __init__(self, name: str, client: "LanguageClient", ctx: "RunContext") -> None:
        self._name, self._client, self._ctx = name, client, ctx
        self._workspace = ctx.look().workspace
        self._allowed: dict[str, tuple[bool, bool]] = {}
        self._texts: dict[str, FileText | Problem] = {}

    async def places(self, places: "Sequence[CodePlace]", *, outline: bool = False) -> str:
        """Return the places, one a line, as `path:line:column: text`. With `outline`, they are symbols of one file."""
        rows: list[str] = []
        hidden = 0
        for place in dict.fromkeys(places):
            if len(rows) >= MOST_SHOWN:
                break
            allowed, own = self._verdict(place.path)
            if not allowed:
                hidden += 1
                continue
            rows.append(await self._row(place, own=own, outline=outline))
        left = len(dict.fromkeys(places)) - len(rows) - hidden
        if left > 0:
            rows.append(f"[{left:,} more]")
        if hidden:
            what = "place" if hidden == 1 else "places"
            rows.append(f"[{hidden:,} {what} outside of what this session may read, as `{self._name}` states]")
        return "\n".join(rows) or "nothing was found"

    def _verdict(self, path: str) -> tuple[bool, bool]:
        if path not in self._allowed:
            known = len(self._allowed) < MOST_SHOWN * 2
            self._allowed[path] = may_read(path, self._ctx) if path and known else (False, False)
        return self._allowed[path]

    async def _row(self, place: "CodePlace", *, own: bool, outline: bool) -> str:
        line, column, text = place.line + 1, place.units + 1, ""
        if own:
            content = await self._content(place.path)
            if isinstance(content, FileText) and place.line < len(content.lines):
                column = self._client.column(content.lines, place.line, place.units) + 1
                text = one_line(content.lines[place.line], _LONGEST_LINE)
        name = one_line(place.name, 100)
        if place.inside and name:
            name = f"{one_line(place.inside, 100)}.{name}"
        symbol = f"{place.kind} {name}".strip()
        if outline:
            return f"{line}: {symbol}" + (f": {text}" if text else "")
        where = f"{shown_path(place.path, self._workspace)}:{line}:{column}"
        return ": ".join(filter(None, (where, symbol, text)))

    async def _content(self, path: str) -> FileText | Problem:
        if path not in self._texts:
            if len(self._texts) >= _MOST_FILES:
                return Problem("the line is not shown", "many files were read already", "read it")
            self._texts[path] = await read_text(path, self._ctx)
        return self._texts[path]


def diagnostics_text(
    name: str,
    path: str,
    found: "Sequence[Diagnosis]",
    content: FileText,
    client: "LanguageClient",
    workspace: str,
    *,
    new: bool = False,
) -> str:
    """Return diagnostics as text, errors first. With `new`, they are what an edit added."""
    where = shown_path(path, workspace)
    if not found:
        return f"`{name}` finds no faults in {where}"
    ordered = sorted(found, key=lambda each: (each.severity, each.line, each.units))
    most = 20 if new else MOST_SHOWN
    rows = []
    for each in ordered[:most]:
        column = client.column(content.lines, each.line, each.units) + 1
        code = f" [{one_line(each.code, 60)}]" if each.code else ""
        kind = _SEVERITIES.get(each.severity, "note")
        rows.append(f"{where}:{each.line + 1}:{column}: {kind}: {one_line(each.text, _LONGEST_MESSAGE)}{code}")
    if len(ordered) > most:
        rows.append(f"[{len(ordered) - most:,} more]")
    if new:
        rows.insert(0, f"[new errors after this edit, as the language server `{one_line(name, 60)}` states]")
    return "\n".join(rows)


def shown_path(path: str, workspace: str) -> str:
    """Return a path for the model: relative to the workspace if it lies there, on one line."""
    return one_line(os.path.relpath(path, workspace) if inside(path, workspace) else path, 1000)
