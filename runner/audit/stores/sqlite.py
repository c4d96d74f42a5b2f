"""Queries of the store in one SQLite file (write-ahead log, synced at the end of a transaction). The file itself is in
`sqlite_file`.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from runner.audit.chain import NAME, ZERO, AuditError, Head, LogFault, LogFaultError, RecordRow, Span, Wanted
from runner.audit.stores.sqlite_file import (
    CARDS,
    FENCE,
    FIELDS,
    NAMES,
    RECORDS,
    SCHEMA,
    VALUES,
    begin,
    check_schema,
    claim,
    connect,
    convert_errors,
    files,
    find_damage,
    find_schema_fault,
    has_heads,
    is_private,
    prepare,
    statements,
)

_ahead: "list[SqliteStore]" = []  # at most one file that was opened before it was needed
_OWN = 1  # number of the chain that is appended to

_ROW = "SELECT records.id, logs.name, cards.number, records.hash, body, cards.kind FROM"
_JOINED = f"{_ROW} records JOIN cards ON cards.id = records.id JOIN logs ON logs.number = cards.log"
# CROSS JOIN makes SQLite read the cards first, and only the bodies of the selected cards.
_CARDS_FIRST = f"{_ROW} cards CROSS JOIN records ON records.id = cards.id CROSS JOIN logs ON logs.number = cards.log"
_EVERY = (
    "SELECT records.id, coalesce(logs.name, ''), coalesce(cards.number, records.id), records.hash, body, cards.kind"
    " FROM records LEFT JOIN cards ON cards.id = records.id LEFT JOIN logs ON logs.number = coalesce(cards.log, 1)"
    " ORDER BY records.id"
)
_INSERT = f"INSERT INTO cards (id, log, number, {NAMES}) SELECT ?2, ?3, ?4, {VALUES} FROM (SELECT ?1 AS body)"  # noqa: S608  # constants only


class SqliteStore:
    """An open file with the interface `chain.LogStore`."""

    schema = SCHEMA
    marks = True

    def __init__(
        self, database: sqlite3.Connection, path: Path, mode: str = "ro", *, heads: bool = True, unreadable: str = ""
    ) -> None:
        self._database = database
        self._unreadable = unreadable
        self._mode = mode  # SQLite's mode for further connections that only read
        self._files = files(path)
        self.path = path
        self.name = str(path)
        with convert_errors(path, "the audit log cannot be read"):
            self.merged = database.execute("SELECT max(merged) FROM logs").fetchone()[0] == 1 if heads else False
            (self._schema,) = database.execute("PRAGMA schema_version").fetchone()

    @classmethod
    def open(cls, path: Path) -> "SqliteStore":
        """Open a file for appending. It is created with mode 0600, or converted from an earlier format. Raises
        AuditError."""
        while _ahead:
            found = _ahead.pop()
            if found.path == path and found._is_as_opened():
                return found
            found.close()
        with convert_errors(path, "the audit log cannot be opened"):
            claim(path)
            database = connect(path, "rw")
            try:
                prepare(database)
            except BaseException:
                database.close()
                raise
        return cls(database, path)

    @classmethod
    def open_to_read(cls, path: Path, *, any_schema: bool = False) -> "SqliteStore":
        """Open an existing log, which may be in a read-only folder, for reading only. Raises AuditError.

        A file whose schema this program did not create is refused, unless `any_schema` is set, to verify the file.
        """
        with convert_errors(path, "the audit log cannot be read"):
            if not path.exists():
                why = "there is no such file; the first `agent exec` or `agent run` creates it"
                raise LogFaultError(LogFault.MISSING, why)
            # A log whose write-ahead file is gone is complete in one file: SQLite may then skip its side files.
            complete = not path.with_name(path.name + "-wal").exists()
            mode = "ro&immutable=1" if complete and not os.access(path.parent, os.W_OK) else "ro"
            database = connect(path, mode)
            try:
                unreadable = check_schema(database, any_schema=any_schema)
                heads = not any_schema or (not unreadable and has_heads(database))
            except BaseException:
                database.close()
                raise
        return cls(database, path, mode, heads=heads, unreadable=unreadable)

    def _is_as_opened(self) -> bool:
        """Return True if `open` would open this file now, and find the same schema."""
        try:
            (schema,) = self._database.execute("PRAGMA schema_version").fetchone()
            return files(self.path) == self._files and is_private(self.path) and schema == self._schema
        except (OSError, sqlite3.Error):
            return False

    def close(self) -> None:
        self._database.close()

    @contextlib.contextmanager
    def writing(self, failure: str) -> Iterator["SqliteWriting"]:
        """Open a transaction that excludes other writers. `failure` is the message for an error."""
        with convert_errors(self.path, failure):
            begin(self._database)
            try:
                yield SqliteWriting(self._database)
                self._database.execute("COMMIT")
                if files(self.path) != self._files:  # then the new records are in a file that was removed
                    why = "it, or the write-ahead file beside it, was removed or replaced"
                    raise LogFaultError(LogFault.REPLACED, why)
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # SQLite already rolled back when the disk is full
                    self._database.execute("ROLLBACK")
                raise

    def select(self, wanted: Wanted) -> Iterator[RecordRow]:
        where, values = _conditions(wanted)
        clause = f" WHERE {' AND '.join(where)}" if where else ""
        query = f"{_CARDS_FIRST}{clause} ORDER BY cards.id DESC LIMIT ?"
        return self._rows(query, (*values, -1 if wanted.limit is None else wanted.limit))

    def get(self, number: int) -> RecordRow | None:
        return next(self._rows(f"{_JOINED} WHERE records.id = ?", (number,)), None)

    def outcome_of(self, decided: int) -> RecordRow | None:
        cause = "(SELECT {} FROM cards WHERE id = ?1)"
        where = f"cards.decided = {cause.format('number')} AND cards.log = {cause.format('log')}"
        return next(self._rows(f"{_JOINED} WHERE {where} ORDER BY cards.id LIMIT 1", (decided,)), None)

    def cause_of(self, finished: int) -> RecordRow | None:
        own = "(SELECT {} FROM cards WHERE id = ?1)"
        # A decision precedes its outcome. In a merged file, the id of a record may be more or less than its number.
        where = f"cards.id < ?1 AND cards.number = {own.format('decided')} AND cards.log = {own.format('log')}"
        return next(self._rows(f"{_CARDS_FIRST} WHERE {where} ORDER BY cards.id DESC LIMIT 1", (finished,)), None)

    def named(self, kind: str, name: str) -> RecordRow | None:
        """Return the newest record of a kind with this name, or None. The name is the session's id for `session` and
        `ended`, else the field `sha256`."""
        query = f"{_JOINED} WHERE cards.name = ? AND cards.kind = ? ORDER BY cards.id DESC"
        name = name.encode("utf-8", "replace").decode()  # SQLite rejects lone surrogates; no name has them
        return next(self._rows(query, (name, kind)), None)

    def latest(self, kind: str, log: str = "") -> RecordRow | None:
        """Return the newest checkpoint or tombstone of a chain (empty: the chain that is appended to), or None."""
        chain = "(SELECT number FROM logs WHERE name = ?)" if log else str(_OWN)
        query = f"{_CARDS_FIRST} WHERE cards.kind = '{kind}' AND cards.log = {chain} ORDER BY cards.id DESC LIMIT 1"
        return next(self._rows(query, (log,) if log else ()), None)

    def hashes(self, first: int, last: int, log: str = "") -> Iterator[str]:
        query = "SELECT hash FROM records WHERE id BETWEEN ? AND ? ORDER BY id"
        if log:  # else the chain that is appended to, whose numbers are the ids
            query = (
                "SELECT records.hash FROM cards CROSS JOIN records ON records.id = cards.id"
                " WHERE number BETWEEN ? AND ? AND log = (SELECT number FROM logs WHERE name = ?) ORDER BY cards.id"
            )
        with convert_errors(self.path, "the audit log cannot be read"):
            for (found,) in self._database.execute(query, (first, last, log) if log else (first, last)):
                yield found

    def older(self, before: str) -> tuple[int, int]:
        """Return the number of the first record, and the number before the first record that is not older than the
        time. The second number is less than the first one if there is no older record."""
        border = "(SELECT min(id) - 1 FROM cards WHERE time >= ?)"
        query = f"SELECT coalesce(min(id), 1), coalesce({border}, max(id), 0) FROM cards"  # noqa: S608  # constants only
        with convert_errors(self.path, "the audit log cannot be read"):
            first, last = self._database.execute(query, (before,)).fetchone()
        return first, last

    def spans(self, last: int) -> Iterator[Span]:
        query = (
            "SELECT owner, min(id), max(id), max(kind = 'ended'), max(time) FROM (SELECT id, kind, time, coalesce("
            "session, (SELECT session FROM cards AS cause WHERE cause.id = cards.decided)) AS owner FROM cards)"
            " WHERE owner IS NOT NULL GROUP BY owner HAVING min(id) <= ?"
        )
        with convert_errors(self.path, "the audit log cannot be read"):
            yield from map(Span._make, self._database.execute(query, (last,)))

    @contextlib.contextmanager
    def walking(self) -> Iterator["SqliteWalk"]:
        """Iterate over all records in one snapshot, so that a concurrent writer does not look like tampering."""
        self._database.execute("BEGIN")
        try:
            yield SqliteWalk(self._database)
        finally:
            self._database.execute("ROLLBACK")

    def strays(self) -> int | None:
        """Return the first record whose index columns are missing or differ from its body, or columns without a
        record."""
        same = " AND ".join(f"cards.{name} IS {value}" for name, value in FIELDS.items())
        query = (
            f"SELECT id FROM records LEFT JOIN cards USING (id) WHERE NOT ({same}) ORDER BY id LIMIT 1",  # noqa: S608
            "SELECT id FROM cards WHERE id NOT IN (SELECT id FROM records) ORDER BY id LIMIT 1",
        )
        other = connect(self.path, self._mode)
        with contextlib.closing(other):
            if other.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
                return None  # of the first format: the cards were just computed from the bodies
            try:
                found = [row[0] for each in query for row in other.execute(each)]
            except sqlite3.OperationalError:  # a body that is not JSON has no fields to compare
                found = [row[0] for row in other.execute("SELECT id FROM records WHERE NOT json_valid(body)")]
                if not found:
                    raise
        return min(found, default=None)

    def unreadable(self) -> str:
        return self._unreadable

    def faults(self) -> str:
        """Return the first difference from a file that this program creates, in words; empty if there is none."""
        with contextlib.closing(connect(self.path, self._mode)) as other:
            if found := find_schema_fault(other):
                return found
            first = other.execute("PRAGMA user_version").fetchone()[0] != SCHEMA
            return find_damage(other, "" if first else "logs")

    def cautions(self) -> tuple[str, ...]:
        return ()  # only a private file is opened for writing

    def shrink(self) -> None:
        """Return the space of removed records to the file system. This temporarily needs the same space again."""
        with convert_errors(self.path, "the disk space of the removed records could not be freed"):
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _rows(self, query: str, values: tuple[str | int, ...]) -> Iterator[RecordRow]:
        with convert_errors(self.path, "the audit log cannot be read"):
            yield from map(RecordRow._make, self._database.execute(query, values))


def open_ahead(path: Path) -> None:
    """Open an existing file for a later `SqliteStore.open` in this process. That call reports what fails here.

    As long as a process has the file open, no process has to make its write-ahead file anew.
    """
    close_ahead()
    with contextlib.suppress(AuditError, OSError):
        if is_private(path):
            _ahead.append(SqliteStore.open(path))


def close_ahead() -> None:
    """Close the file of `open_ahead`, unless it was used."""
    while _ahead:
        _ahead.pop().close()


class SqliteWriting:
    """An open transaction; see `chain.LogTransaction`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        # The head, not the last row: if rows were cut off, the next id leaves a gap that `verify` reports.
        found = database.execute("SELECT name, last, hash, merged FROM logs WHERE number = 1").fetchone()
        if found and found[3]:
            raise LogFaultError(LogFault.MERGED, "it was merged from other logs, and no records can be added to it")
        self.head = Head(*found[:3]) if found else Head("", 0, ZERO)

    def add(self, digest: str, text: str) -> int:
        number = self.head.number + 1
        self.head = Head(self.head.log or digest[:NAME], number, digest)
        self._database.execute("INSERT INTO records (id, body, hash) VALUES (?, ?, ?)", (number, text, digest))
        self._database.execute(_INSERT, (text, number, _OWN, number))
        self._database.execute(
            "INSERT OR REPLACE INTO logs VALUES (1, ?, ?, ?, 0)", (self.head.log, number, self.head.hash)
        )
        return number

    def remove(self, last: int) -> None:
        self._database.execute("DROP TRIGGER no_delete")
        self._database.execute("DELETE FROM records WHERE id <= ?", (last,))
        self._database.execute("DELETE FROM cards WHERE id <= ?", (last,))
        self._database.execute(FENCE.strip().splitlines()[1])


