"""What bash evaluates later. Names in arithmetic must hold numbers, or a value may name a command to run."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from policy.assessment import Span
from policy.script.tree import (
    Arithmetic,
    ArrayAssignment,
    Assignment,
    Change,
    Command,
    For,
    Opaque,
    Parameter,
    Script,
    Text,
    Word,
)

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_OWN_NUMBERS = frozenset(("RANDOM", "SECONDS", "EPOCHSECONDS", "LINENO"))  # bash keeps them numbers
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNTS = frozenset("#?$")
# What else gives values to variables, by names in its words. `declare` and its kin can make a name stand for another.
_SETTERS = frozenset((
    "read", "mapfile", "readarray", "printf", "export", "declare", "typeset", "local", "readonly", "unset", "getopts",
    "let", "eval", "source", ".", "wait",
))  # fmt: skip
_DECLARERS = frozenset(("declare", "typeset", "local"))
_PREFIXES = frozenset(("command", "builtin", "exec"))


def objection_to_numbers(tree: Script, names: dict[str, Span]) -> Opaque | None:
    """Why one of `names`, which arithmetic reads, may hold something else than a number; or None."""
    given: set[str] = set()
    for node in everything(tree):
        match node:
            case Assignment(name=name) if name in names:
                if node.append or not is_number(node.value):
                    return _opaque(name, node.span)
                given.add(name)
            case ArrayAssignment(name=name) if name in names:
                return _opaque(name, node.span)
            case For(name=name) if name in names:
                if node.words is None or not all(map(is_number, node.words)):
                    return _opaque(name, node.span)
                given.add(name)
            case Change(name=name, operator="=") if name in names:
                given.add(name)
            case Command() if _sets(node, names):
                return Opaque("a command that may change a variable that arithmetic evaluates", node.span)
    for name, span in names.items():
        if name not in given and name not in _OWN_NUMBERS:
            return _opaque(name, span)
    return None


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
        return part.text if _NAME.fullmatch(part.text) else None
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


def _sets(command: Command, names: dict[str, Span]) -> bool:
    # Of `export x="$y"` the name is certain, and the name is what counts.
    texts = [word.literal or (word.prefix if "=" in word.prefix else None) for word in command.words]
    while texts and texts[0] in _PREFIXES:
        del texts[0]
    if not texts or (texts[0] is not None and texts[0] not in _SETTERS):
        return False
    if texts[0] == "printf" and len(texts) > 1 and texts[1] is not None and not texts[1].startswith("-"):
        return False
    return any(text is None or not names.keys().isdisjoint(re.findall(r"\w+", text)) for text in texts)


def _opaque(name: str, span: Span) -> Opaque:
    return Opaque(f"arithmetic on `{name}`, which may be something else than a number", span)
