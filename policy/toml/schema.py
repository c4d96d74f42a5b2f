"""A strict reader of TOML with a table of the permitted keys; every error names the file, the line and the
nearest key.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass, field, replace
from policy.model.glob import late
from policy.model.verdict import Problem, ProblemError

_BARE = late(r"[A-Za-z0-9_-]+")
_DEEPEST = 16  # parts of a key
_UNREADABLE = "cannot be read"
_STRING = late(r""""(?:[^"\\]|\\.)*(?:"|\\?$)|'[^']*(?:'|$)""")  # what does not end, ends with its line
_BETWEEN = late(r"[][{}=,]")
_WHERE = late(r"\(at (?:line (\d+), column \d+|end of document)\)")


class ValueType(Enum):
    """The type of a value. Each member's value is the type in words, for error messages; `example` is a valid value."""

    TEXT = "a text in quotes", '"..."'
    TEXTS = "a list of texts in quotes", '["...", "..."]'
    PATTERNS = "a list of lists of words", '[["rm", "-rf", "*"]]'
    WHOLE = "a whole number above 0", "100"
    COUNT = "a whole number, 0 or more", "100"
    SECONDS = 'a time above 0: a number of seconds, or a text like "90s" or "5m"', "120"
    WHOLE_SECONDS = 'a time above 0: a whole number of seconds, or a text like "90s" or "5m"', "120"
    NUMBER = "a number, 0 or more", "1.5"
    SIZE = 'a size above 0: bytes, or a text like "512 MiB"', '"4 GiB"'
    WORDS = "a list of words, each one a text or a list of texts", '["npm", "run", ["build", "lint"]]'
    TABLE = "a table of texts", '{ name = "pattern" }'
    VALUES = "a table of texts, numbers, true, false, and lists of them", '{ draft = false, labels = ["bug"] }'
    SWITCH = "true or false", "true"
    DATE = "a date without quotes and without a time", "2030-12-31"

    example: str

    def __new__(cls, description: str, example: str) -> "ValueType":
        member = object.__new__(cls)
        member._value_, member.example = description, example
        return member


KeyPath = tuple[str, ...]
if TYPE_CHECKING:
    from datetime import date

    Value = str | float | date | tuple[str, ...] | tuple[tuple[str, ...], ...]
else:
    Value = object  # without the import of `datetime`, which few settings need


class TomlError(ProblemError):
    """An error in a TOML text. `problem` names file, line and key.

    Attributes:
        source: the name of the file for the user.
        line: the line from 1; 0 if the error belongs to no single line.
        what: the fault without the place.
    """

    def __init__(
        self, source: str, line: int, subject: str, why: str, fix: str, *, fault: str = "cannot be used"
    ) -> None:
        """`subject` is a key or a table, in backticks; empty if the text as a whole has the `fault`."""
        place = f"{source}:{line}" if line else source
        self.source, self.line, self.what = source, line, f"{subject} {fault}".lstrip()
        super().__init__(Problem(f"{place}{':' if subject else ''} {self.what}", why, fix))


@dataclass(frozen=True, slots=True)
class TomlEntry:
    """One `[[name]]` of a file.

    Attributes:
        source: the name of the file for the user.
        line: line of the header, from 1.
        values: the value of each key.
        lines: the line of each key, from 1.
    """

    source: str
    name: str
    line: int
    values: Mapping[str, Value]
    lines: Mapping[str, int]

    def error_at(self, key: str, why: str, fix: str) -> TomlError:
        """Return an error about the key `key`, or about the whole entry if it does not contain that key."""
        subject = f"`{self.name}.{key}`" if key in self.values else f"`[[{self.name}]]`"
        return TomlError(self.source, self.lines.get(key, self.line), subject, why, fix)


@dataclass(frozen=True, slots=True)
class TomlDocument:
    """The valid content of a TOML file.

    Attributes:
        values: the value of every key, by its path and in the order of the text; all keys are known and all values
            valid.
        entries: the entries of every `[[name]]`, in order.
        was: the older name of a key, if the text uses one.
    """

    source: str
    text: str
    values: Mapping[KeyPath, Value]
    entries: tuple[TomlEntry, ...] = ()
    was: Mapping[KeyPath, KeyPath] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """Return the line of a key, from 1, or the nearest known line above it if the key is written in an
        unusual way.
        """
        from policy.toml.lines import line_of  # only for error messages

        return line_of(self.text, self.was.get(path, path))

    def error_at(self, path: KeyPath, why: str, fix: str) -> TomlError:
        """Return an error about the value at `path`."""
        subject = f"`{dotted(self.was.get(path, path))}`"
        return TomlError(self.source, self.line(path), subject, why, fix)


