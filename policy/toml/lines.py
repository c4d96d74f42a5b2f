"""Line numbers of the tables and keys of a TOML text, for error messages that name a place.

The TOML parser of the standard library reports no positions. Every function here expects a text that this parser
accepts; for other texts the line numbers may be wrong.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache

from policy.model.frozen import dataclass

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_NAME = rf"({_PART}(?:[ \t]*\.[ \t]*{_PART})*)"
_EACH_PART = re.compile(_PART)
_STATEMENT = re.compile(rf"[ \t]*(?:(\[\[?)[ \t]*{_NAME}[ \t]*\]|{_NAME}[ \t]*=)")
# A piece of TOML that may contain brackets, quotes or line ends of its own; or a bracket; or the end of a line.
_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'" r"|\#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)


class StatementKind(Enum):
    """Kind of a TOML statement."""

    KEY = "key = value"
    TABLE = "[table]"
    ARRAY_ENTRY = "[[array of tables]]"


@dataclass(frozen=True, slots=True)
class Statement:
    """One key or one table header of a TOML text.

    Attributes:
        kind: kind of the statement.
        path: parts of the name as written; the path of a key is relative to the header above the key.
        line: line on which the statement begins, from 1.
    """

    kind: StatementKind
    path: tuple[str, ...]
    line: int


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of `text` in order. Keys of inline tables are not statements."""
    for line, start in _beginnings(text):
        found = _STATEMENT.match(text, start)
        if found and found[1]:
            kind = StatementKind.TABLE if found[1] == "[" else StatementKind.ARRAY_ENTRY
            yield Statement(kind, _split(found[2]), line)
        elif found:
            yield Statement(StatementKind.KEY, _split(found[3]), line)


@lru_cache(maxsize=8)
def lines_of(text: str) -> Mapping[tuple[str, ...], int]:
    """Return the first line of every key and every table header of `text`, by full path."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for statement in statements(text):
        if statement.kind is StatementKind.KEY:
            lines.setdefault((*table, *statement.path), statement.line)
        else:
            table = statement.path
            lines.setdefault(table, statement.line)
    return lines


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line of the key or table at `path`.

    A table without a header has the line of the first key or table below the table. A key of an inline table has the
    line of that table. The line is 1 if the text contains no part of the path.
    """
    lines = lines_of(text)
    if path in lines:
        return lines[path]
    below = [line for known, line in lines.items() if known[: len(path)] == path]
    above = (lines[path[:length]] for length in range(len(path) - 1, 0, -1) if path[:length] in lines)
    return min(below) if below else next(above, 1)


def array_entries(text: str, name: str) -> list[tuple[int, dict[str, int]]]:
    """Return, for each `[[name]]` of `text`, the line of the header and the lines of the keys directly below."""
    entries: list[tuple[int, dict[str, int]]] = []
    inside = False
    for statement in statements(text):
        if statement.kind is not StatementKind.KEY:
            inside = statement.path == (name,) and statement.kind is StatementKind.ARRAY_ENTRY
            if inside:
                entries.append((statement.line, {}))
        elif inside:
            entries[-1][1].setdefault(statement.path[0], statement.line)
    return entries


def _beginnings(text: str) -> Iterator[tuple[int, int]]:
    """Yield line and offset of each line that is not inside a string or a list of several lines."""
    yield 1, 0
    line, depth = 1, 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        line += piece.count("\n")
        if piece in "[{":
            depth += 1
        elif piece in "]}":
            depth -= 1
        elif piece == "\n" and depth == 0:
            yield line, found.end()


def _split(name: str) -> tuple[str, ...]:
    return tuple(_unquoted(part) for part in _EACH_PART.findall(name))


def _unquoted(part: str) -> str:
    if part.startswith('"') and "\\" in part:
        import tomllib  # only for a key with an escape sequence

        return next(iter(tomllib.loads(f"{part} = 0")))
    return part[1:-1] if part[0] in "\"'" else part
