"""The same store in a PostgreSQL database, for the records of many machines: one chain that all of them append to.

A writer holds the row of the head while it adds, so that appends come one after the other; `synchronous_commit` is on
for each, and a server that does not sync is refused. No password stands in a URL: libpq reads it from a password file
(SOURCE: PostgreSQL's documentation, "The Password File"), or a certificate does without. To a host that is not this
machine the connection is by TLS with the server's name verified, unless the URL says otherwise.
"""

import contextlib
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from policy.verdict import Problem
from runner.audit.card import Card, card_of
from runner.audit.chain import NAME, ZERO
from runner.audit.store import AuditError, Head, Row, Span, Wanted

SCHEMA = 1
_PAGE = 500  # records that are fetched at once
_WALKED = 5000  # of a walk over all
_OWN = 1  # the chain that is appended to
_LOCK = 0x72696E6766656E63  # "ringfenc": held while the tables are made
_OPTIONS = "-c lock_timeout=15s -c idle_in_transaction_session_timeout=60s -c synchronous_commit=on"

_TABLES = sa.MetaData()
_logs = sa.Table(
    "ringfence_logs",
    _TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("schema", sa.Integer, nullable=False),
)
_records = sa.Table(
    "ringfence_records",
    _TABLES,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    *(sa.Column(name, ARRAY(sa.Text) if name in ("tiers", "rules") else sa.Text) for name in Card._fields[:-1]),
    sa.Column("decided", sa.BigInteger),
)
for _name, _column, _where in (
    ("outcome", "decided", "decided IS NOT NULL"),
    ("denial", "id", "verdict = 'deny'"),
    ("name", "name", "name IS NOT NULL"),
    ("mark", "id", "kind IN ('checkpoint', 'tombstone')"),
):
    sa.Index(f"ringfence_by_{_name}", _records.c[_column], postgresql_where=sa.text(_where))
_FENCE = """
CREATE OR REPLACE FUNCTION ringfence_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'the audit log is append-only'; END$$;
CREATE TRIGGER ringfence_fence BEFORE UPDATE OR DELETE OR TRUNCATE ON ringfence_records
    FOR EACH STATEMENT EXECUTE FUNCTION ringfence_append_only();
"""
_FENCED = "ALTER TABLE ringfence_records {} TRIGGER ringfence_fence"
_CHAIN = sa.select(_logs.c.name).where(_logs.c.number == _OWN).scalar_subquery()
_ROW = sa.select(_records.c.id, _CHAIN, _records.c.id, _records.c.hash, _records.c.body, _records.c.kind)


