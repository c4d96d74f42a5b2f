"""Fields of a record, whatever is in them: total, since a log may be of another version, or changed by somebody."""

from collections.abc import Mapping

CUT = "…"  # ends what was cut when it was recorded

Body = Mapping[str, object]


def text(value: object) -> str:
    """A text, or the beginning of one that was cut when it was recorded; empty for anything else."""
    if isinstance(value, dict):
        return f"{value.get('cut', '')}{CUT}"
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def texts(value: object) -> tuple[str, ...]:
    return tuple(text(item) for item in items(value))


def number(value: object) -> int | float | None:
    """A number as other programs know them: a whole one has 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -(2.0**63) < value < 2.0**63 else None  # nor is it NaN, which JSON does not have
