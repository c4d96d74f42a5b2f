"""A change of a file as rows: line numbers, signs, and colours."""

import re
from collections.abc import Sequence

from runner.frontends.tui.code import diff_style
from runner.frontends.tui.rows import Row, chop, hang
from runner.frontends.tui.theme import Theme
from runner.text.sanitize import visible

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


def diff_rows(lines: Sequence[str], width: int, theme: Theme, fold: tuple[int, int] | None = None) -> list[Row]:
    """Return a unified diff (and the lines before it) with line numbers: the new number, or the old one of a removed
    line.

    `fold` are the numbers of lines kept before and after the lines that are left out.
    """
    first, last = fold or (len(lines), 0)
    hidden = len(lines) - first - last
    hunks = [found for line in lines if (found := _HUNK.match(line))]
    size = max((len(str(int(hunk[at]) + int(hunk[at + 1] or 1))) for hunk in hunks for at in (1, 3)), default=1) + 1
    rows: list[Row] = []
    old = new = 0
    rest = (0, 0)  # lines of the hunk that are still to come: what follows the last of them begins another file
    inside = False
    for place, line in enumerate(lines):
        number = ""
        if found := _HUNK.match(line):
            old, new, inside = int(found[1]), int(found[3]), True
            rest = old + int(found[2] or 1), new + int(found[4] or 1)
        elif inside and (old, new) == rest and line[:1] != "\\":
            inside = False
        elif inside and line[:1] in ("+", "-", " ", ""):
            number = str(old if line[:1] == "-" else new)
            old += line[:1] != "+"
            new += line[:1] != "-"
        if hidden > 1 and first <= place < first + hidden:
            if place == first:
                rows.append([(theme.dim, f"… {hidden} more lines (ctrl-o shows them)")])
            continue
        gutter = f"{number:>{size}} " if inside else ""
        style = diff_style(line, theme) if inside else ""
        room = max(width - len(gutter), 10)
        rows += hang(chop([(style, visible(line))], room), (theme.dim, gutter), ("", " " * len(gutter)))
    return rows
