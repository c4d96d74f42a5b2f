"""SQLite file of a log: its tables, how it is created, checked and opened, and the messages for failures.

The table `records` holds the sealed records. `cards` holds the index columns of every record, so that a selection reads
a twentieth of the file; they are computed from the bodies by the expressions below, and `strays` compares them. `logs`
holds the head of each chain. The triggers that refuse UPDATE and DELETE only prevent accidents.

The schema must be exactly a known one. The owner of the file can add a trigger, replace a table by a view, or change
the definition of an index: then lists omit records, although every record is valid. `find_damage` compares the content
of each index with its table.
"""

import contextlib
import os
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from policy.model.digest import sha256_hex
from policy.model.glob import late
from runner.audit.chain import NAME, AuditError, LogFault, LogFaultError

# SHA-256 of the schema of a file that this version created, as SQLite returns it. Two databases in memory, whose
# schemas would be compared, take longer to make than the log takes to open.
_USUAL = "19eed538d7f541f37761c23785069c8b2e01e6c6b10bfada69b1ec1fb3e8205b"
SCHEMA = 2  # `PRAGMA user_version`; 0 is a new file, or one of the first format
BUSY_SECONDS = 15.0  # time to wait for a lock
_LOOK = 5  # milliseconds in which SQLite itself tries three times to take the lock
_REASONS = 8  # reasons up to which the column `rules` has the rules of all reasons of a record

# The index columns of a body. Times, names and tiers are copied as they are; `tiers` and `rules` are JSON lists.
# `rules` does not have the user's rules (the field `rules` of a body), so no selection may depend on this column.
# fmt: off
FIELDS = {
    "kind":    "json_extract(body, '$.kind')",
    "time":    "json_extract(body, '$.time')",
    "session": "json_extract(body, '$.session')",
    "decided": "json_extract(body, '$.decided')",
    "verdict": "json_extract(body, '$.verdict')",
    "mode":    "json_extract(body, '$.mode')",
    "tool":    "json_extract(body, '$.tool')",
    "tiers":   "json_extract(body, '$.tiers')",
    "rules":   "iif(json_extract(body, '$.reasons') IS NULL, NULL, json_extract(body, '$.because.rule', "
               + ", ".join(f"'$.reasons[{n}].rule'" for n in range(_REASONS + 1)) + "))",
    "name":    "iif(json_extract(body, '$.kind') IN ('session', 'ended'), json_extract(body, '$.session'), "
               "json_extract(body, '$.sha256'))",
}
# fmt: on
NAMES, VALUES = ", ".join(FIELDS), ", ".join(FIELDS.values())
_FIRST_HASH = f"substr((SELECT hash FROM records WHERE id = 1), 1, {NAME})"  # noqa: S608  # constants only