class PostgresStore:
    """One open database. Its methods are those of `store.Store`."""

    schema = SCHEMA
    merged = False

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self._engine = engine
        self._inside: sa.Connection | None = None  # the transaction that is being written
        self.name = name

    @classmethod
    def open(cls, url: str, *, write: bool) -> "PostgresStore":
        """Open for appending, making the tables where there are none; or for reading alone."""
        engine, name = _engine(url, write)
        store = cls(engine, name)
        try:
            with store._speaking("the audit log cannot be opened" if write else "the audit log cannot be read"):
                if write:
                    store._prepare()
                else:
                    store._understand()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        self._engine.dispose()

    @contextlib.contextmanager
    def writing(self, failure: str) -> Iterator["PostgresWriting"]:
        with self._speaking(failure), self._engine.begin() as connection:
            found = sa.select(_logs.c.name, _logs.c.last, _logs.c.hash).where(_logs.c.number == _OWN)
            head = Head(*connection.execute(found.with_for_update()).one())
            self._inside = connection
            try:
                yield PostgresWriting(connection, head)
            finally:
                self._inside = None

    def select(self, wanted: Wanted) -> Iterator[Row]:
        chosen = _ROW.where(*_conditions(wanted)).order_by(_records.c.id.desc())
        left, last = wanted.limit, None
        while left is None or left > 0:
            page = chosen if last is None else chosen.where(_records.c.id < last)
            rows = self._rows(page.limit(_PAGE if left is None else min(left, _PAGE)))
            yield from rows
            if not rows:
                return
            last, left = rows[-1].id, None if left is None else left - len(rows)

    def get(self, number: int) -> Row | None:
        return self._first(_ROW.where(_records.c.id == number))

    def outcome_of(self, decided: int) -> Row | None:
        return self._first(_ROW.where(_records.c.decided == decided).order_by(_records.c.id))

    def cause_of(self, finished: int) -> Row | None:
        cause = sa.select(_records.c.decided).where(_records.c.id == finished).scalar_subquery()
        return self._first(_ROW.where(_records.c.id == cause))

    def named(self, kind: str, name: str) -> Row | None:
        name = (
            name.encode("utf-8", "replace").decode().replace("\0", "")
        )  # PostgreSQL takes neither, and no name has any
        return self._first(_ROW.where(_records.c.name == name, _records.c.kind == kind).order_by(_records.c.id.desc()))

    def latest(self, kind: str, log: str = "") -> Row | None:
        if log and log != self._chain():
            return None
        marks = _records.c.kind.in_(("checkpoint", "tombstone"))
        return self._first(_ROW.where(marks, _records.c.kind == kind).order_by(_records.c.id.desc()))

    def hashes(self, first: int, last: int, log: str = "") -> Iterator[str]:
        if log and log != self._chain():
            return
        while first <= last:
            end = min(last, first + _WALKED - 1)
            query = sa.select(_records.c.hash).where(_records.c.id.between(first, end)).order_by(_records.c.id)
            with self._speaking("the audit log cannot be read"), self._reading() as connection:
                found = connection.execute(query).scalars().all()
            yield from found
            first = end + 1

    def older(self, before: str) -> tuple[int, int]:
        border = sa.select(sa.func.min(_records.c.id) - 1).where(_records.c.time.collate("C") >= before)
        found = sa.select(
            sa.func.coalesce(sa.func.min(_records.c.id), 1),
            sa.func.coalesce(border.scalar_subquery(), sa.func.max(_records.c.id), 0),
        )
        with self._speaking("the audit log cannot be read"), self._reading() as connection:
            first, last = connection.execute(found).one()
        return int(first), int(last)

    def spans(self, last: int) -> Iterator[Span]:
        cause = _records.alias()
        caused = sa.select(cause.c.session).where(cause.c.id == _records.c.decided).scalar_subquery()
        owner = sa.func.coalesce(_records.c.session, caused).label("owner")
        each = sa.select(_records.c.id, _records.c.kind, _records.c.time, owner).subquery()
        found = (
            sa.select(
                *(each.c.owner, sa.func.min(each.c.id), sa.func.max(each.c.id)),
                *(sa.func.bool_or(each.c.kind == "ended"), sa.func.max(each.c.time.collate("C"))),
            )
            .where(each.c.owner.is_not(None))
            .group_by(each.c.owner)
            .having(sa.func.min(each.c.id) <= last)
        )
        with self._speaking("the audit log cannot be read"), self._reading() as connection:
            rows = connection.execute(found).all()
        yield from (Span(*row) for row in rows)

    @contextlib.contextmanager
    def walking(self) -> Iterator["PostgresWalk"]:
        """Everything at one moment, so that a writer in between does not look like tampering."""
        with self._speaking("the audit log cannot be read"), self._engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield PostgresWalk(connection)

    def strays(self) -> int | None:
        columns = (_records.c.id, _records.c.body, *(_records.c[name] for name in Card._fields))
        with self._speaking("the audit log cannot be read"), self._engine.connect() as connection:
            connection.execution_options(yield_per=_WALKED)
            for number, body, *card in connection.execute(sa.select(*columns).order_by(_records.c.id)):
                if tuple(card) != card_of(body):
                    return int(number)
        return None

    def shrink(self) -> None:
        with (
            self._speaking("the room of removed records could not be given back"),
            self._engine.connect() as connection,
        ):
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(sa.text("VACUUM ringfence_records"))

    def _chain(self) -> str:
        with self._speaking("the audit log cannot be read"), self._reading() as connection:
            return str(connection.execute(sa.select(_CHAIN)).scalar_one())

    def _first(self, query: "sa.Select[*tuple[Any, ...]]") -> Row | None:
        return next(iter(self._rows(query.limit(1))), None)

    def _rows(self, query: "sa.Select[*tuple[Any, ...]]") -> list[Row]:
        with self._speaking("the audit log cannot be read"), self._reading() as connection:
            return [Row(*row) for row in connection.execute(query)]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """The transaction that is being written, or a short one."""
        if self._inside is not None:
            yield self._inside
            return
        with self._engine.connect() as connection:
            yield connection

    def _prepare(self) -> None:
        with self._engine.begin() as connection:
            if connection.exec_driver_sql("SHOW fsync").scalar_one() != "on":
                raise ValueError("the server does not sync to its disk (`fsync = off`)")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))  # two first users
            if not sa.inspect(connection).has_table(_logs.name):
                _TABLES.create_all(connection)
                connection.exec_driver_sql(_FENCE)
                connection.execute(_logs.insert().values(number=_OWN, name="", last=0, hash=ZERO, schema=SCHEMA))
        self._understand()

    def _understand(self) -> None:
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(_logs.name):
                raise ValueError("there is no log in it; it is made by the first `agent exec` or `agent run`")
            if connection.execute(sa.select(_logs.c.schema).where(_logs.c.number == _OWN)).scalar_one() > SCHEMA:
                raise ValueError("a newer ringfence wrote it; use that one")

    @contextlib.contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        """Turn what the server and its driver say into a Problem."""
        try:
            yield
        except (SQLAlchemyError, ValueError) as error:
            raise AuditError(Problem(what, f"`{self.name}`: {_said(error)}", _fix(_said(error)))) from None