def read(
    text: str,
    source: str,
    shapes: Mapping[KeyPath, ValueType],
    lists: Mapping[str, Mapping[str, ValueType]] | None = None,
) -> TomlDocument:
    """Parse `text`. Raises TomlError for invalid syntax, an unknown key, or a value of the wrong type.

    `shapes` gives the type of each key; `*` in a path stands for any name. `lists` gives the names that may occur as
    `[[name]]`, any number of times, each with its keys.
    """
    found, faults = validate(text, source, shapes, lists, most=1)
    if faults:
        raise faults[0]
    return found


def validate(
    text: str,
    source: str,
    shapes: Mapping[KeyPath, ValueType],
    lists: Mapping[str, Mapping[str, ValueType]] | None = None,
    *,
    most: int,
    renew: Callable[[dict[str, object]], Mapping[KeyPath, KeyPath]] | None = None,
) -> tuple[TomlDocument, list[TomlError]]:
    """Parse `text` and return the valid part with the errors of the rest, at most `most`. Nothing is valid if the
    syntax is not.

    `renew` renames the keys of an older format in place and returns the older name of each.
    """
    try:
        raw = parse(text, source)
    except TomlError as error:
        return TomlDocument(source, text, {}), [error]
    values: dict[KeyPath, Value] = {}
    entries: list[TomlEntry] = []
    faults: list[TomlError] = []
    document = TomlDocument(source, text, values, was=renew(raw) if renew else {})
    tables = {name: raw.pop(name) for name in lists or {} if name in raw}
    findings = [_entries(tables[name], name, (lists or {})[name], document) for name in tables]
    for finding in chain(*findings, _values(raw, (), shapes, lists or {}, document)):
        if isinstance(finding, TomlError):
            faults.append(finding)
            if len(faults) >= most:
                break
        elif isinstance(finding, TomlEntry):
            entries.append(finding)
        else:
            values[finding[0]] = finding[1]
    return replace(document, entries=tuple(entries)), faults


def parse(text: str, source: str) -> dict[str, object]:
    """Return the TOML document. Raise TomlError, with the line where that is known, if `text` is not valid TOML."""
    if line := too_deep(text):
        why, fix = f"a key has more than {_DEEPEST} parts", "correct that line"
        raise TomlError(source, line, "", why, fix, fault=_UNREADABLE)
    import tomllib  # slow to import, and a start without a configuration file parses no text

    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number too long to be one
        raise _syntax(error, source, text) from None
    except RecursionError:
        why, fix = "its lists are nested too deeply", "reduce the nesting"
        raise TomlError(source, 0, "", why, fix, fault=_UNREADABLE) from None


def too_deep(text: str) -> int | None:
    """Return the first line, from 1, with a key of very many parts, or None.

    THREAT T23: tomllib takes quadratic time and memory for `a.a.a.a`: hours for a file of 1 MiB from a repository.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") >= _DEEPEST:
            if '"""' in line or "'''" in line:  # it may begin or end in the middle of a text: no telling what is one
                return number
            plain = _STRING.sub("s", line).partition("#")[0]
            if any(part.count(".") >= _DEEPEST for part in _BETWEEN.split(plain)):
                return number
    return None


def _syntax(error: ValueError, source: str, text: str) -> TomlError:
    found = _WHERE.search(str(error))
    end = text.count("\n") + (not text.endswith("\n"))
    line = int(found[1]) if found and found[1] else max(end, 1)
    import tomllib

    known = isinstance(error, tomllib.TOMLDecodeError)
    why = _WHERE.sub("", str(error)).strip().rstrip(".") if known else "a number in it is too long"
    why = f"it is not valid TOML: {why[:1].lower()}{why[1:]}"
    return TomlError(source, line, "", why, "correct that line", fault=_UNREADABLE)


