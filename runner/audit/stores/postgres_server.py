"""Connection to a PostgreSQL database with a log: its tables and index columns, the URL, and the messages for failures.

`synchronous_commit` is on for each append, and a server that does not sync is refused. A URL must not contain a
password: libpq reads the password from a password file (SOURCE: PostgreSQL's documentation, "The Password File"), or
uses a certificate. A connection to another machine uses TLS with verification of the server's name, unless the URL says
otherwise.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from json import loads
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from policy.model.verdict import Problem
from runner.audit.chain import ZERO, AuditError, LogFault, LogFaultError
from runner.audit.stores.postgres_schema import install
from runner.text.http_address import is_loopback

SCHEMA = 1
OWN = 1  # number of the chain that is appended to
_LOCK = 0x72696E6766656E63  # "ringfenc": key of the advisory lock that is held while the tables are created
_OPTIONS = "-c lock_timeout=15s -c idle_in_transaction_session_timeout=60s -c synchronous_commit=on"


class IndexColumns(NamedTuple):
    """Index columns of one record. A column is None if the body has no such field.

    Attributes:
        name: for kinds `session` and `ended` the id of the session, for other kinds the value of `sha256`
        rules: the rule that decided, then the rule of every reason, each once
        decided: for kind `finished` the number of the decision that the outcome belongs to
    """

    kind: str | None = None
    time: str | None = None
    session: str | None = None
    verdict: str | None = None
    mode: str | None = None
    tool: str | None = None
    tiers: list[str] | None = None
    rules: list[str] | None = None
    name: str | None = None
    decided: int | None = None


def index_columns_of(text: str) -> IndexColumns:
    """Return the index columns of a record's canonical text; empty columns if the text is not an object."""
    try:
        body = loads(text)
    except (ValueError, RecursionError):
        return IndexColumns()
    if not isinstance(body, dict):
        return IndexColumns()
    kind = _column_text(body.get("kind"))
    decided, tiers = body.get("decided"), body.get("tiers")
    return IndexColumns(
        **{name: _column_text(body.get(name)) for name in ("time", "session", "verdict", "mode", "tool")},
        kind=kind,
        tiers=[storable(str(tier)) for tier in tiers] if isinstance(tiers, list) else None,
        rules=_rules(body),
        name=_column_text(body.get("session" if kind in ("session", "ended") else "sha256")),
        decided=decided if isinstance(decided, int) else None,
    )


def storable(text: str) -> str:
    """Return the text with NUL and lone surrogates replaced, which a database can neither store nor query."""
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def _column_text(value: object) -> str | None:
    return storable(value) if isinstance(value, str) else None


def _rules(body: dict[str, object]) -> list[str] | None:
    reasons = body.get("reasons")
    if not isinstance(reasons, list):
        return None
    every = [body.get("because"), *reasons]
    return list(dict.fromkeys(storable(str(each.get("rule"))) for each in every if isinstance(each, dict)))


_TABLES = sa.MetaData()
LOGS = sa.Table(
    "ringfence_logs",
    _TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("schema", sa.Integer, nullable=False),
)
RECORDS = sa.Table(
    "ringfence_records",
    _TABLES,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    *(sa.Column(name, ARRAY(sa.Text) if name in ("tiers", "rules") else sa.Text) for name in IndexColumns._fields[:-1]),
    sa.Column("decided", sa.BigInteger),
)
for _name, _column, _where in (
    ("outcome", "decided", "decided IS NOT NULL"),
    ("denial", "id", "verdict = 'deny'"),
    ("name", "name", "name IS NOT NULL"),
    ("mark", "id", "kind IN ('checkpoint', 'tombstone')"),
):
    sa.Index(f"ringfence_by_{_name}", RECORDS.c[_column], postgresql_where=sa.text(_where))
_FENCE = """
CREATE OR REPLACE FUNCTION ringfence_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'the audit log is append-only'; END$$;
CREATE TRIGGER ringfence_fence BEFORE UPDATE OR DELETE OR TRUNCATE ON ringfence_records
    FOR EACH STATEMENT EXECUTE FUNCTION ringfence_append_only();
"""
FENCED = "ALTER TABLE ringfence_records {} TRIGGER ringfence_fence"


def prepare(connection: sa.Connection) -> None:
    """Create missing tables and functions. Raises LogFaultError for a server that does not sync."""
    if connection.exec_driver_sql("SHOW fsync").scalar_one() != "on":
        raise LogFaultError(LogFault.NO_SYNC, "the server does not sync to its disk (`fsync = off`)")
    if not sa.inspect(connection).has_table(LOGS.name):
        # Two processes may create the tables. The lock is not taken later, because any role could hold it.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        if not sa.inspect(connection).has_table(LOGS.name):
            _TABLES.create_all(connection)
            connection.exec_driver_sql(_FENCE)
            connection.execute(LOGS.insert().values(number=OWN, name="", last=0, hash=ZERO, schema=SCHEMA))
    install(connection)


def check_schema(connection: sa.Connection) -> None:
    """Check the version of the log. Raises LogFaultError for a database without a log, or of a newer version."""
    if not sa.inspect(connection).has_table(LOGS.name):
        why = "the database contains no log; the first `agent exec` or `agent run` creates one"
        raise LogFaultError(LogFault.EMPTY, why)
    if connection.execute(sa.select(LOGS.c.schema).where(LOGS.c.number == OWN)).scalar_one() > SCHEMA:
        raise LogFaultError(LogFault.NEWER, "a newer ringfence wrote it; use that version")


@contextlib.contextmanager
def locking() -> Iterator[None]:
    """Convert the exception of `ringfence_head()` that another role holds the head to LogFaultError."""
    try:
        yield
    except SQLAlchemyError as error:
        if _state_of(error) != _RAISED:
            raise
        raise LogFaultError(LogFault.LOCKED, _server_message(error)) from None


