"""What bash evaluates where it wants a number: numbers, and names of variables."""

import re

from policy.bash.ast import Arithmetic, Parameter, Text, Word

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[1-9]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNTS = frozenset("#?$")


def is_number(word: Word) -> bool:
    """Whether the word is a whole number for certain."""
    literal = word.literal
    if literal is not None:
        return _NUMBER.fullmatch(literal) is not None
    if len(word.parts) != 1:
        return False
    (part,) = word.parts
    return isinstance(part, Arithmetic) or (isinstance(part, Parameter) and (part.length or part.name in _COUNTS))


def evaluated(word: Word) -> str | None:
    """The name whose value is evaluated when this word is: `x` or `$x`."""
    if len(word.parts) != 1:
        return None
    (part,) = word.parts
    if isinstance(part, Text):
        return part.text if _VARIABLE.fullmatch(part.text) else None
    plain = isinstance(part, Parameter) and not part.length and not part.subscript
    return part.name if isinstance(part, Parameter) and plain and _NAME.fullmatch(part.name) else None
