"""Queries of the store in a PostgreSQL database, for the records of many machines. The connection is in
`postgres_server`.

All machines append to one chain: a writer locks the row of the head while it appends, so that appends are serialized.
"""

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa

from runner.audit.chain import NAME, Head, LogFault, LogFaultError, RecordRow, Span, Wanted
from runner.audit.stores.postgres_schema import (
    LOCKS_HEAD,
    TAKES_HEAD,
    excessive_rights,
    find_replaced_table,
    find_schema_fault,
    function_rights,
)
from runner.audit.stores.postgres_server import (
    FENCED,
    LOGS,
    OWN,
    RECORDS,
    SCHEMA,
    IndexColumns,
    check_schema,
    convert_errors,
    engine_of,
    index_columns_of,
    locking,
    prepare,
    storable,
)

_PAGE = 500  # records that a selection fetches at once
_WALKED = 5000  # records that an iteration over all records fetches at once
_CHAIN = sa.select(LOGS.c.name).where(LOGS.c.number == OWN).scalar_subquery()
_ROW = sa.select(RECORDS.c.id, _CHAIN, RECORDS.c.id, RECORDS.c.hash, RECORDS.c.body, RECORDS.c.kind)


class PostgresStore:
    """An open database with the interface `chain.LogStore`."""

    schema = SCHEMA
    merged = False

    def __init__(self, engine: sa.Engine, name: str, *, takes_head: bool = False, by_function: bool = False) -> None:
        self._engine = engine
        self._by_function = by_function  # append with `ringfence_append()`: the role is that of a machine
        self.marks = not by_function  # only the owner of the tables may add checkpoints
        self._locks_head = TAKES_HEAD if takes_head else LOCKS_HEAD
        self._inside: sa.Connection | None = None  # connection of the open transaction of `writing` or `walking`
        self.name = name

    @classmethod
    def open(cls, url: str, *, write: bool) -> "PostgresStore":
        """Open the database at `url`, with `write` for appending, after creating missing tables. Raises AuditError."""
        engine, name = engine_of(url, write)
        takes_head = by_function = False
        try:
            what = "the audit log cannot be opened" if write else "the audit log cannot be read"
            with convert_errors(name, what), engine.begin() as connection:
                if write:
                    prepare(connection)
                check_schema(connection)
                if write:
                    takes_head, by_function = function_rights(connection)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, name, takes_head=takes_head, by_function=by_function)

    def close(self) -> None:
        self._engine.dispose()

    @contextlib.contextmanager
    def writing(self, failure: str) -> Iterator["PostgresWriting"]:
        with convert_errors(self.name, failure), self._engine.begin() as connection:
            with locking():
                head = Head(*connection.execute(sa.text(self._locks_head)).one())
            self._inside = connection
            try:
                yield PostgresWriting(connection, head, by_function=self._by_function)
            finally:
                self._inside = None

    def select(self, wanted: Wanted) -> Iterator[RecordRow]:
        chosen = _ROW.where(*_conditions(wanted)).order_by(RECORDS.c.id.desc())
        left, last = wanted.limit, None
        while left is None or left > 0:
            page = chosen if last is None else chosen.where(RECORDS.c.id < last)
            rows = self._rows(page.limit(_PAGE if left is None else min(left, _PAGE)))
            yield from rows
            if not rows:
                return
            last, left = rows[-1].id, None if left is None else left - len(rows)

    def get(self, number: int) -> RecordRow | None:
        return self._first(_ROW.where(RECORDS.c.id == number))

    def outcome_of(self, decided: int) -> RecordRow | None:
        return self._first(_ROW.where(RECORDS.c.decided == decided).order_by(RECORDS.c.id))

    def cause_of(self, finished: int) -> RecordRow | None:
        cause = sa.select(RECORDS.c.decided).where(RECORDS.c.id == finished).scalar_subquery()
        return self._first(_ROW.where(RECORDS.c.id == cause))

    def named(self, kind: str, name: str) -> RecordRow | None:
        same = RECORDS.c.name == storable(name)
        return self._first(_ROW.where(same, RECORDS.c.kind == kind).order_by(RECORDS.c.id.desc()))

    def latest(self, kind: str, log: str = "") -> RecordRow | None:
        if log and log != self._chain():
            return None
        marks = RECORDS.c.kind.in_(("checkpoint", "tombstone"))
        return self._first(_ROW.where(marks, RECORDS.c.kind == kind).order_by(RECORDS.c.id.desc()))

    def hashes(self, first: int, last: int, log: str = "") -> Iterator[str]:
        if log and log != self._chain():
            return
        while first <= last:
            end = min(last, first + _WALKED - 1)
            query = sa.select(RECORDS.c.hash).where(RECORDS.c.id.between(first, end)).order_by(RECORDS.c.id)
            with convert_errors(self.name, "the audit log cannot be read"), self._reading() as connection:
                found = connection.execute(query).scalars().all()
            yield from found
            first = end + 1

    def older(self, before: str) -> tuple[int, int]:
        border = sa.select(sa.func.min(RECORDS.c.id) - 1).where(RECORDS.c.time.collate("C") >= before)
        found = sa.select(
            sa.func.coalesce(sa.func.min(RECORDS.c.id), 1),
            sa.func.coalesce(border.scalar_subquery(), sa.func.max(RECORDS.c.id), 0),
        )
        with convert_errors(self.name, "the audit log cannot be read"), self._reading() as connection:
            first, last = connection.execute(found).one()
        return int(first), int(last)

    def spans(self, last: int) -> Iterator[Span]:
        cause = RECORDS.alias()
        caused = sa.select(cause.c.session).where(cause.c.id == RECORDS.c.decided).scalar_subquery()
        owner = sa.func.coalesce(RECORDS.c.session, caused).label("owner")
        each = sa.select(RECORDS.c.id, RECORDS.c.kind, RECORDS.c.time, owner).subquery()
        found = (
            sa.select(
                *(each.c.owner, sa.func.min(each.c.id), sa.func.max(each.c.id)),
                *(sa.func.bool_or(each.c.kind == "ended"), sa.func.max(each.c.time.collate("C"))),
            )
            .where(each.c.owner.is_not(None))
            .group_by(each.c.owner)
            .having(sa.func.min(each.c.id) <= last)
        )
        with convert_errors(self.name, "the audit log cannot be read"), self._reading() as connection:
            rows = connection.execute(found).all()
        yield from (Span(*row) for row in rows)

    @contextlib.contextmanager
    def walking(self) -> Iterator["PostgresWalk"]:
        """Iterate over all records in one snapshot, so that a concurrent writer does not look like tampering."""
        with convert_errors(self.name, "the audit log cannot be read"), self._engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            self._inside = connection
            try:
                yield PostgresWalk(connection)
            finally:
                self._inside = None

    def strays(self) -> int | None:
        columns = (RECORDS.c.id, RECORDS.c.body, *(RECORDS.c[name] for name in IndexColumns._fields))
        with convert_errors(self.name, "the audit log cannot be read"), self._engine.connect() as connection:
            connection.execution_options(yield_per=_WALKED)
            for number, body, *card in connection.execute(sa.select(*columns).order_by(RECORDS.c.id)):
                if tuple(card) != index_columns_of(body):
                    return int(number)
        return None

    def unreadable(self) -> str:
        with convert_errors(self.name, "the audit log cannot be read"), self._engine.connect() as connection:
            return find_replaced_table(connection)

    def faults(self) -> str:
        with convert_errors(self.name, "the audit log cannot be read"), self._engine.connect() as connection:
            return find_schema_fault(connection)

    def cautions(self) -> tuple[str, ...]:
        with convert_errors(self.name, "the audit log cannot be read"), self._engine.connect() as connection:
            return excessive_rights(connection)

    def shrink(self) -> None:
        what = "the disk space of removed records could not be freed"
        with convert_errors(self.name, what), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(sa.text("VACUUM ringfence_records"))

    def _chain(self) -> str:
        with convert_errors(self.name, "the audit log cannot be read"), self._reading() as connection:
            return str(connection.execute(sa.select(_CHAIN)).scalar_one())

    def _first(self, query: "sa.Select[*tuple[Any, ...]]") -> RecordRow | None:
        return next(iter(self._rows(query.limit(1))), None)

    def _rows(self, query: "sa.Select[*tuple[Any, ...]]") -> list[RecordRow]:
        with convert_errors(self.name, "the audit log cannot be read"), self._reading() as connection:
            return [RecordRow(*row) for row in connection.execute(query)]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """Yield the connection of the open transaction, or a new connection if there is none."""
        if self._inside is not None:
            yield self._inside
            return
        with self._engine.connect() as connection:
            yield connection


