"""Readers of record fields. They never raise, because a log may be modified or of another version."""

import re
from collections.abc import Mapping
from datetime import datetime

CUT = "…"  # end of a text that was cut when it was recorded

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_LONGEST = 1 << 31  # characters of a script

Body = Mapping[str, object]


def text(value: object) -> str:
    """Return a text, or the recorded beginning of a cut text with CUT at its end; empty for any other value."""
    if isinstance(value, dict):
        return f"{value.get('cut', '')}{CUT}"
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, object]:
    """Return an object; empty for any other value."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return a list; empty for any other value."""
    return value if isinstance(value, list) else []


def texts(value: object) -> tuple[str, ...]:
    """Return the elements of a list, each read by `text`; empty for any other value."""
    return tuple(text(item) for item in items(value))


def number(value: object) -> int | float | None:
    """Return a number that fits 64 bits, as other programs expect; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -(2.0**63) < value < 2.0**63 else None  # the comparison is False for NaN, which JSON does not have


def beginning(value: object) -> str:
    """Return a text, or the recorded beginning of a cut text without a mark; empty for any other value."""
    if isinstance(value, dict):
        value = value.get("cut")
    return value if isinstance(value, str) else ""


def length(value: object) -> int:
    """Return the length of the whole text, also when only its beginning was recorded."""
    recorded = integer(value.get("length")) if isinstance(value, dict) else None
    return max(len(beginning(value)), recorded or 0)


def integer(value: object) -> int | None:
    """Return an integer that fits 64 bits; None for any other value."""
    whole = number(value)
    return whole if isinstance(whole, int) else None


def utc_time(value: object) -> str:
    """Return a time in the format of records; empty for any other value."""
    return beginning(value) if _TIME.fullmatch(beginning(value)) else ""


def milliseconds(value: object) -> int:
    """Return a time in milliseconds since 1970; 0 for text that is not a time."""
    try:
        return int(datetime.fromisoformat(beginning(value)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def text_span(value: object) -> list[int]:
    """Return the begin and end of a span in code points, half-open; empty for an invalid value."""
    ends = [integer(each) for each in items(value)]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or not 0 <= ends[0] < ends[1] <= _LONGEST:
        return []
    return [ends[0], ends[1]]
