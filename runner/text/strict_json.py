"""Strict JSON: an object has each name once, and NaN and the infinities are no numbers.

THREAT: of two values under one name, another program may use the value that was not checked.
"""

import json


class DuplicateNameError(ValueError):
    """The error for an object with the same name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"`{name}` is in it twice")
        self.name = name


def parse_strictly(text: str) -> object:
    """Return the value of a JSON text. Raise ValueError for any other text, and RecursionError for deep nesting."""
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise DuplicateNameError(name)
        found[name] = value
    return found


def _no_number(text: str) -> object:
    raise ValueError(f"`{text}` is not a JSON number")
