"""Text for the model: truncation to a useful length, always with a marker, and numbers in readable form."""

from policy.model.frozen import dataclass

LINES = 2000
BYTES = 50 * 1024


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a text. `lines` and `bytes` count the part that was cut from the start."""

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


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """Return `1 line` or `2,000 lines`; `nouns` is the plural if it is not formed with an s."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def size(number: int) -> str:
    """Return `340 bytes`, `1.2 KiB` or `20.0 MiB`, in units of 1024."""
    if number < 1024:
        return count(number, "byte")
    amount, unit = number / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


def seconds(number: float) -> str:
    """Return `0.4 s` or `12 s`."""
    return f"{number:.1f} s" if number < 10 else f"{number:.0f} s"
