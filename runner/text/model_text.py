"""Text that a model or its server wrote, read without trust: JSON objects, tool calls, and plain Unicode."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping

from runner.messages import ToolCall

Json = dict[str, object]

_MARKS = re.compile(r'["\\\\{}\[\]]')
_MOST_TOKENS = 1 << 40  # tokens of one answer; session files refuse sums of 2**53 and more
# Lists, objects and items in one text. In memory, each takes up to thirty times its length in the text; compressed text
# is up to a thousand times shorter. Brackets and commas within strings are counted as well, because no answer has a
# million of them.
_MOST_PARTS = 1 << 20
DEPTH_LIMIT = 64  # levels of nested arguments; deeper ones could exceed the limits of other parsers


def parse_object(text: str | bytes) -> dict[str, object] | None:
    """Return the JSON object in `text`, or None if it is invalid or has more than _MOST_PARTS parts."""
    return _object(text)


def parse_arguments(raw: str) -> dict[str, object] | None:
    """Return the arguments of a tool call, or None if `raw` is not a JSON object. Blank text means no arguments.

    The result can be written as standard JSON again: no NaN, no infinity, limited nesting.
    """
    if not raw.strip():
        return {}
    value = _object(raw, _finite)
    return value if value is not None and shallow(value) else None


def parse_call(id: str, name: str, raw: str) -> ToolCall:
    """Return the tool call with the arguments in `raw`. The call keeps `raw` if its arguments are invalid."""
    arguments = parse_arguments(raw)
    return ToolCall(id, name, arguments, "" if arguments is not None else raw)


def _object(text: str | bytes, number: Callable[[str], float] | None = None) -> dict[str, object] | None:
    """Return the JSON object in `text`, or None if it is invalid or may hold more than _MOST_PARTS lists, objects and
    items. `number` converts fractions, NaN and the infinities, and may refuse a number with ValueError.
    """
    if len(text) > _MOST_PARTS:
        marks = (text.count(mark) for mark in "[{,") if isinstance(text, str) else (text.count(mark) for mark in b"[{,")
        if sum(marks) > _MOST_PARTS:
            return None
    try:
        value: object = json.loads(text, parse_constant=number, parse_float=number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Closing:
    """A detector of the end of a JSON object that arrives in pieces, in linear time. It does not validate the JSON."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False  # True if the next character is escaped
        self.closed = False

    def feed(self, text: str) -> bool:
        """Return True if the object ended in `text`."""
        if self.closed or not text:
            return False
        plain = 0 if self._escaped else -1
        for mark in _MARKS.finditer(text):
            at = mark.start()
            if at == plain:
                continue
            match mark[0]:
                case "\\":
                    plain = at + 1
                case '"':
                    self._quoted = not self._quoted
                case "{" | "[" if not self._quoted:
                    self._depth += 1
                case "}" | "]" if not self._quoted:
                    self._depth -= 1
                    self.closed = self.closed or self._depth == 0
        self._escaped = plain == len(text)
        return self.closed


def whole_text(parts: Iterable[str]) -> str:
    """Return the joined text as valid Unicode: surrogates split over two deltas are joined, lone ones are replaced."""
    text = "".join(parts)
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def wire_json(body: Mapping[str, object]) -> bytes:
    """Return the request body. A lone surrogate, which no server accepts, becomes `?`."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def count_of(holder: object, key: str) -> int | None:
    """Return a token count, or None if the server gave no valid one."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else None


def _finite(text: str) -> float:
    """Return a number, or raise ValueError for NaN, an infinity, and a number that is too large for a float."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def shallow(value: object) -> bool:
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False
