"""What a store of the log must offer. Everything else (spelling, redaction, chaining, checkpoints, signatures, proofs,
what a filter means) is the same for every store and stands beside it: `chain`, `checkpoint`, `log`, `verify`, `query`.

- `writing`: one exclusive transaction, all or nothing, durable when it is left. In it the store tells the `head` of the
  chain that it appends to, and takes records (`add`) and the removal of the oldest (`remove`).
- `select`, `get`, `outcome_of`, `cause_of`, `named`, `latest`: reading. `select` may give more than the query wants
  (Query.matches decides), never less, and newest first.
- `hashes`: of a range of a chain, oldest first. `walking`: all records, oldest first, with the heads, in one snapshot.
- `strays`: what the store keeps beside the bodies, to select by, and what no longer says the same as they.
- `unreadable`: what stands in the place of a table, so that reading from it could run whatever somebody put there.
- `faults`: what of the tables, indexes and settings of the store is not as this program makes them.
- `cautions`: what others may do to the store that they need not, such as rights in a database.
- `older`: from where to where the chain's beginning is older than a time; `spans`: of sessions that begin up to there.
- `shrink`: give back the room of what was removed. `close`.

`sqlite` is the one that is always there. Every failure is an AuditError: when writing failed, the action must not run.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.audit.chain import canonical, seal
from runner.problems import Exit

if TYPE_CHECKING:
    from runner.audit.query import Query


# What a number, a text or an object that is none of these leads to. Whoever owns the file can write anything into it.
ODD = (TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError, sqlite3.DatabaseError)


class AuditError(ProblemError):
    """The log could not be opened, read or written. When writing failed, the action must not run."""

    exit_code: ClassVar[int] = Exit.FAILED


@contextmanager
def sound(what: str) -> Iterator[None]:
    """For what rests on records that nobody has verified: AuditError, not a stumble, when they are odd."""
    try:
        yield
    except ODD:
        raise AuditError(
            Problem(what, "it holds what this program does not write", "run `agent audit verify`")
        ) from None


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain: the last record's number and hash. `log` names the chain; empty before the first record."""

    log: str
    number: int
    hash: str


class Row(NamedTuple):
    """A record as it is stored. `number` counts in its chain, `id` in the store: the same unless logs were merged.

    A tuple, because a million of them are made to verify a log.
    """

    id: int
    log: str
    number: int
    hash: str
    body: str
    kind: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection: of these kinds (none: all), with ids up to `first` and beyond `after`, at most `limit`."""

    kinds: tuple[str, ...] = ()
    query: "Query | None" = None
    first: int | None = None
    after: int | None = None
    limit: int | None = None


class Span(NamedTuple):
    """From where to where a session lies in the chain; whether its end is recorded, and when it wrote last."""

    session: str
    first: int
    last: int
    ended: bool
    time: str


class Writing(Protocol):
    """One transaction. Leaving it without an error makes it durable; with one, nothing of it happened."""

    head: Head

    def add(self, digest: str, text: str) -> int:
        """Keep the record that follows `head`, which moves on to it; answers its id."""

    def remove(self, last: int) -> None:
        """Take out the records up to the number `last`."""


def append(writing: Writing, body: dict[str, object]) -> int:
    """Append `body` to the chain as one more sealed record, inside a transaction, and return the record's id."""
    text = canonical(body)
    return writing.add(seal(writing.head.hash, text), text)


class Walk(Protocol):
    """All records at one moment."""

    heads: tuple[Head, ...]
    count: int

    def rows(self) -> Iterator[Row]: ...


class Store(Protocol):
    """See above. `name` is how people know it; `schema` the version of how it keeps records.

    `merged`: it holds several chains, and nothing is added to it. `marks`: checkpoints can be added to it.
    """

    name: str
    schema: int
    merged: bool

    @property
    def marks(self) -> bool: ...
    def writing(self, failure: str) -> AbstractContextManager[Writing]: ...
    def select(self, wanted: Wanted) -> Iterator[Row]: ...
    def get(self, number: int) -> Row | None: ...
    def outcome_of(self, decided: int) -> Row | None: ...
    def cause_of(self, finished: int) -> Row | None: ...
    def named(self, kind: str, name: str) -> Row | None: ...
    def latest(self, kind: str, log: str = "") -> Row | None: ...
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
