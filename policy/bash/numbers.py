"""Numeric words: the numbers and names of variables that bash evaluates."""

import re

from policy.bash.ast import Arithmetic, Parameter, Text, Word

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[1-9]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNTS = frozenset("#?$")


def is_number(word: Word) -> bool:
    """Return True if the word is certainly a whole number."""
    literal = word.literal
    if literal is not None:
        return _NUMBER.fullmatch(literal) is not None
    if len(word.parts) != 1:
        return False
    (part,) = word.parts
    return isinstance(part, Arithmetic) or (isinstance(part, Parameter) and (part.length or part.name in _COUNTS))


def evaluated(word: Word) -> str | None:
    """Return the name whose value is evaluated when this word is: `x` or `$x`, or None."""
    if len(word.parts) != 1:
        return None
    (part,) = word.parts
    if isinstance(part, Text):
        return part.text if _VARIABLE.fullmatch(part.text) else None
    plain = isinstance(part, Parameter) and not part.length and not part.subscript
    return part.name if isinstance(part, Parameter) and plain and _NAME.fullmatch(part.name) else None