class SqliteWalk:
    """All records in one snapshot; see `chain.Walk`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.count = database.execute("SELECT count(*) FROM cards").fetchone()[0]
        self.heads = tuple(Head(*row) for row in database.execute("SELECT name, last, hash FROM logs ORDER BY number"))

    def rows(self) -> Iterator[RecordRow]:
        return map(RecordRow._make, self._database.execute(_EVERY))


def write_merged(path: Path, heads: Iterable[Head], rows: Iterable[RecordRow]) -> None:
    """Write a new file with these chains and their records, in the order of their new ids. Raises AuditError."""
    with convert_errors(path, "the logs were not merged"):
        claim(path)
        database = connect(path, "rw")
        with contextlib.closing(database):
            database.execute("BEGIN")
            for statement in statements(RECORDS + CARDS.format(temp="", where="")):
                database.execute(statement)
            places = {}
            for place, head in enumerate(heads, 1):
                places[head.log] = place
                database.execute("INSERT INTO logs VALUES (?, ?, ?, ?, 1)", (place, head.log, head.number, head.hash))
            for number, row in enumerate(rows, 1):
                database.execute("INSERT INTO records VALUES (?, ?, ?)", (number, row.body, row.hash))
                database.execute(_INSERT, (row.body, number, places[row.log], row.number))
            for statement in statements(FENCE):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {SCHEMA}")
            database.execute("COMMIT")


def _conditions(wanted: Wanted) -> tuple[list[str], list[str | int]]:
    """Return the SQL conditions of a selection, and their values. Conditions that the index columns cannot express are
    left out: then more rows match. One of them is `rules`: the column of this name lacks the user's rules of a record.
    """
    query = wanted.query
    where: list[str] = []
    values: list[str | int] = []

    def one_of(column: str, names: tuple[str, ...]) -> None:
        if names and all(map(_plain, names)):
            where.append(f"{column} IN ({', '.join('?' * len(names))})")
            values.extend(names)

    def any_of(condition: str, names: tuple[str, ...], form: str) -> None:
        if names and all(map(_plain, names)):
            where.append(f"({' OR '.join([condition] * len(names))})")
            values.extend(form.format(name) for name in names)

    one_of("cards.kind", wanted.kinds)
    for condition, number in (("cards.id <= ?", wanted.first), ("cards.id > ?", wanted.after)):
        if number is not None:
            where.append(condition)
            values.append(number)
    if query is None:
        return where, values
    if query.verdicts == ("deny",):
        where.append("cards.verdict = 'deny'")  # a constant: SQLite uses the index of denials only for it
    else:
        one_of("cards.verdict", query.verdicts)
    one_of("cards.mode", query.modes)
    one_of("cards.tool", query.tools)
    any_of("instr(cards.tiers, ?)", query.tiers, '"{}"')
    any_of("instr(char(10) || cards.session, ?)", query.sessions, "\n{}")
    for condition, text in (("cards.time >= ?", query.since), ("cards.time < ?", query.until)):
        if text and _plain(text):
            where.append(condition)
            values.append(text)
    return where, values


def _plain(text: str) -> bool:
    """Return True if the JSON form of the text is the text itself."""
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
