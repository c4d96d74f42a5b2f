"""Brace expansion of plain words and globs: `src/{a,b}.py` is two words, `{1..3}` three, `*.{ts,tsx}` two globs.

Anything less plain is left alone.
"""

import itertools
import re

_MOST = 100

_TEXT = r"[A-Za-z0-9_./:=@%+*?-]*"
_CHOICE = rf"\{{{_TEXT}(?:,{_TEXT})+\}}"
_NUMBER = r"(?:0|-?[1-9][0-9]{0,3})"
_SEQUENCE = rf"\{{{_NUMBER}\.\.{_NUMBER}\}}"
_GROUP = re.compile(rf"{_CHOICE}|{_SEQUENCE}")

BRACED = re.compile(rf"{_TEXT}(?:(?:{_CHOICE}|{_SEQUENCE}){_TEXT})+(?=[ \t\n;|&)]|\Z)")
# Braces without a comma or `..` between them are themselves, and nothing after them is a brace (`@{u}..HEAD`).
THEMSELVES = re.compile(r"(?:\{(?:[A-Za-z0-9_-]|\.(?!\.))*\}[A-Za-z0-9_./:^~@-]*)+\Z")
_LIKE_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def expand(word: str) -> tuple[str, ...] | None:
    """The words that bash makes of a word that BRACED matches, or None when that is not certain."""
    if _LIKE_ASSIGNMENT.match(word):
        return None  # whether bash expands it depends on the command
    pieces: list[list[str]] = []
    at = 0
    for found in _GROUP.finditer(word):
        pieces.append([word[at : found.start()]])
        inside = found[0][1:-1]
        if "," in inside:
            if ".." in inside:
                return None
            pieces.append(inside.split(","))
        else:
            first, last = map(int, inside.split(".."))
            step = 1 if first <= last else -1
            if abs(last - first) >= _MOST:
                return None
            pieces.append([str(number) for number in range(first, last + step, step)])
        at = found.end()
    pieces.append([word[at:]])
    words = tuple("".join(choice) for choice in itertools.islice(itertools.product(*pieces), _MOST + 1))
    return words if len(words) <= _MOST and all(words) else None
