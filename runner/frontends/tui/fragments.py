"""Styled text of one screen row, as prompt_toolkit takes it: pairs of style and text, measured in cells."""

from collections.abc import Iterable

from runner.frontends.tui.rows import cells as text_cells
from runner.frontends.tui.rows import head

Fragments = list[tuple[str, str]]  # (style, text); no text holds a newline or a control character


def cells(fragments: Iterable[tuple[str, str]]) -> int:
    """Return the number of columns that the fragments take on the terminal."""
    return sum(text_cells(text) for _, text in fragments)


def fit(fragments: Fragments, width: int, cut: str = "…") -> Fragments:
    """Return the row in at most `width` columns; `cut` stands for the part that did not fit."""
    if cells(fragments) <= width:
        return fragments
    room = max(width - text_cells(cut), 0)
    kept: Fragments = []
    for style, text in fragments:
        short = head(text, room)
        kept.append((style, short))
        room -= text_cells(short)
        if short != text:
            break
    if width > 0:
        kept.append((kept[-1][0] if kept else "", cut))
    return kept


def wrapped(style: str, text: str, width: int) -> list[Fragments]:
    """Wrap `text` into as many rows as it needs, at blanks if possible. A newline begins a new row."""
    width = max(width, 1)
    rows: list[Fragments] = []
    for line in text.split("\n"):
        began = len(rows)
        while text_cells(line) > width:
            piece = head(line, width) or line[:1]
            if (blank := piece.rfind(" ")) > 0 and line[len(piece) : len(piece) + 1] != " ":
                piece = piece[:blank]
            rows.append([(style, piece)])
            line = line[len(piece) :].removeprefix(" ")
        if line or len(rows) == began:
            rows.append([(style, line)])
    return rows