@contextlib.contextmanager
def convert_errors(name: str, what: str) -> Iterator[None]:
    """Convert errors of the database at `name`, its URL, and of its driver to AuditError; `what` is the message."""
    try:
        yield
    except (SQLAlchemyError, ValueError) as error:
        fix = _FIXES.get(_fault_of(error), _UNREACHABLE)
        raise AuditError(Problem(what, f"`{name}`: {_server_message(error)}", fix)) from None


def engine_of(url: str, write: bool) -> tuple[sa.Engine, str]:
    """Return the engine and its name for messages. Raises AuditError for a URL that cannot be used."""
    what = "the address of the audit log cannot be used"
    try:
        asked = sa.make_url(url)
    except (ArgumentError, ValueError):
        fix = "write it as postgresql://USER@HOST/DATABASE"
        raise AuditError(Problem(what, "it is not the URL of a database", fix)) from None
    if asked.get_backend_name() != "postgresql":
        why = f"`{asked.get_backend_name()}` is not supported; the log needs PostgreSQL"
        raise AuditError(Problem(what, why, "write it as postgresql://USER@HOST/DATABASE"))
    if asked.password is not None or any("password" in key.lower() for key in asked.query):
        why = "it contains a password, which other users could read where the address is stored and shown"
        fix = "move it to ~/.pgpass (mode 0600): HOST:PORT:DATABASE:USER:PASSWORD"
        raise AuditError(Problem(what, why, fix))
    options: dict[str, object] = {"options": _OPTIONS, "connect_timeout": 10, "application_name": "ringfence"}
    if not write:
        options["options"] = f"{_OPTIONS} -c default_transaction_read_only=on"
    if given := asked.query.get("options"):
        options["options"] = f"{given} {options['options']}"
    if "sslmode" not in asked.query and not _is_local(asked, os.environ):
        options["sslmode"] = "verify-full"
        if "sslrootcert" not in asked.query:
            options["sslrootcert"] = "system"
    driven = asked.set(drivername="postgresql+psycopg")
    return sa.create_engine(driven, connect_args=options, pool_pre_ping=True), url  # as the user wrote it


def _is_local(url: sa.URL, environ: Mapping[str, str]) -> bool:
    """Return True if the host is a socket in a folder, or an address of this machine.

    SOURCE: PostgreSQL's documentation, "Parameter Key Words" and "Environment Variables": `hostaddr` takes precedence
    over the host, parameters missing in the URL are read from the environment, and a service may set any of them.
    """
    if "service" in url.query or environ.get("PGSERVICE"):
        return False
    named = [url.host, url.query.get("host")]
    named = named if any(named) else [environ.get("PGHOST")]
    named.append(url.query.get("hostaddr") or environ.get("PGHOSTADDR"))
    hosts = [host for each in named if each for host in ((each,) if isinstance(each, str) else each)]

    def local(host: str) -> bool:
        return not host or host.startswith(("/", "@")) or is_loopback(host)

    return all(local(part) for host in hosts for part in host.split(","))


def _server_message(error: Exception) -> str:
    """Return the server's own message in one line."""
    text = str(getattr(error, "orig", None) or error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).removeprefix("ERROR:").strip().rstrip(".").lower()


_RAISED = "P0001"  # SOURCE: PostgreSQL's documentation, "PostgreSQL Error Codes": raise_exception
# fmt: off
_FAULT_OF_STATE = {
    "28000": LogFault.LOGIN,      # invalid_authorization_specification
    "28P01": LogFault.LOGIN,      # invalid_password
    "42501": LogFault.FORBIDDEN,  # insufficient_privilege
    "53100": LogFault.FULL,       # disk_full
    "55P03": LogFault.LOCKED,     # lock_not_available: the limit `lock_timeout`
}
# Words of libpq, which reports a failed connection by a text only.
_FAULT_OF_WORD = {
    "password":          LogFault.LOGIN,
    "authentication":    LogFault.LOGIN,
    "certificate":       LogFault.CERTIFICATE,
    "ssl":               LogFault.CERTIFICATE,
    "permission denied": LogFault.FORBIDDEN,
}
# fmt: on
_FIXES: dict[LogFault | None, str] = {
    LogFault.LOGIN: "put the password into ~/.pgpass (mode 0600), or name a certificate with sslcert= and sslkey=",
    LogFault.CERTIFICATE: "name the authority of the server's certificate with sslrootcert=FILE in the URL",
    LogFault.LOCKED: "find that role with `SELECT * FROM pg_stat_activity`; no action runs while it locks the log",
    LogFault.FORBIDDEN: "see docs/guide/audit.md for the rights that a writer and a reader need",
    LogFault.EMPTY: "run a command first, or check `audit.url` in your configuration",
    LogFault.NEWER: "install that version or a newer one",
    LogFault.CHANGED: "run `agent audit verify`, and keep the database as evidence",
    LogFault.NO_SYNC: "switch it on: without it, a crash can remove records",
    LogFault.FULL: "free some disk space on the server",
}
_UNREACHABLE = "check that the server runs and can be reached, or remove `audit.url` to keep the log in a file"


def _state_of(error: Exception) -> str:
    """Return the SQLSTATE of an error of the server; empty if it has none."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


def _fault_of(error: Exception) -> LogFault | None:
    """Return the fault of the log that caused an error, or None if the error has another cause."""
    if isinstance(error, LogFaultError):
        return error.fault
    if state := _state_of(error):
        return _FAULT_OF_STATE.get(state)
    message = _server_message(error)
    return next((fault for word, fault in _FAULT_OF_WORD.items() if word in message), None)