RECORDS = "CREATE TABLE records (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL);"
CARDS = f"""
CREATE {{temp}} TABLE cards (id INTEGER PRIMARY KEY, log INTEGER NOT NULL, number INTEGER NOT NULL,
    {NAMES.replace("decided", "decided INTEGER")});
CREATE {{temp}} TABLE logs (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER NOT NULL,
    hash TEXT NOT NULL, merged INTEGER NOT NULL);
CREATE INDEX {{where}}card_of_outcome ON cards (decided) WHERE decided IS NOT NULL;
CREATE INDEX {{where}}card_of_denial ON cards (verdict) WHERE verdict = 'deny';
CREATE INDEX {{where}}card_by_name ON cards (name) WHERE name IS NOT NULL;
CREATE INDEX {{where}}card_of_checkpoint ON cards (log) WHERE kind = 'checkpoint';
CREATE INDEX {{where}}card_of_tombstone ON cards (log) WHERE kind = 'tombstone';
"""
FENCE = """
CREATE TRIGGER no_update BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
"""
_FILL = f"""
INSERT INTO cards (id, log, number, {NAMES}) SELECT id, 1, id, {VALUES} FROM records WHERE json_valid(body);
INSERT INTO cards (id, log, number) SELECT id, 1, id FROM records WHERE NOT json_valid(body);
INSERT INTO logs SELECT 1, coalesce({_FIRST_HASH}, ''), id, hash, 0 FROM head;
"""  # noqa: S608  # constants only
# Conversion of the first format, which had computed columns with one index each.
_OLD = """
DROP INDEX IF EXISTS outcome_of; DROP INDEX IF EXISTS by_verdict;
DROP INDEX IF EXISTS by_facts; DROP TABLE head;
ALTER TABLE records DROP COLUMN kind; ALTER TABLE records DROP COLUMN verdict; ALTER TABLE records DROP COLUMN decided;
"""
# The first format. A file of this format may also have the index `by_facts`.
_FIRST = """
CREATE TABLE records (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL,
    kind TEXT GENERATED ALWAYS AS (json_extract(body, '$.kind')) VIRTUAL,
    verdict TEXT GENERATED ALWAYS AS (json_extract(body, '$.verdict')) VIRTUAL,
    decided INTEGER GENERATED ALWAYS AS (json_extract(body, '$.decided')) VIRTUAL);
CREATE INDEX outcome_of ON records (decided) WHERE decided IS NOT NULL;
CREATE INDEX by_verdict ON records (verdict) WHERE verdict IS NOT NULL;
CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL);
"""
_BY_FACTS = "CREATE INDEX by_facts ON records (json_extract(body, '$.sha256')) WHERE kind = 'facts';"


def layouts(version: int) -> tuple[tuple[str, ...], ...]:
    """Return the schemas that a file with this `user_version` may have, as the statements that create them."""
    first = statements(_FIRST + FENCE)
    cards = statements(CARDS.format(temp="", where=""))
    if version == SCHEMA:
        return (*statements(RECORDS), *cards, *statements(FENCE)), (*first, *cards, *statements(_OLD))
    return tuple(first), (*first, _BY_FACTS)


def find_schema_fault(database: sqlite3.Connection) -> str:
    """Return the first part of the schema that this program did not create, in words; empty if there is none."""
    rows = database.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_master ORDER BY name").fetchall()
    if _version(database) == SCHEMA and sha256_hex(repr(rows).encode("utf-8", "replace")) == _USUAL:
        return ""  # as in nearly every file
    found = find_difference(database, *layouts(_version(database)))
    return f"{found}; another program changed the file" if found else ""


def claim(path: Path) -> None:
    """Create the file if it is missing, and make it private. Raise OSError for a symbolic link or a file of another
    user, which could leak or lose records."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError("it is not a plain file that belongs to you")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def is_private(path: Path) -> bool:
    """Return True if `claim` would change nothing: the path is a plain file of this user, which no other one may open.
    Raises OSError if there is no file.
    """
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def files(path: Path) -> list[tuple[int, int] | None]:
    """Return device and inode of the log and of its write-ahead file, which exists while a process has the log open.
    A missing file is None."""
    existing: list[tuple[int, int] | None] = []
    for name in (str(path), f"{path}-wal"):
        try:
            status = os.lstat(name)
            existing.append((status.st_dev, status.st_ino))
        except FileNotFoundError:
            existing.append(None)
    return existing


def connect(path: Path, mode: str) -> sqlite3.Connection:
    # With two slashes at the start (HOME=/), the first name would be a host.
    quoted = ("/" + str(path.absolute()).lstrip("/")).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file:{quoted}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def begin(database: sqlite3.Connection) -> None:
    """Begin a write transaction as soon as there is no other. Raises sqlite3.OperationalError after BUSY_SECONDS.

    SQLite's own wait retries only ten times a second after a while (sqlite3.c, sqliteDefaultBusyCallback), so it never
    gets the lock if other processes write without a pause.
    """
    database.execute(f"PRAGMA busy_timeout = {_LOOK}")
    try:
        _retry_locked(database, "BEGIN IMMEDIATE", 0)
    finally:
        database.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _retry_locked(database: sqlite3.Connection, statement: str, pause: float) -> sqlite3.Cursor:
    """Execute a statement, and repeat it while other processes hold the lock, for at most BUSY_SECONDS."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return database.execute(statement)
        except sqlite3.OperationalError as error:
            from runner.audit.stores.sqlite_faults import sqlite_code  # only for errors

            busy = sqlite_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > give_up:
                raise
            time.sleep(pause)


