"""The exact set of tables, indexes and triggers of a log's SQLite file, and what of a file differs from it.

Whoever owns the file can add a trigger, put a view in the place of a table, or change the definition of an index: then
lists leave records out, though every record still holds. So every object of the schema must be one of the known ones,
with the known definition. What an index holds behind its definition is compared by `damage`.
"""

import re
import sqlite3
from collections import Counter
from functools import lru_cache

Schema = Counter[tuple[str, str, str, str]]  # type, name, table, definition

# fmt: off
# What a file must say of itself, beside its schema; of each, its value in every file that this program made.
_SETTINGS = {
    "application_id": 0,
    "encoding":       "UTF-8",
    "auto_vacuum":    0,
}
# fmt: on
_SHOWN = 60  # characters of a name
_BLANKS = re.compile("[ \\t\\n\\r\\f]+")  # what SQLite takes for a blank, and nothing more
_AROUND = re.compile(" ?([(),]) ?")


def difference(database: sqlite3.Connection, *layouts: tuple[str, ...]) -> str:
    """Say in what the schema of `database` differs from the nearest of `layouts`; empty when it is one of them.

    A layout is a sequence of SQL statements that make such a schema in an empty database.
    """
    found = _schema(database)
    known = [_made_by(layout) for layout in layouts]
    if found in known:
        return ""
    nearest = min(known, key=lambda layout: ((found - layout) + (layout - found)).total())
    names = {(kind, name) for kind, name, _, _ in nearest}
    for kind, name, _, _ in sorted(found - nearest):
        shown = _shown(kind, name)
        if (kind, name) in names:
            return f"{shown} is another one than this program makes"
        return f"{shown} is none that this program makes"
    kind, name, _, _ = min(nearest - found)
    return f"{_shown(kind, name)} is missing"


def replaced(database: sqlite3.Connection, *layouts: tuple[str, ...]) -> str:
    """Name an object of the schema that stands under a table's name of `layouts` and is not that table; else empty.

    Reading from such an object runs what its definition says: a view can have rows without end.
    """
    known = {entry for layout in layouts for entry in _made_by(layout)}
    names = {name for kind, name, _, _ in known if kind == "table"}
    for entry in sorted(_schema(database)):
        if entry[1].lower() in names and entry not in known:
            return f"{_shown(*entry[:2])} is another one than this program makes"
    return ""


def damage(database: sqlite3.Connection, logs: str) -> str:
    """Say what of a file is not as SQLite would have written it, whatever its records say; empty when nothing is.

    Every page, every order of rows, and every index against its table (SOURCE: sqlite.org/pragma.html, integrity_check:
    rows that an index lacks, and entries that it has too many); the settings of the file; the rows of the table `logs`,
    which the first format does not have (empty).
    """
    for name, wanted in _SETTINGS.items():
        (value,) = database.execute(f"PRAGMA {name}").fetchone()
        if value != wanted:
            return f"its setting `{name}` is {value!r}, and not {wanted!r}"
    (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        lines = [line for line in str(found).splitlines() if not line.startswith("*** in database")]
        return f"its pages or indexes do not hold what its tables do: {(lines or ['damaged'])[0].strip().lower()}"
    return _heads(database, logs) if logs else ""


def _heads(database: sqlite3.Connection, logs: str) -> str:
    """Describe what is wrong with the rows of the heads. A log has one row, a merged log one for each chain."""
    rows = database.execute(f"SELECT number, name, last, hash, merged FROM {logs} ORDER BY number").fetchall()  # noqa: S608  # a constant
    kinds = [tuple(map(type, row)) for row in rows]
    if any(kind != (int, str, int, str, int) for kind in kinds):
        return "a row of `logs` holds values of another type"
    numbers, merged = [row[0] for row in rows], {row[4] for row in rows}
    if merged == {1}:
        (journal,) = database.execute("PRAGMA journal_mode").fetchone()
        if numbers != list(range(1, len(rows) + 1)):
            return "`logs` has other rows than those of the logs that were merged"
        if len(rows) == 1 and journal == "wal":  # such a file is written once, and without a write-ahead log
            return "`logs` says that the log was merged from others, and it was not"
    elif merged - {0} or numbers not in ([], [1]):
        return "`logs` has other rows than that of this log"
    return ""


def _schema(database: sqlite3.Connection) -> Schema:
    rows = database.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_master")
    return Counter(tuple(_plain(value) for value in row) for row in rows)  # type: ignore[misc]  # four of them


@lru_cache(maxsize=16)
def _made_by(layout: tuple[str, ...]) -> Schema:
    with sqlite3.connect(":memory:") as database:
        for statement in layout:
            database.execute(statement)
        made = _schema(database)
    database.close()
    return made


def _plain(value: object) -> str:
    """A definition without what the eye does not see: SQLite keeps line ends and blanks as they were typed."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    return _AROUND.sub(r"\1", _BLANKS.sub(" ", value).strip(" "))


def _shown(kind: str, name: str) -> str:
    return f"the {kind} `{name[:_SHOWN]}`"
