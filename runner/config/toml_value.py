"""Conversion of values to TOML on one line."""

import json
from datetime import date

from policy.toml.schema import TomlEntry, Value, ValueType
from runner.config.schema import list_of


def toml(value: Value) -> str:
    """Return a value as TOML on one line, without control characters."""
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


def value_toml(value: Value, shape: ValueType) -> str:
    """Return a value of the type `shape` as a user would write it: a table in braces, a size in the largest unit."""
    if shape is ValueType.TABLE and isinstance(value, tuple):
        pairs = (each for each in value if isinstance(each, tuple))
        return "{ " + ", ".join(f"{_key(name)} = {quoted(text)}" for name, text in pairs) + " }"
    if shape is ValueType.VALUES and isinstance(value, tuple):
        pairs = (each for each in value if isinstance(each, tuple))
        return "{ " + ", ".join(f"{_key(name)} = {_inline(json.loads(text))}" for name, text in pairs) + " }"
    if shape is ValueType.SIZE and isinstance(value, int):
        return toml(amount(value))
    return toml(value)


def _inline(value: object) -> str:
    """Return a text, number, truth value, or list of them as TOML. No other values are in a table of values."""
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def _key(name: str) -> str:
    """Return a key as TOML: bare if possible."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else quoted(name)


def entry_toml(entry: TomlEntry) -> list[str]:
    """Return a line `key = value` for each key of a `[[list]]` entry. A word without alternatives is not put in a
    list.
    """
    shapes, rows = list_of(entry.name).keys, []
    for key, value in entry.values.items():
        if shapes[key] is ValueType.WORDS and isinstance(value, tuple):
            alone = (word[0] if isinstance(word, tuple) and len(word) == 1 else word for word in value)
            value = tuple(alone)  # type: ignore[assignment]  # words, and lists of them
        rows.append(f"{key} = {value_toml(value, shapes[key])}")
    return rows


def quoted(text: str) -> str:
    """Return `text` as a basic string of TOML.

    The escape sequences of JSON are valid in TOML. DEL and other unprintable characters, which JSON leaves as they are,
    are escaped, too.
    """
    plain = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(char if char.isprintable() else _escaped(char) for char in plain)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def amount(size: int) -> str | int:
    """Return a size, given in bytes, in the largest unit of which it is a multiple; the number itself without such a
    unit.
    """
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size % (1 << shift) == 0 and size >> shift < 10_000:
            return f"{size >> shift} {unit}"
    return size