class PostgresWriting:
    """One transaction: see `store.Writing`."""

    def __init__(self, connection: sa.Connection, head: Head) -> None:
        self._connection = connection
        self.head = head

    def add(self, digest: str, text: str) -> int:
        number = self.head.number + 1
        self.head = Head(self.head.log or digest[:NAME], number, digest)
        values = {"id": number, "body": text, "hash": digest, **card_of(text)._asdict()}
        self._connection.execute(_records.insert().values(values))
        head = {"name": self.head.log, "last": number, "hash": digest}
        self._connection.execute(_logs.update().where(_logs.c.number == _OWN).values(head))
        return number

    def remove(self, last: int) -> None:
        self._connection.exec_driver_sql(_FENCED.format("DISABLE"))
        self._connection.execute(_records.delete().where(_records.c.id <= last))
        self._connection.exec_driver_sql(_FENCED.format("ENABLE"))


class PostgresWalk:
    """All records at one moment: see `store.Walk`."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self.count = int(connection.execute(sa.select(sa.func.count()).select_from(_records)).scalar_one())
        heads = connection.execute(sa.select(_logs.c.name, _logs.c.last, _logs.c.hash).order_by(_logs.c.number))
        self.heads = tuple(Head(*row) for row in heads)

    def rows(self) -> Iterator[Row]:
        found = self._connection.execution_options(yield_per=_WALKED).execute(_ROW.order_by(_records.c.id))
        while page := list(islice(found, _WALKED)):
            yield from (Row(*row) for row in page)


def _conditions(wanted: Wanted) -> list[sa.ColumnElement[bool]]:
    """What of a selection the columns can tell; `Query.matches` decides."""
    where: list[sa.ColumnElement[bool]] = []
    column = _records.c
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
        where.append(column.verdict == sa.literal_column("'deny'"))  # spelled out, for the index of denials
    for name, values in (("verdict", query.verdicts), ("mode", query.modes), ("tool", query.tools)):
        if values:
            where.append(column[name].in_([_kept(value) for value in values]))
    if query.tiers:
        where.append(column.tiers.overlap([_kept(tier) for tier in query.tiers]))
    if query.sessions:
        where.append(sa.or_(*(column.session.startswith(_kept(name), autoescape=True) for name in query.sessions)))
    if query.since:
        where.append(column.time >= _kept(query.since))
    if query.until:
        where.append(column.time < _kept(query.until))
    return where


def _kept(text: str) -> str:
    """As PostgreSQL can be asked for it; what it cannot hold is in no record's field either."""
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def _engine(url: str, write: bool) -> tuple[sa.Engine, str]:
    """The engine, and its name for people. Raises AuditError for a URL that cannot be used."""
    what = "the address of the audit log cannot be used"
    try:
        asked = sa.make_url(url)
    except (ArgumentError, ValueError):
        fix = "write it as postgresql://USER@HOST/DATABASE"
        raise AuditError(Problem(what, "it is no URL of a database", fix)) from None
    if asked.get_backend_name() != "postgresql":
        why = f"`{asked.get_backend_name()}` is no database that it can be kept in"
        raise AuditError(Problem(what, why, "write it as postgresql://USER@HOST/DATABASE"))
    if asked.password is not None or "password" in asked.query:
        why = "there is a password in it, which others would read where addresses are kept and shown"
        fix = "take it out, and put it into ~/.pgpass (mode 0600): HOST:PORT:DATABASE:USER:PASSWORD"
        raise AuditError(Problem(what, why, fix))
    options: dict[str, object] = {"options": _OPTIONS, "connect_timeout": 10, "application_name": "ringfence"}
    if not write:
        options["options"] = f"{_OPTIONS} -c default_transaction_read_only=on"
    if given := asked.query.get("options"):
        options["options"] = f"{given} {options['options']}"
    if "sslmode" not in asked.query and not _here(asked):
        options["sslmode"] = "verify-full"
        if "sslrootcert" not in asked.query:
            options["sslrootcert"] = "system"
    driven = asked.set(drivername="postgresql+psycopg")
    return sa.create_engine(driven, connect_args=options, pool_pre_ping=True), asked.render_as_string()


def _here(url: sa.URL) -> bool:
    """Whether it is a socket in a folder, or an address of this machine itself."""
    hosts = [url.host or url.query.get("host", "")]
    if isinstance(hosts[0], tuple):
        hosts = list(hosts[0])

    def here(host: str) -> bool:
        if not host or host.startswith(("/", "@")) or host == "localhost":
            return True
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return False

    return all(here(part) for host in hosts for part in str(host).split(","))


def _said(error: Exception) -> str:
    """The server's own words, in one line."""
    text = str(getattr(error, "orig", None) or error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).removeprefix("ERROR:").strip().rstrip(".").lower()


def _fix(why: str) -> str:
    if "password" in why or "authentication" in why:
        return "put the password into ~/.pgpass (mode 0600), or name a certificate with sslcert= and sslkey="
    if "certificate" in why or "ssl" in why:
        return "name the authority of the server's certificate with sslrootcert=FILE in the URL"
    if "permission denied" in why:
        return "see docs/audit.md for the rights that a writer and a reader need"
    if "there is no log" in why or "no url" in why:
        return "run something first, or check `audit.url` in your configuration"
    if "fsync" in why:
        return "switch it on: a record that a crash can take back proves nothing"
    return "check that the server runs and can be reached, or take `audit.url` out to keep the log in a file here"
