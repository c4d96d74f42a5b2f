"""Hash chain of audit records, and the interface of a store of such a chain.

`hash = sha256(hash of the previous record || canonical bytes)`; the first record follows 32 zero bytes. Canonical form,
redaction, chaining, checkpoints, signatures, proofs and the meaning of filters are the same for every store: see
`checkpoint`, `log`, `verify` and `query`. Every failure is an AuditError: when writing failed, the action must not run.
The store `sqlite` is always available.
"""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from policy.model.digest import sha256_hex
from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.problems import Exit

if TYPE_CHECKING:
    from runner.audit.query import Query

ZERO = "0" * 64
NAME = 16  # length of a chain's name: the first characters of the hash of its first record


def canonical(body: dict[str, object]) -> str:
    """Return `body` as canonical JSON: ASCII (lone surrogates and NUL are escaped), sorted keys, no spaces, no NaN."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def seal(previous: str, text: str) -> str:
    """Return the hash of the record `text` that follows the record with the hash `previous`."""
    return sha256_hex(bytes.fromhex(previous) + text.encode("utf-8", "surrogatepass"))


def digest(said: dict[str, object]) -> str:
    """Return the name of shared facts: the SHA-256 of their canonical JSON."""
    return sha256_hex(canonical(said).encode("ascii"))


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log.

    Attributes:
        id: number in the store, counted from 1 without gaps; pruning removes the lowest numbers
        body: the JSON object, with names of earlier versions replaced by today's names; the hash covers the stored
            names
        log: name of the record's chain in a merged file; empty otherwise
        number: number in the chain; equal to `id` unless logs were merged
    """

    id: int
    hash: str
    body: dict[str, object]
    log: str = ""
    number: int = 0

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))


def invalid_value_errors() -> tuple[type[Exception], ...]:
    """Return the errors that values of an unexpected type cause: the owner of the file can write anything into it."""
    import sqlite3  # imported here, because short commands import this module and open no log

    return (TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError, sqlite3.DatabaseError)


class AuditError(ProblemError):
    """Failure to open, read or write the log. When writing failed, the action must not run."""

    exit_code: ClassVar[int] = Exit.FAILED


class LogFault(Enum):
    """Reason why a stored log cannot be used. Each store has a remedy for the reasons that it can meet.

    Attributes:
        EMPTY: there is no log in the file or database
        MISSING: the file does not exist
        NEWER: a newer version of this program wrote it
        MERGED: it was merged from other logs, so nothing can be appended
        CHANGED: another program changed the schema or a function
        REPLACED: the file was removed or replaced while it was open
        DAMAGED: the content is damaged
        FULL: the disk or a quota is full
        NO_WAL: the file system does not support a write-ahead log
        NO_SYNC: the server does not sync to its disk
        LOCKED: another role or process holds the lock
        LOGIN: the server rejects the login
        CERTIFICATE: the certificate of the server or its encryption is not accepted
        FORBIDDEN: the role lacks a right
    """

    EMPTY = auto()
    MISSING = auto()
    NEWER = auto()
    MERGED = auto()
    CHANGED = auto()
    REPLACED = auto()
    DAMAGED = auto()
    FULL = auto()
    NO_WAL = auto()
    NO_SYNC = auto()
    LOCKED = auto()
    LOGIN = auto()
    CERTIFICATE = auto()
    FORBIDDEN = auto()


class LogFaultError(ValueError):
    """A fault that a store found in its log. The message is the reason in words."""

    def __init__(self, fault: LogFault, why: str) -> None:
        super().__init__(why)
        self.fault = fault


@contextmanager
def convert_invalid_values(what: str) -> Iterator[None]:
    """Convert errors caused by invalid records to AuditError; `what` is the message. The log may be unverified."""
    try:
        yield
    except invalid_value_errors():
        raise AuditError(
            Problem(what, "it contains a record that this program did not write", "run `agent audit verify`")
        ) from None


@dataclass(frozen=True, slots=True)
class Head:
    """End of a chain: number and hash of the last record. `log` names the chain; it is empty before the first
    record."""

    log: str
    number: int
    hash: str


