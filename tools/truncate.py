"""Truncation of text to the length that a model can use, always with a marker."""

from policy.model.frozen import dataclass

LINES = 2000
BYTES = 50 * 1024


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a text. `lines` and `bytes` count what was cut from its start."""

    text: str
    lines: int
    bytes: int


def tail(text: str, lines: int = LINES, room: int = BYTES) -> Tail:
    """Return the last `lines` lines of `text` or its last `room` bytes of UTF-8, whichever is less.

    A line is cut only when it alone is larger than the room.
    """
    start = len(text)
    left = room
    for _ in range(lines):
        begin = text.rfind("\n", 0, max(start - 1, 0)) + 1
        left -= _bytes(text[begin:start])
        if left < 0:
            break
        start = begin
    if start == len(text) and lines and room:
        piece = text[-room:].encode("utf-8", "replace")[-room:].decode("utf-8", "ignore")
        start = len(text) - len(piece)
    return Tail(text[start:], text.count("\n", 0, start), _bytes(text[:start]))


def head(lines: list[str], room: int) -> tuple[list[str], int]:
    """Return as many first lines as fit into `room` characters, and the number of omitted lines."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept, len(lines) - len(kept)


def short(text: str, limit: int = 60) -> str:
    """Return `text` on one line for a message: controls and lone surrogates as escapes, the end cut off with `…`."""
    piece = text[:limit]
    if not piece.isprintable():
        piece = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in piece)[:limit]
    return piece if len(text) <= limit else f"{piece}…"


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