def _entries(
    raw: object, name: str, keys: Mapping[str, ValueType], document: TomlDocument
) -> Iterator[TomlError | TomlEntry]:
    """Yield each `[[name]]`, or the errors of one that is not valid."""
    tables = raw if isinstance(raw, list) else []
    if not isinstance(raw, list) or not all(isinstance(table, dict) for table in tables):
        why = "each entry needs a header of its own in double brackets"
        yield document.error_at((name,), why, f"write `[[{name}]]`")
        return
    for table, (line, lines) in zip(tables, _places(document.text, name, len(tables)), strict=True):
        entry = TomlEntry(document.source, name, line, dict.fromkeys(table, ""), lines)
        values: dict[str, Value] = {}
        faults: list[TomlError] = []
        for key, given in table.items():
            if key not in keys:
                faults.append(_no_key(entry, key, keys))
            elif (value := value_of(given, keys[key])) is None:
                faults.append(entry.error_at(key, *_wrong_type(key, keys[key])))
            else:
                values[key] = value
        yield from faults
        if not faults:
            yield replace(entry, values=values)


def _no_key(entry: TomlEntry, key: str, keys: Mapping[str, ValueType]) -> TomlError:
    near = similar_name(key, keys, cutoff=0.5)
    fix = f"did you mean `{near}`?" if near else f"the keys of a `[[{entry.name}]]` are {_or(list(keys))}"
    line = entry.lines.get(key, entry.line)
    return TomlError(entry.source, line, f"`{dotted((entry.name, key))}`", "there is no such key", fix)


def _places(text: str, name: str, count: int) -> list[tuple[int, dict[str, int]]]:
    """Return for each `[[name]]` its line and the lines of its keys. Entries of an inline list have the list's line."""
    from policy.toml.lines import array_entries, line_of  # most starts read no file with entries

    entries = array_entries(text, name)
    return entries if len(entries) == count else [(line_of(text, (name,)), {})] * count


def _values(
    table: Mapping[str, object],
    at: KeyPath,
    shapes: Mapping[KeyPath, ValueType],
    lists: Mapping[str, object],
    document: TomlDocument,
) -> Iterator[TomlError | tuple[KeyPath, Value]]:
    """Yield the path and the value of each key below `at`, or the error of one that is not valid."""
    for key, raw in table.items():
        path = (*at, key)
        shape = value_type_of(path, shapes)
        if shape is not None:
            value = value_of(raw, shape)
            yield (path, value) if value is not None else document.error_at(path, *_wrong_type(key, shape))
        elif not (below := _below(path, shapes)):
            yield _unknown(path, document, shapes, {} if at else lists)
        elif isinstance(raw, dict):
            yield from _values(raw, path, shapes, lists, document)
        else:
            inner = sorted(below - {"*"})
            fix = f"write `[{dotted(path)}]` and below it {_or(inner)}" if inner else f"write `[{dotted(path)}.NAME]`"
            yield document.error_at(path, "it is a table of settings, not a single value", fix)


def _below(path: KeyPath, shapes: Mapping[KeyPath, ValueType]) -> set[str]:
    """Return the names that may follow `path`; `*` stands for any name."""
    return {known[len(path)] for known in shapes if len(known) > len(path) and _fits(path, known[: len(path)])}


def value_type_of(path: KeyPath, shapes: Mapping[KeyPath, ValueType]) -> ValueType | None:
    """Return the type of the value at `path`, whose entry in `shapes` may contain `*`, or None for an unknown key."""
    exact = shapes.get(path)
    if exact is not None:
        return exact
    return next((shape for known, shape in shapes.items() if "*" in known and _fits(path, known)), None)


def _unknown(
    path: KeyPath, document: TomlDocument, shapes: Mapping[KeyPath, ValueType], lists: Mapping[str, object]
) -> TomlError:
    at, key = path[:-1], path[-1]
    here = sorted(_below(at, shapes) - {"*"})
    near = similar_name(key, [*here, *lists], cutoff=0.5)
    elsewhere = [known for known in shapes if known[-1] == key]
    why = "there is no such key"
    if near:
        fix = f"did you mean `[[{near}]]`?" if near in lists else f"did you mean `{dotted((*at, near))}`?"
    elif elsewhere:  # the right key in the wrong table is the other common slip
        why, fix = "there is no such key here", f"did you mean `{dotted(elsewhere[0])}`?"
    else:
        fix = f"the keys {f'in [{dotted(at)}]' if at else 'at the top'} are {_or([*here, *lists])}"
    return document.error_at(path, why, fix)


def _wrong_type(key: str, shape: ValueType) -> tuple[str, str]:
    """Return the cause and the fix of an error about a value of another type."""
    example = "1" if shape is ValueType.WHOLE and key == "version" else shape.example
    return f"it must be {shape.value}", f"write `{key} = {example}`"


def _fits(path: KeyPath, known: KeyPath) -> bool:
    return len(path) == len(known) and all(want in ("*", word) for word, want in zip(path, known, strict=True))


