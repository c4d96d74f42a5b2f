"""Finding by a few letters: every word typed must occur in order, and what fits closest comes first."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_BREAKS = "/._- :"  # what begins after one of these is the beginning of a word


def score(query: str, text: str) -> int | None:
    """Return how well `text` matches `query`, more is better; None if letters are missing. Case is ignored."""
    low, total = text.lower(), 0
    for word in query.lower().split():
        found = _word(word, low)
        if found is None:
            return None
        total += found
    return total


def best(query: str, rows: Iterable[T], text: Callable[[T], str], most: int | None = None) -> list[T]:
    """Return the rows that match `query`, best first, in their original order if they match equally well."""
    if not query.strip():
        return list(rows)[:most]
    found = [(-points, place, row) for place, row in enumerate(rows) if (points := score(query, text(row))) is not None]
    found.sort(key=lambda each: each[:2])
    return [row for *_, row in found[:most]]


def _word(word: str, text: str) -> int | None:
    """Whole in the text beats scattered; at the beginning of a word beats inside; near the end of a path beats far."""
    at = text.rfind(word)
    if at >= 0:
        begins = at == 0 or text[at - 1] in _BREAKS
        return 1000 + 200 * begins + 100 * (at + len(word) == len(text)) - min(len(text) - at, 100)
    points, at = 0, -1
    for char in word:
        next_at = text.find(char, at + 1)
        if next_at < 0:
            return None
        points += 20 if next_at == at + 1 else 10 if next_at == 0 or text[next_at - 1] in _BREAKS else 1
        at = next_at
    return points - min(len(text), 100) // 10
