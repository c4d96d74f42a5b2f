"""What bash evaluates: numbers, names of variables, and declarations that it may read as arrays."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from policy.assessment import Span
from policy.script.tree import (
    Arithmetic,
    ArrayAssignment,
    Command,
    Opaque,
    Parameter,
    Script,
    Text,
    Word,
)

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[1-9]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNTS = frozenset("#?$")
_DECLARERS = frozenset(("declare", "typeset", "local"))
_PREFIXES = frozenset(("command", "builtin", "exec"))


def objection_to_arrays(tree: Script) -> Opaque | None:
    """`x=(a); declare x='([$(cmd)]=b)'` runs `cmd`: once there are arrays, such values must be plain."""
    nodes = list(everything(tree))
    if not any(isinstance(node, ArrayAssignment) for node in nodes):
        return None
    for node in nodes:
        if isinstance(node, Command) and _declares(node):
            return Opaque("a declaration that may be read as an array", node.span)
    return None


def _declares(command: Command) -> bool:
    texts = [word.literal for word in command.words]
    while texts and texts[0] in _PREFIXES:
        del texts[0]
    if not texts or (texts[0] is not None and texts[0] not in _DECLARERS):
        return False
    prefixes = [word.prefix for word in command.words]
    return any(text is None or "=(" in text for text in texts[1:]) or any("=(" in prefix for prefix in prefixes)


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


def everything(value: object) -> Iterator[object]:
    """Every node below `value`, itself included: whatever the tree may grow, nothing is forgotten."""
    if isinstance(value, tuple):
        for item in value:
            yield from everything(item)
    elif is_dataclass(value) and not isinstance(value, (type, Span)):
        yield value
        for field in fields(value):
            yield from everything(getattr(value, field.name))
