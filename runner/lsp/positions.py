"""The position of a word in a file, from what a model states: a line and the word, or the word alone."""

import re

from policy.model.action import QueryCode
from policy.model.verdict import Problem, ProblemError
from runner.text.sanitize import one_line

_AROUND = 5  # lines above and below the stated line, because models count badly
_NAME = re.compile(r"\w+")


class SymbolMissing(ProblemError):
    """The error for a word that is not where the model states it to be."""


def place_of(action: QueryCode, lines: list[str]) -> tuple[int, int]:
    """Return the line and the column, from 0, of the word that `action` is about. Raise SymbolMissing.

    With a line, the nearest of the lines around it that contains the word is taken; without one, the first line.
    """
    word = re.split(r"::|\.", action.symbol)[-1] if action.symbol else ""
    if not word:
        return _first_name(action, lines)
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    if not action.line:
        for number, line in enumerate(lines):
            if match := pattern.search(line):
                return number, match.start()
        why = f"the word `{one_line(word, 100)}` is not in it"
        raise SymbolMissing(Problem(f"nothing was asked about `{action.path}`", why, "search for it with `grep`"))
    stated = action.line - 1
    for distance in range(_AROUND + 1):
        for number in dict.fromkeys((stated + distance, stated - distance)):
            if 0 <= number < len(lines) and (match := pattern.search(lines[number])):
                return number, match.start()
    why = f"the word `{one_line(word, 100)}` is not on line {action.line} or within {_AROUND} lines of it"
    raise SymbolMissing(Problem(f"nothing was asked about `{action.path}`", why, "read these lines, and call again"))


def word_from(lines: list[str], line: int, column: int, word: str) -> tuple[int, int]:
    """Return the position of `word` on the line or one of the next lines, from a position on that some servers give:
    that of a keyword or a decorator. Without the word there, return that position.
    """
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    for number in range(line, min(line + _AROUND + 1, len(lines))):
        if match := pattern.search(lines[number], column if number == line else 0):
            return number, match.start()
    return line, column


def name_at(lines: list[str], line: int, column: int) -> str:
    """Return the name at a position; empty if there is none."""
    match = _NAME.match(lines[line], column) if line < len(lines) else None
    return match[0] if match else ""


def _first_name(action: QueryCode, lines: list[str]) -> tuple[int, int]:
    number = action.line - 1
    match = _NAME.search(lines[number]) if 0 <= number < len(lines) else None
    if match is None:
        why = f"line {action.line} has no name" if action.line else "neither a line nor a symbol is given"
        raise SymbolMissing(Problem(f"nothing was asked about `{action.path}`", why, "give `line` and `symbol`"))
    return number, match.start()
