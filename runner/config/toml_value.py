"""Values as TOML writes them, on one line."""

import json
from datetime import date

from policy.toml.schema import Value


def toml(value: Value) -> str:
    """One value; nothing in it can drive a terminal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def quoted(text: str) -> str:
    """A basic string. JSON's escapes are TOML's, but for DEL and what is beyond 16 bits, which stays as it is."""
    plain = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(char if char.isprintable() else _escaped(char) for char in plain)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def amount(size: int) -> str | int:
    """A size in the largest unit that gives a whole number of it."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size % (1 << shift) == 0 and size >> shift < 10_000:
            return f"{size >> shift} {unit}"
    return size
