"""Strict JSON: an object has each name once, and NaN and the infinities are no numbers.

THREAT: of two values under one name, another program may use the value that was not checked.
"""

import json
import re

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*(?:"|\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_VISIBLE = re.compile(r"[^\n]")


class DuplicateNameError(ValueError):
    """The error for an object with the same name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"`{name}` is in it twice")
        self.name = name


def parse_strictly(text: str) -> object:
    """Return the value of a JSON text. Raise ValueError for any other text, and RecursionError for deep nesting."""
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)


def json_object(text: str) -> dict[str, object]:
    """Return the object of a JSON file of another program. Raise ValueError, with the reason as its text, if the file
    is none.
    """
    try:
        found = parse_strictly(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except DuplicateNameError:
        raise ValueError("it contains a key twice, and programs differ in which one they use") from None
    except ValueError:
        raise ValueError("it is not valid JSON") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def json_text(data: bytes, *, commented: bool) -> str:
    """Return the text of such a file. With `commented`, blanks replace each comment, so that lines stay where they are.

    Raise ValueError, with the reason as its text.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not valid JSON") from None
    return _COMMENT.sub(lambda found: found[1] or _VISIBLE.sub(" ", found[0]), text) if commented else text


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise DuplicateNameError(name)
        found[name] = value
    return found


def _no_number(text: str) -> object:
    raise ValueError(f"`{text}` is not a JSON number")
