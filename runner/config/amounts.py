"""Parsers of amounts as users write them: `--limit memory=2G`, `--timeout 90s`. An ambiguous amount is an error."""

from dataclasses import asdict

from policy.model.verdict import Limits, limit_names
from runner.problems import option, usage

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1.0, "b": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
_BYTES |= {f"{unit}{tail}": _BYTES[unit] for unit in "kmgt" for tail in ("b", "ib")}
_COUNT = {"": 1.0}
_LARGEST = 2.0**53  # seconds, bytes or pieces: above it, floats are not exact

# limit: (units, whole numbers only, an example)
_KINDS: dict[str, tuple[dict[str, float], bool, str]] = {
    "wall": (_SECONDS, False, "30s, 5m, 0.5"),
    "cpu": (_SECONDS, True, "60s, 10m"),
    "pids": (_COUNT, True, "256"),
    "memory": (_BYTES, True, "512M, 2G"),
    "file": (_BYTES, True, "100M, 1G"),
    "open-files": (_COUNT, True, "1024"),
    "output": (_BYTES, True, "64K, 10M"),
    "disk": (_BYTES, True, "500M, 20G"),
}
_FORMS = {  # by whether the units are those of a time, and those of a size
    (True, False): "write a number of seconds, or a number with s, m or h",
    (False, True): "write a number of bytes, or a number with K, M or G",
    (False, False): "write a whole number",
}


def parse_seconds(text: str, option: str) -> float:
    """Return an amount of time in seconds, above 0. Raise a usage error that names `option`."""
    return _amount(text, "wall", option)


def parse_bytes(text: str, option: str) -> int:
    """Return an amount of data in bytes, at least 1. Raise a usage error that names `option`."""
    return int(_amount(text, "output", option))


def apply_limits(base: Limits, settings: tuple[str, ...]) -> Limits:
    """Return `base` with every `NAME=VALUE` applied in order. Raises a usage error that names the valid names and
    units.
    """
    values = asdict(base)
    for setting in settings:
        name, sign, value = setting.partition("=")
        name = name.strip().replace("_", "-")
        if not sign or name not in limit_names():
            what = f"`{setting}` is not a limit" if sign else f"`{option('--limit', setting)}` has no value"
            why = f"a limit is NAME=VALUE; the names are {', '.join(limit_names())}"
            raise usage(what, why, f"try {option('--limit', 'memory=2G')}")
        amount = _amount(value, name, option("--limit", name))
        values[name.replace("-", "_")] = amount if name == "wall" else int(amount)
    return Limits(**values)


def _amount(text: str, name: str, option: str) -> float:
    units, whole, example = _KINDS[name]
    stripped = text.strip().lower()
    number = stripped.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = stripped[len(number) :].strip()
    digits = number.replace(".", "", 1)
    value = float(number) * units[unit] if digits.isascii() and digits.isdigit() and unit in units else 0.0
    if not 0 < value <= _LARGEST or (whole and value < 1):
        why = f"an amount is positive, such as {example}"
        raise usage(f"`{text}` is not an amount for {option}", why, _FORMS[units is _SECONDS, units is _BYTES])
    return value


def parse_money(text: str) -> float:
    """Return an amount above 0, such as `2.50` or `$3`. Raises a usage error for another text."""
    try:
        value = float(text.strip().lstrip("$"))
    except ValueError:
        value = -1.0
    if not (0 < value < float("inf")):
        what = f"`{text}` is not an amount for {option('--max-cost')}"
        raise usage(what, "an amount is a number above 0", "write it such as 2.50")
    return value