class RecordRow(NamedTuple):
    """Stored record. `number` counts in its chain, `id` in the store: they are equal unless logs were merged.

    A row is a tuple, because a verification creates a million of them.
    """

    id: int
    log: str
    number: int
    hash: str
    body: str
    kind: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selection of at most `limit` records of these kinds (all if empty), with ids up to `first` and above `after`.

    None means no limit. `query` has further conditions on decisions.
    """

    kinds: tuple[str, ...] = ()
    query: "Query | None" = None
    first: int | None = None
    after: int | None = None
    limit: int | None = None


class Span(NamedTuple):
    """Extent of a session in the chain, whether its end is recorded, and the time of its last record."""

    session: str
    first: int
    last: int
    ended: bool
    time: str


class LogTransaction(Protocol):
    """One transaction. It is durable when its `with` block succeeds; a block that fails changes nothing."""

    head: Head

    def add(self, digest: str, text: str) -> int:
        """Append the record that follows `head`, move `head` to it, and return its id."""

    def remove(self, last: int) -> None:
        """Remove the records up to the number `last`."""


def append(writing: LogTransaction, body: dict[str, object]) -> int:
    """Append `body` to the chain as one record, inside a transaction, and return the record's id."""
    text = canonical(body)
    return writing.add(seal(writing.head.hash, text), text)


class Walk(Protocol):
    """Iteration over all records in one snapshot, oldest first. `count` is the number of the records."""

    heads: tuple[Head, ...]
    count: int

    def rows(self) -> Iterator[RecordRow]: ...


class LogStore(Protocol):
    """Store of a log. `name` is its name for people; `schema` is the version of its format.

    Attributes:
        merged: the store holds several chains, and nothing is appended to it
        marks: checkpoints can be appended

    Methods for writing:
        writing: one exclusive transaction, all or nothing, durable when it ends; `failure` is the message of an error
        shrink: return the space of removed records to the file system

    Methods for reading:
        select: records, newest first; may yield records that do not match the query, and yields all that match
        get: the record with this id, or None
        outcome_of: the `finished` record of the decision with this id, or None
        cause_of: the decision whose outcome has this id, or None
        named: the newest record of a kind with this name, or None; see `AuditLog.named`
        latest: the newest checkpoint or tombstone of a chain (empty: the chain that is appended to), or None
        hashes: hashes of a range of a chain, oldest first
        walking: all records, oldest first, and the heads, in one snapshot
        older: the first and the last number of the records before a time
        spans: the sessions that begin at or before a number

    Methods for checks:
        strays: the first record whose index columns differ from its body, or None
        unreadable: description of an object that replaces a table, so that reading could run any code, or empty
        faults: description of tables, indexes or settings that this program did not create, or empty
        cautions: descriptions of rights of other database roles on the store that they do not need
    """

    name: str
    schema: int
    merged: bool
    marks: bool

    def writing(self, failure: str) -> AbstractContextManager[LogTransaction]: ...
    def select(self, wanted: Wanted) -> Iterator[RecordRow]: ...
    def get(self, number: int) -> RecordRow | None: ...
    def outcome_of(self, decided: int) -> RecordRow | None: ...
    def cause_of(self, finished: int) -> RecordRow | None: ...
    def named(self, kind: str, name: str) -> RecordRow | None: ...
    def latest(self, kind: str, log: str = "") -> RecordRow | None: ...
    def hashes(self, first: int, last: int, log: str = "") -> Iterator[str]: ...
    def older(self, before: str) -> tuple[int, int]: ...
    def spans(self, last: int) -> Iterator[Span]: ...
    def walking(self) -> AbstractContextManager[Walk]: ...
    def strays(self) -> int | None: ...
    def unreadable(self) -> str: ...
    def faults(self) -> str: ...
    def cautions(self) -> tuple[str, ...]: ...
    def shrink(self) -> None: ...
    def close(self) -> None: ...


def now(seconds: float | None = None) -> str:
    """Return the current time, or the time `seconds` after 1970, in the format of records: UTC with milliseconds."""
    at = time.time() if seconds is None else seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"
