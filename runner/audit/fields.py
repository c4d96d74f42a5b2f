"""Total readers of record fields: they accept any value, since a log may be of another version, or modified."""

from collections.abc import Mapping

CUT = "…"  # ends what was cut when it was recorded

Body = Mapping[str, object]


def text(value: object) -> str:
    """Return a text, or the recorded beginning of one that was cut; empty for anything else."""
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
    """Return a number that fits 64 bits, as other programs expect; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -(2.0**63) < value < 2.0**63 else None  # nor is it NaN, which JSON does not have
