"""Patterns in which `*` matches any text, `?` one character, and every other character itself."""

import re
from functools import lru_cache


def glob(text: str, pattern: str) -> bool:
    """Return True if `pattern` matches all of `text`: `*` is any text, `?` one character, every other character itself.
    The time is at most the product of both lengths, because no piece is searched again after a match.
    """
    first, *others = pattern.split("*")
    if not others:
        return len(text) == len(first) and _at(text, first, 0)
    *middle, last = others
    end = len(text) - len(last)
    if end < len(first) or not _at(text, first, 0) or not _at(text, last, end):
        return False
    here = len(first)
    for piece in middle:
        found = _find(text, piece, here, end)
        if found < 0:
            return False
        here = found + len(piece)
    return True


def _at(text: str, piece: str, place: int) -> bool:
    if "?" not in piece:
        return text.startswith(piece, place)
    return _compiled(piece).match(text, place) is not None


def _find(text: str, piece: str, start: int, end: int) -> int:
    if "?" not in piece:
        return text.find(piece, start, end)
    found = _compiled(piece).search(text, start, end)
    return found.start() if found else -1


@lru_cache(maxsize=512)
def _compiled(piece: str) -> re.Pattern[str]:
    return re.compile("".join("." if char == "?" else re.escape(char) for char in piece), re.DOTALL)
