"""Rows of styled text: functions to measure, wrap and cut them, and to write them as ANSI text.

A style is a string in the format of prompt_toolkit ("bold ansired", "bg:ansiblue"), so that a row can be live first
and finished later. Only the sixteen standard colours are supported, which users choose in their terminals.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from prompt_toolkit.utils import get_cwidth

from runner.text.sanitize import visible

Fragment = tuple[str, str]  # style, text
Fragments = list[Fragment]

WIDEST = 120  # long lines are hard to read on a wide screen
NARROWEST = 10  # cells

_PIECES = re.compile(r"\n| +|[^ \n]+")
_ATTRIBUTES = {"bold": 1, "dim": 2, "italic": 3, "underline": 4, "reverse": 7, "strike": 9}
_COLOURS = {
    "black": 30, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "gray": 37,
    "brightblack": 90, "brightred": 91, "brightgreen": 92, "brightyellow": 93, "brightblue": 94, "brightmagenta": 95,
    "brightcyan": 96, "white": 97,
}  # fmt: skip


def measure(columns: int) -> int:
    """Return the number of cells that a row may take on a terminal of `columns`: all except the last, and at most
    WIDEST. The number is never less than NARROWEST.

    Terminals disagree about the cursor after a full row, and a full row becomes two when the window gets narrower.
    """
    return min(max(columns - 1, NARROWEST), WIDEST)


@lru_cache(maxsize=4096)
def _cell(char: str) -> int:
    return get_cwidth(char)


def cells(text: str) -> int:
    """Return the number of columns that `text` takes. `text` is one line that passed `visible`."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def clip_rows(rows: list[Fragments], width: int) -> list[Fragments]:
    """Return `rows`, none of them wider than `width`."""
    if all(row_cells(row) <= width for row in rows):
        return rows
    return [part for row in rows for part in chop(row, width)]


def cut(text: str, room: int) -> str:
    """Return `text` in at most `room` cells; `…` ends a text that was cut."""
    return text if cells(text) <= room else head(text, room - 1).rstrip() + "…"


def head(text: str, room: int, start: int = 0) -> str:
    """Return the longest part of `text` from `start` that takes at most `room` cells."""
    return text[start : _until(text, start, max(room, 0))]


def safe(text: str, style: str = "", *, prose: bool = False) -> Fragments:
    """Return untrusted text as one fragment; `prose` as for `visible`."""
    return [(style, visible(text, prose=prose))]