def prepare(database: sqlite3.Connection) -> None:
    """Check the schema, and create or convert the tables. Raises LogFaultError for an unknown schema."""
    # Repeated, because two processes may create the file: SQLite does not call its busy handler for this change.
    (journal,) = _retry_locked(database, "PRAGMA journal_mode = WAL", 0.01).fetchone()
    if journal != "wal":
        why = f"the file system does not allow a write-ahead log (got `{journal}`)"
        raise LogFaultError(LogFault.NO_WAL, why)
    database.execute("PRAGMA synchronous = FULL")
    if _version(database) == SCHEMA:
        _refuse(find_schema_fault(database))
        return
    begin(database)
    try:
        if _version(database) != SCHEMA:  # else another process created the tables in the meantime
            cards = CARDS.format(temp="", where="")
            if _is_old(database):
                _refuse(find_schema_fault(database))
            for statement in statements(cards + _FILL + _OLD if _is_old(database) else RECORDS + cards + FENCE):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {SCHEMA}")
        database.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def check_schema(database: sqlite3.Connection, *, any_schema: bool = False) -> str:
    """Check the schema of a file that is opened for reading only. For the first format, create index columns in memory.

    With `any_schema`, return a description of an object that replaces a table, else an empty string. Then nothing was
    read, and nothing may be read: reading would run the definition of that object. Raises LogFaultError for a file
    without a log, and, without `any_schema`, for a schema that this program does not create: lists of such a file might
    omit records.
    """
    if {"id", "body", "hash"} - {row[1] for row in database.execute("PRAGMA table_info(records)")}:
        why = "it contains no log: another program made it, or nothing was written to it yet"
        raise LogFaultError(LogFault.EMPTY, why)
    if not any_schema:
        _refuse(find_schema_fault(database))
    elif found := find_replaced_table(database, *layouts(_version(database))):
        return f"{found}; another program changed the file"
    if _version(database) == SCHEMA:
        return ""
    database.execute("PRAGMA temp_store = MEMORY")
    for statement in statements(CARDS.format(temp="TEMP", where="temp.") + (_FILL if _is_old(database) else "")):
        database.execute(statement)
    return ""


def has_heads(database: sqlite3.Connection) -> bool:
    """Return True if the file has a table with the heads of the chains."""
    return any(row[1] == "merged" for row in database.execute("PRAGMA table_info(logs)"))


def _refuse(why: str) -> None:
    if why:
        raise LogFaultError(LogFault.CHANGED, why)


def _version(database: sqlite3.Connection) -> int:
    found = int(database.execute("PRAGMA user_version").fetchone()[0])
    if found > SCHEMA:
        raise LogFaultError(LogFault.NEWER, "a newer ringfence wrote it; use that version")
    return found