class PostgresWriting:
    """One transaction; see `chain.LogTransaction`."""

    def __init__(self, connection: sa.Connection, head: Head, *, by_function: bool) -> None:
        self._connection = connection
        self._by_function = by_function
        self.head = head

    def add(self, digest: str, text: str) -> int:
        number = self.head.number + 1
        self.head = Head(self.head.log or digest[:NAME], number, digest)
        if self._by_function:
            asked = sa.text("SELECT number, hash FROM ringfence_append(:body)").bindparams(body=text)
            if tuple(self._connection.execute(asked).one()) != (number, digest):
                raise LogFaultError(LogFault.CHANGED, "the database did not append the given record")
            return number
        values = {"id": number, "body": text, "hash": digest, **index_columns_of(text)._asdict()}
        self._connection.execute(RECORDS.insert().values(values))
        head = {"name": self.head.log, "last": number, "hash": digest}
        self._connection.execute(LOGS.update().where(LOGS.c.number == OWN).values(head))
        return number

    def remove(self, last: int) -> None:
        self._connection.exec_driver_sql(FENCED.format("DISABLE"))
        self._connection.execute(RECORDS.delete().where(RECORDS.c.id <= last))
        self._connection.exec_driver_sql(FENCED.format("ENABLE"))


class PostgresWalk:
    """All records in one snapshot; see `chain.Walk`."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self.count = int(connection.execute(sa.select(sa.func.count()).select_from(RECORDS)).scalar_one())
        heads = connection.execute(sa.select(LOGS.c.name, LOGS.c.last, LOGS.c.hash).order_by(LOGS.c.number))
        self.heads = tuple(Head(*row) for row in heads)

    def rows(self) -> Iterator[RecordRow]:
        found = self._connection.execution_options(yield_per=_WALKED).execute(_ROW.order_by(RECORDS.c.id))
        while page := list(islice(found, _WALKED)):
            yield from (RecordRow(*row) for row in page)


def _conditions(wanted: Wanted) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of a selection that the index columns can express; `Query.matches` checks all of them."""
    where: list[sa.ColumnElement[bool]] = []
    column = RECORDS.c
    if wanted.kinds:
        where.append(column.kind.in_(wanted.kinds))
    if wanted.first is not None:
        where.append(column.id <= wanted.first)
    if wanted.after is not None:
        where.append(column.id > wanted.after)
    query = wanted.query
    if query is None:
        return where
    if query.verdicts == ("deny",):
        where.append(column.verdict == sa.literal_column("'deny'"))  # a constant, for the index of denials
    for name, values in (("verdict", query.verdicts), ("mode", query.modes), ("tool", query.tools)):
        if values:
            where.append(column[name].in_([storable(value) for value in values]))
    if query.tiers:
        where.append(column.tiers.overlap([storable(tier) for tier in query.tiers]))
    if query.sessions:
        where.append(sa.or_(*(column.session.startswith(storable(name), autoescape=True) for name in query.sessions)))
    if query.since:
        where.append(column.time >= storable(query.since))
    if query.until:
        where.append(column.time < storable(query.until))
    return where
