"""TOML read strictly against a table of the keys it may hold; every complaint names file, line and nearest key."""

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from typing import TypeGuard

from policy.record import dataclass
from policy.verdict import Problem

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_WHERE = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")


class Shape(Enum):
    """What a value must look like, in the words of a complaint."""

    TEXT = "a text in quotes"
    TEXTS = "a list of texts in quotes"
    PATTERNS = "a list of lists of words"
    WHOLE = "a whole number above 0"
    SECONDS = "a number of seconds above 0"
    SIZE = 'a size above 0: bytes, or a text like "512 MiB"'
    WORDS = "a list of words, each one a text or a list of texts"
    SWITCH = "true or false"
    DATE = "a date without quotes and without a time"


Path = tuple[str, ...]
Value = str | float | date | tuple[str, ...] | tuple[tuple[str, ...], ...]


class KeyedError(Exception):
    """The text cannot be used. `problem` names file, line and key."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Entry:
    """One `[[name]]` of a file: its keys, each with its line. `line` is that of the header, from 1."""

    source: str
    name: str
    line: int
    values: Mapping[str, Value]
    lines: Mapping[str, int]

    def complain(self, key: str, why: str, fix: str) -> KeyedError:
        """An error about one key of it; about the whole when it has no such key."""
        what = f"`{self.name}.{key}`" if key in self.values else f"`[[{self.name}]]`"
        return KeyedError(Problem(f"{self.source}:{self.lines.get(key, self.line)}: {what} cannot be used", why, fix))


@dataclass(frozen=True, slots=True)
class Keyed:
    """`values`: every key that was given, by its path, in the order of the text; all known, all well formed.

    `entries`: those of every `[[name]]`, in order.
    """

    source: str
    text: str
    values: Mapping[Path, Value]
    entries: tuple[Entry, ...] = ()

    def line(self, path: Path) -> int:
        """The line of a key, from 1; the nearest line above it that is known when it is written in an unusual way."""
        return _line(self.text, path)

    def complain(self, path: Path, why: str, fix: str) -> KeyedError:
        """An error about the value at `path`."""
        return _error(self.source, self.text, path, why, fix)


def read(
    text: str,
    source: str,
    shapes: Mapping[Path, Shape],
    lists: Mapping[str, Mapping[str, Shape]] | None = None,
) -> Keyed:
    """Raises KeyedError for bad syntax, an unknown key, or a value of the wrong shape. `*` in a path is any name.

    `lists`: what may stand as `[[name]]`, any number of times, and the keys of each.
    """
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number too long to be one
        found = _WHERE.search(str(error))
        end = text.count("\n") + (not text.endswith("\n"))
        line = int(found[1]) if found and found[1] else max(end, 1)
        known = isinstance(error, tomllib.TOMLDecodeError)
        why = _WHERE.sub("", str(error)).strip().rstrip(".") if known else "a number in it is too long"
        why = why[:1].lower() + why[1:]
        raise KeyedError(
            Problem(f"{source}:{line} cannot be read", f"it is not valid TOML: {why}", "correct that line")
        ) from None
    except RecursionError:
        raise KeyedError(
            Problem(f"{source} cannot be read", "its lists are nested too deeply", "write it with less nesting")
        ) from None
    values: dict[Path, Value] = {}
    entries = [
        entry
        for name, keys in (lists or {}).items()
        if name in document
        for entry in _entries(document.pop(name), name, source, text, keys)
    ]
    _walk(document, (), source, text, shapes, values, lists or {})
    return Keyed(source, text, values, tuple(entries))


def _entries(raw: object, name: str, source: str, text: str, keys: Mapping[str, Shape]) -> list[Entry]:
    tables = raw if isinstance(raw, list) else []
    if not isinstance(raw, list) or not all(isinstance(table, dict) for table in tables):
        why = "it is written once for each entry, in two brackets"
        raise _error(source, text, (name,), why, f"write `[[{name}]]`")
    found = []
    for table, (line, lines) in zip(tables, _places(text, name, len(tables)), strict=True):
        entry = Entry(source, name, line, dict.fromkeys(table, ""), lines)
        values: dict[str, Value] = {}
        for key, given in table.items():
            if key not in keys:
                from difflib import get_close_matches  # only for complaints

                near = get_close_matches(key, keys, n=1, cutoff=0.5)
                fix = f"did you mean `{near[0]}`?" if near else f"the keys of a `[[{name}]]` are {_or(list(keys))}"
                what = f"{source}:{lines.get(key, line)}: `{_dotted((name, key))}` cannot be used"
                raise KeyedError(Problem(what, "there is no such key", fix))
            value = value_of(given, keys[key])
            if value is None:
                raise entry.complain(key, f"it must be {keys[key].value}", f"write {_example(key, keys[key])}")
            values[key] = value
        found.append(Entry(source, name, line, values, lines))
    return found


def _places(text: str, name: str, count: int) -> list[tuple[int, dict[str, int]]]:
    """For each `[[name]]` its line and those of its keys. Written in an unusual way, all have that of the first."""
    found: list[tuple[int, dict[str, int]]] = []
    within, first = False, 0
    for number, line in enumerate(text.split("\n"), 1):
        header = _HEADER.match(line)
        key = None if header else _KEY.match(line)
        if header:
            within = _split(header[1]) == (name,)
            if within:
                found.append((number, {}))
        elif key and within:
            found[-1][1].setdefault(_split(key[1])[0], number)
        if not first and name in line:
            first = number
    return found if len(found) == count else [(first or 1, {})] * count


def _walk(
    table: Mapping[str, object],
    at: Path,
    source: str,
    text: str,
    shapes: Mapping[Path, Shape],
    values: dict[Path, Value],
    lists: Mapping[str, object],
) -> None:
    for key, raw in table.items():
        path = (*at, key)
        shape = next((shape for known, shape in shapes.items() if _fits(path, known)), None)
        if shape is not None:
            value = value_of(raw, shape)
            if value is None:
                raise _error(source, text, path, f"it must be {shape.value}", f"write {_example(key, shape)}")
            values[path] = value
        elif any(_fits(path, known[: len(path)]) and len(known) > len(path) for known in shapes):
            if not isinstance(raw, dict):
                inner = sorted({known[len(path)] for known in shapes if _fits(path, known[: len(path)])} - {"*"})
                fix = (
                    f"write `[{_dotted(path)}]` and below it {_or(inner)}"
                    if inner
                    else f"write `[{_dotted(path)}.NAME]`"
                )
                raise _error(source, text, path, "it is a table of settings, not a single value", fix)
            _walk(raw, path, source, text, shapes, values, {})
        else:
            raise _unknown(path, source, text, shapes, lists)


def _unknown(
    path: Path, source: str, text: str, shapes: Mapping[Path, Shape], lists: Mapping[str, object]
) -> KeyedError:
    from difflib import get_close_matches  # only for complaints: most starts need none

    at, key = path[:-1], path[-1]
    here = sorted({known[len(at)] for known in shapes if len(known) > len(at) and _fits(at, known[: len(at)])} - {"*"})
    near = get_close_matches(key, [*here, *lists], n=1, cutoff=0.5)
    if near and near[0] in lists:
        return _error(source, text, path, "there is no such key", f"did you mean `[[{near[0]}]]`?")
    if near:
        return _error(source, text, path, "there is no such key", f"did you mean `{_dotted((*at, near[0]))}`?")
    # The right key in the wrong table is the other common slip.
    elsewhere = [known for known in shapes if known[-1] == key]
    if elsewhere:
        return _error(source, text, path, "there is no such key here", f"did you mean `{_dotted(elsewhere[0])}`?")
    where = f"in [{_dotted(at)}]" if at else "at the top"
    return _error(source, text, path, "there is no such key", f"the keys {where} are {_or([*here, *lists])}")


def _error(source: str, text: str, path: Path, why: str, fix: str) -> KeyedError:
    return KeyedError(Problem(f"{source}:{_line(text, path)}: `{_dotted(path)}` cannot be used", why, fix))


def _fits(path: Path, known: Path) -> bool:
    return len(path) == len(known) and all(want in ("*", word) for word, want in zip(path, known, strict=True))


def value_of(raw: object, shape: Shape) -> Value | None:
    """`raw` as `shape` wants it, or None when it is something else."""
    match shape:
        case Shape.TEXT:
            return raw if isinstance(raw, str) and raw else None
        case Shape.TEXTS:
            return _texts(raw)
        case Shape.PATTERNS:
            lists = [_texts(item) for item in raw] if isinstance(raw, list) else [None]
            return tuple(item for item in lists if item) if all(lists) else None
        case Shape.WHOLE:
            return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 1 << 62 else None
        case Shape.SECONDS:
            good = isinstance(raw, int | float) and not isinstance(raw, bool)
            return float(raw) if good and isinstance(raw, int | float) and 0 < raw <= 7 * 86_400 else None
        case Shape.SIZE:
            return size(raw) if isinstance(raw, str) else value_of(raw, Shape.WHOLE)
        case Shape.WORDS:
            words = [_texts(word) if isinstance(word, list) else _texts([word]) for word in raw] if _filled(raw) else []
            return tuple(word for word in words if word) if words and all(words) else None
        case Shape.SWITCH:
            return raw if isinstance(raw, bool) else None
        case Shape.DATE:
            return raw if isinstance(raw, date) and not isinstance(raw, datetime) else None


def size(text: str) -> int | None:
    """`512 MiB`, `4G`, `1000` in bytes; None when it is no size."""
    found = re.fullmatch(r"\s*(\d{1,15})\s*(?:([KMGT])(?:i?B)?|B)?\s*", text, re.IGNORECASE | re.ASCII)
    if not found:
        return None
    value = int(found[1]) << {None: 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2].upper() if found[2] else None]
    return value if 0 < value < 1 << 62 else None


def _filled(raw: object) -> TypeGuard[list[object]]:
    return isinstance(raw, list) and bool(raw)


def _texts(raw: object) -> tuple[str, ...] | None:
    if not isinstance(raw, list) or not all(isinstance(item, str) and item for item in raw):
        return None
    return tuple(raw)


def _example(key: str, shape: Shape) -> str:
    examples = {
        Shape.TEXT: f'`{key} = "..."`',
        Shape.TEXTS: f'`{key} = ["...", "..."]`',
        Shape.PATTERNS: f'`{key} = [["rm", "-rf", "*"]]`',
        Shape.WHOLE: f"`{key} = 100`",
        Shape.SECONDS: f"`{key} = 120`",
        Shape.SIZE: f'`{key} = "4 GiB"`',
        Shape.WORDS: f'`{key} = ["npm", "run", ["build", "lint"]]`',
        Shape.DATE: f"`{key} = 2030-12-31`",
    }
    return examples[shape]


def _line(text: str, path: Path) -> int:
    """Lines are read one by one; a key inside an inline table has the line of that table."""
    best = (0, 1)
    at: Path = ()
    for number, line in enumerate(text.split("\n"), 1):
        header = _HEADER.match(line)
        key = None if header else _KEY.match(line)
        if header:
            at = full = _split(header[1])
        elif key:
            full = (*at, *_split(key[1]))
        else:
            continue
        if full == path[: len(full)] and len(full) > best[0]:
            best = (len(full), number)
            if full == path:
                break
    return best[1]


def _split(dotted: str) -> Path:
    words = re.findall(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""", dotted)
    return tuple(word.strip("\"'") for word in words)


def _dotted(path: Path) -> str:
    """As written in a file. A name from somebody else's file may hold anything; only what prints is shown."""
    return "".join(char if char.isprintable() else "?" for char in ".".join(path))[:200]


def _or(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