def value_of(raw: object, shape: ValueType) -> Value | None:
    """Return `raw` converted to the type `shape`, or None if it has another type."""
    match shape:
        case ValueType.TEXT:
            return raw if isinstance(raw, str) and raw else None
        case ValueType.TEXTS:
            return _texts(raw)
        case ValueType.PATTERNS:
            lists = [_texts(item) for item in raw] if isinstance(raw, list) else [None]
            return tuple(item for item in lists if item) if all(lists) else None
        case ValueType.WHOLE:
            return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 1 << 62 else None
        case ValueType.COUNT:
            return 0 if raw == 0 and type(raw) is int else value_of(raw, ValueType.WHOLE)
        case ValueType.SECONDS:
            number = _number(seconds(raw) if isinstance(raw, str) else raw)
            return float(number) if number is not None and 0 < number <= 7 * 86_400 else None
        case ValueType.WHOLE_SECONDS:
            span = seconds(raw) if isinstance(raw, str) else None
            return value_of(int(span) if span is not None and span.is_integer() else raw, ValueType.WHOLE)
        case ValueType.NUMBER:
            number = _number(raw)
            return float(number) if number is not None and 0 <= number <= 1e15 else None
        case ValueType.SIZE:
            return size(raw) if isinstance(raw, str) else value_of(raw, ValueType.WHOLE)
        case ValueType.WORDS:
            items = raw if isinstance(raw, list) else []
            words = [_texts(item if isinstance(item, list) else [item]) for item in items]
            return tuple(word for word in words if word) if words and all(words) else None
        case ValueType.TABLE:
            pairs = raw.items() if isinstance(raw, dict) else ()
            sound = bool(pairs) and all(name and isinstance(text, str) and text for name, text in pairs)
            return tuple((name, text) for name, text in pairs) if sound else None
        case ValueType.VALUES:
            from policy.model.tool_arguments import canonical_value  # only for rules with values of arguments

            found = raw if isinstance(raw, dict) and raw and all(raw) and all(map(_plain_value, raw.values())) else {}
            return tuple((name, canonical_value(each)) for name, each in found.items()) or None
        case ValueType.SWITCH:
            return raw if isinstance(raw, bool) else None
        case ValueType.DATE:
            from datetime import date, datetime

            return raw if isinstance(raw, date) and not isinstance(raw, datetime) else None


def _plain_value(raw: object) -> bool:
    """Return True if `raw` is a text, a number, true, false, or a list of such values."""
    if isinstance(raw, list):
        return all(map(_plain_value, raw))
    return isinstance(raw, str | int) or (isinstance(raw, float) and isfinite(raw))


def size(text: str) -> int | None:
    """Return `512 MiB`, `4G` or `1000` in bytes, or None if `text` is not a size."""
    found = re.fullmatch(r"\s*(\d{1,15})\s*(?:([KMGT])(?:i?B)?|B)?\s*", text, re.IGNORECASE | re.ASCII)
    if not found:
        return None
    value = int(found[1]) << {None: 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2].upper() if found[2] else None]
    return value if 0 < value < 1 << 62 else None


def seconds(text: str) -> float | None:
    """Return `90s`, `1.5 min`, `250ms` or `20` in seconds, or None if `text` is not a duration."""
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|min|h)?\s*", text, re.IGNORECASE | re.ASCII)
    if not found:
        return None
    number, unit = float(found[1]), (found[2] or "s").lower()
    return number / 1000 if unit == "ms" else number * {"s": 1, "m": 60, "min": 60, "h": 3600}[unit]


def _number(raw: object) -> int | float | None:
    return raw if isinstance(raw, int | float) and not isinstance(raw, bool) else None


def _texts(raw: object) -> tuple[str, ...] | None:
    if not isinstance(raw, list) or not all(isinstance(item, str) and item for item in raw):
        return None
    return tuple(raw)


def dotted(path: KeyPath) -> str:
    """Return `path` as written in a file, at most 200 characters, with `?` for each unprintable character."""
    words = (word if _BARE.fullmatch(word) or word == "*" else f'"{word}"' for word in path)
    return "".join(char if char.isprintable() else "?" for char in ".".join(words))[:200]


def similar_name(text: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name that is most similar to `text`, or None. `cutoff` is the least similarity, from 0 to 1."""
    from difflib import get_close_matches  # only for error messages: most starts need none

    return next(iter(get_close_matches(text, list(names), n=1, cutoff=cutoff)), None)


def _or(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