def _is_old(database: sqlite3.Connection) -> bool:
    return bool(database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'head'").fetchone()[0])


def statements(script: str) -> list[str]:
    """Return the single statements of a script. (`executescript` would end the open transaction.)"""
    found, rest = [], ""
    for part in script.split(";"):
        rest += part + ";"
        if sqlite3.complete_statement(rest):
            found.append(rest)
            rest = ""
    return found


@contextlib.contextmanager
def convert_errors(path: Path, what: str) -> Iterator[None]:
    """Convert errors of SQLite and of the operating system to AuditError; `what` is the message."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as error:
        from runner.audit.stores.sqlite_faults import problem_of  # only for errors

        raise AuditError(problem_of(error, path, what)) from error


Schema = Counter[tuple[str, str, str, str]]  # type, name, table, definition

# fmt: off
# The settings of a file, beside its schema, with their values in every file that this program creates.
_SETTINGS = {
    "application_id": 0,
    "encoding":       "UTF-8",
    "auto_vacuum":    0,
}
# fmt: on
_SHOWN = 60  # characters of a name in a message
_BLANKS = late("[ \\t\\n\\r\\f]+")  # exactly the blanks of SQLite's grammar
_AROUND = late(" ?([(),]) ?")


def find_difference(database: sqlite3.Connection, *layouts: tuple[str, ...]) -> str:
    """Return the first difference of the schema of `database` from the nearest of `layouts`, in words; empty if the
    schema is one of them.

    A layout is a sequence of SQL statements that create such a schema in an empty database.
    """
    found = _schema(database)
    known = [_made_by(layout) for layout in layouts]
    if found in known:
        return ""
    nearest = min(known, key=lambda layout: ((found - layout) + (layout - found)).total())
    names = {(kind, name) for kind, name, _, _ in nearest}
    for kind, name, _, _ in sorted(found - nearest):
        return (
            f"{_shown(kind, name)} is {'not the one' if (kind, name) in names else 'not one'} that this program makes"
        )
    kind, name, _, _ = min(nearest - found)
    return f"{_shown(kind, name)} is missing"


def find_replaced_table(database: sqlite3.Connection, *layouts: tuple[str, ...]) -> str:
    """Return a description of an object that has the name of a table of `layouts` and is not that table; else empty.

    Reading from such an object runs its definition: a view can have an unlimited number of rows.
    """
    known = {entry for layout in layouts for entry in _made_by(layout)}
    names = {name for kind, name, _, _ in known if kind == "table"}
    for entry in sorted(_schema(database)):
        if entry[1].lower() in names and entry not in known:
            return f"{_shown(*entry[:2])} is not the one that this program makes"
    return ""


def find_damage(database: sqlite3.Connection, logs: str) -> str:
    """Return a description of the first damage that this program and SQLite cannot have caused; empty if there is none.

    The check covers every page, the order of rows, each index against its table (SOURCE: sqlite.org/pragma.html,
    integrity_check: missing rows and excess entries), the settings of the file, and the rows of the table `logs` (empty
    for the first format, which has no such table).
    """
    for name, wanted in _SETTINGS.items():
        (value,) = database.execute(f"PRAGMA {name}").fetchone()
        if value != wanted:
            return f"its setting `{name}` is {value!r} instead of {wanted!r}"
    (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        lines = [line for line in str(found).splitlines() if not line.startswith("*** in database")]
        return f"its pages or indexes do not match its tables: {(lines or ['damaged'])[0].strip().lower()}"
    return _find_head_fault(database, logs) if logs else ""


def _find_head_fault(database: sqlite3.Connection, logs: str) -> str:
    """Describe the first fault in the rows of the heads. A log has one row, a merged log has one for each chain."""
    rows = database.execute(f"SELECT number, name, last, hash, merged FROM {logs} ORDER BY number").fetchall()  # noqa: S608  # a constant
    kinds = [tuple(map(type, row)) for row in rows]
    if any(kind != (int, str, int, str, int) for kind in kinds):
        return "a row of `logs` contains values of another type"
    numbers, merged = [row[0] for row in rows], {row[4] for row in rows}
    if merged == {1}:
        (journal,) = database.execute("PRAGMA journal_mode").fetchone()
        if numbers != list(range(1, len(rows) + 1)):
            return "the rows of `logs` do not match the merged logs"
        if len(rows) == 1 and journal == "wal":  # such a file is written once, and without a write-ahead log
            return "`logs` says that the log was merged, but it was not"
    elif merged - {0} or numbers not in ([], [1]):
        return "`logs` does not have exactly one row, that of this log"
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
    """Return a definition without line ends and repeated blanks, which SQLite stores as they were written."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    return _AROUND.sub(r"\1", _BLANKS.sub(" ", value).strip(" "))


def _shown(kind: str, name: str) -> str:
    return f"the {kind} `{name[:_SHOWN]}`"