def wrap(row: Iterable[Fragment], width: int) -> list[Fragments]:
    """Wrap `row` into lines of at most `width` cells, at blanks and newlines, and inside longer words.

    Blanks at the beginning of a line stay; blanks at a break are removed. The time is linear in the length.
    """
    out: list[Fragments] = [[]]
    used = 0
    gap: Fragment | None = None
    word: Fragments = []
    size = 0

    def put() -> None:
        nonlocal used, gap, word, size
        if not word:
            return
        blank = len(gap[1]) if gap is not None else 0
        if used + blank + size <= width:
            if gap is not None:
                _add(out[-1], *gap)
            used += blank
        elif used + blank >= width or (size <= width and not _breakable(word)):
            if out[-1]:
                out.append([])
            used = 0
        elif gap is not None:
            _add(out[-1], *gap)
            used += blank
        used = _fill(out, word, used, width)
        gap, word, size = None, [], 0

    for style, text in row:
        for piece in _PIECES.findall(text):
            if piece == "\n":
                put()
                gap = None
                out.append([])
                used = 0
            elif piece[0] == " ":
                put()
                gap = (style, (gap[1] if gap else "") + piece)
                if not out[-1] and len(gap[1]) >= width:  # an indentation wider than the row
                    gap = (style, gap[1][: width // 2])
            else:
                word.append((style, piece))
                size += cells(piece)
    put()
    return out


def _breakable(word: Fragments) -> bool:
    """Return True if the text has wide characters: scripts without blanks may be broken anywhere."""
    return any(not text.isascii() and any(_cell(char) == 2 for char in text) for _, text in word)


def chop(row: Iterable[Fragment], width: int) -> list[Fragments]:
    """Break `row` at exactly `width` cells and keep every blank, as code needs it."""
    out: list[Fragments] = [[]]
    _fill(out, row, 0, width)
    return out


def _fill(out: list[Fragments], row: Iterable[Fragment], used: int, width: int) -> int:
    """Append `row` to `out`, whose last row has `used` cells, and return the used cells of the new last row."""
    for style, text in row:
        start, ascii_only = 0, text.isascii()
        while start < len(text):
            end = min(start + width - used, len(text)) if ascii_only else _until(text, start, width - used)
            if end == start and used == 0:
                end += 1  # wider than a whole row
            if end > start:
                _add(out[-1], style, text[start:end])
                used = used + end - start if ascii_only else used + cells(text[start:end])
                start = end
            if start < len(text):
                out.append([])
                used = 0
    return used


def _add(row: Fragments, style: str, text: str) -> None:
    if row and row[-1][0] == style:
        text = row.pop()[1] + text
    row.append((style, text))


def _until(text: str, start: int, room: int) -> int:
    """Return the end of the text that begins at `start` and fits into `room` cells. Marks stay on their letter."""
    used = 0
    for place in range(start, len(text)):
        used += _cell(text[place])
        if used > room:
            return place
    return len(text)


def hang(rows: Sequence[Fragments], first: Fragment, rest: Fragment) -> list[Fragments]:
    """Return `rows` with one prefix before the first row, and another before each of the others."""
    return [[rest if number else first, *row] for number, row in enumerate(rows)]


def plain(row: Fragments) -> str:
    """Return the text without styles."""
    return "".join(text for _, text in row)


def ansi(rows: Iterable[Fragments]) -> str:
    """Return `rows` as ANSI text, each row with a newline and without blanks at its end.

    INVARIANT: except for newlines and the colours made here, the text contains no control character.
    """
    lines = []
    for row in rows:
        pieces = []
        for style, text in _trimmed(row):
            codes = _sgr(style)
            pieces.append(f"\x1b[{codes}m{text}\x1b[0m" if codes else text)
        lines.append("".join(pieces) + "\n")
    return "".join(lines)


_PLAINER = str.maketrans({"│": "|", "└": "`", "─": "-", "┼": "+", "•": "*", "…": "~", "·": "-", "⋮": ":"})


def encode_rows(rows: list[Fragments], encoding: str) -> list[Fragments]:
    """Return `rows` for a terminal of this encoding, with other characters as escapes and line drawing as ASCII."""
    if encoding.lower().replace("-", "").startswith("utf"):
        return rows

    def spelled(text: str) -> str:
        return text.translate(_PLAINER).encode(encoding, "backslashreplace").decode(encoding)

    return [[(style, text if text.isascii() else spelled(text)) for style, text in row] for row in rows]


def _trimmed(row: Fragments) -> Fragments:
    row = list(row)
    while row and "bg:" not in row[-1][0] and "reverse" not in row[-1][0]:
        style, text = row.pop()
        if trimmed := text.rstrip(" "):
            return [*row, (style, trimmed)]
    return row


@lru_cache(maxsize=256)
def _sgr(style: str) -> str:
    """Return the parameters of SGR (ECMA-48 8.3.117) for a style. Unknown words are left out."""
    codes = []
    for word in style.split():
        name = word.removeprefix("bg:").removeprefix("fg:").removeprefix("ansi")
        if word in _ATTRIBUTES:
            codes.append(_ATTRIBUTES[word])
        elif name in _COLOURS:
            codes.append(_COLOURS[name] + (10 if word.startswith("bg:") else 0))
    return ";".join(map(str, codes))


def row_cells(fragments: Iterable[tuple[str, str]]) -> int:
    """Return the number of columns that the fragments take on the terminal."""
    return sum(cells(text) for _, text in fragments)


def fit(fragments: Fragments, width: int) -> Fragments:
    """Return the row in at most `width` columns; `…` replaces the part that does not fit."""
    if row_cells(fragments) <= width:
        return fragments
    room = max(width - 1, 0)
    fitted: Fragments = []
    for style, text in fragments:
        short = head(text, room)
        fitted.append((style, short))
        room -= cells(short)
        if short != text:
            break
    if width > 0:
        fitted.append((fitted[-1][0] if fitted else "", "…"))
    return fitted


def wrapped(style: str, text: str, width: int) -> list[Fragments]:
    """Wrap `text` into as many rows as it needs, at blanks if possible. A newline begins a new row."""
    width = max(width, 1)
    rows: list[Fragments] = []
    for line in text.split("\n"):
        began = len(rows)
        while cells(line) > width:
            piece = head(line, width) or line[:1]
            if (blank := piece.rfind(" ")) > 0 and line[len(piece) : len(piece) + 1] != " ":
                piece = piece[:blank]
            rows.append([(style, piece)])
            line = line[len(piece) :].removeprefix(" ")
        if line or len(rows) == began:
            rows.append([(style, line)])
    return rows
