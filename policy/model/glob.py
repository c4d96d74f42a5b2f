"""Patterns: globs, and regular expressions that are compiled at their first use.

In a glob, `*` matches any text, `?` one character, and every other character itself. A regular expression takes 0.1 ms
to compile, and a short command loads the modules of more than fifty and uses ten.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, AnyStr, Generic


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


_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub")


class _LatePattern(Generic[AnyStr]):
    """A regular expression that is compiled at its first use. It has the methods of `re.Pattern`."""

    def __init__(self, text: AnyStr, flags: int = 0) -> None:
        self.pattern: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._flags)
        for each in _METHODS:  # found before `__getattr__` from now on
            self.__dict__[each] = getattr(compiled, each)
        return self.__dict__[name]


if TYPE_CHECKING:

    def late(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
        """Return the regular expression `text`, which is compiled at its first use."""

else:
    late = _LatePattern
