"""The audit log: append-only, hash-chained records, durable before the action they describe may run.

The chain is the proof that no record was changed, and every `EVERY` records a checkpoint holds the root of a Merkle
tree over all before it, signed where a key is. Without a key, or a head noted elsewhere, nobody can prove that the
*end* was not cut off and the rest written anew. What a store does and what is the same over all stores: see `store`.
"""

from collections.abc import Callable, Iterator, Sequence
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.audit.chain import Record, canonical, cleaned, digest, seal
from runner.audit.records import (
    Decision,
    Patching,
    Planned,
    Ran,
    Refusal,
    SessionEnd,
    SessionInfo,
    applied_body,
    decided_body,
    ended_body,
    facts_body,
    finished_body,
    planned_body,
    refused_body,
    session_body,
)
from runner.audit.stores.sqlite import SqliteStore
from runner.audit.stores.store import AuditError, Row, Store, Wanted, append
from sandbox.backend import Outcome

if TYPE_CHECKING:
    from runner.audit.query import Query
    from runner.audit.signing import Signer

EVERY = 512  # records between two checkpoints


class AuditLog:
    """An open log. Each append blocks until the record is durable, on purpose.

    `redact` is applied to every text before it is stored. `signer` is called only when a checkpoint is due.
    """

    def __init__(
        self,
        store: Store,
        *,
        redact: Callable[[str], str] | None = None,
        signer: "Callable[[], Signer] | None" = None,
    ) -> None:
        self.store = store
        self._redact = redact
        self._signer = signer

    @classmethod
    def open(
        cls,
        place: Path | str,
        *,
        redact: Callable[[str], str] | None = None,
        signer: "Callable[[], Signer] | None" = None,
    ) -> "AuditLog":
        """Open for appending: a file (a new one is 0600), or the database at a URL."""
        store = SqliteStore.open(place) if isinstance(place, Path) else _database(place, write=True)
        return cls(store, redact=redact, signer=signer)

    @classmethod
    def open_to_read(cls, place: Path | str, *, whatever: bool = False) -> "AuditLog":
        """Open an existing log for reading only; a file also as a copy in a read-only folder.

        A file whose tables this program did not make is refused, unless `whatever` is asked for, to verify it.
        """
        if isinstance(place, Path):
            return cls(SqliteStore.open_to_read(place, whatever=whatever))
        return cls(_database(place, write=False))

    @property
    def path(self) -> Path:
        """Return the file that holds the log."""
        return Path(self.store.name)

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> "AuditLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, info: SessionInfo) -> str:
        """Record that a session began; answers its id, which `decided` and `refused` want."""
        import os

        name = os.urandom(8).hex()
        self._append(session_body(name, info), "the session could not be recorded, so nothing was run")
        return name

    def decided(self, session: str, decision: Decision) -> int:
        """Record a verdict, durable before return; answers the record's id. Raises AuditError: then nothing may run."""
        notes = decision.noted.parts() if decision.noted is not None else ()
        failure = "the decision could not be recorded, so nothing was run"
        return self._append(decided_body(session, decision), failure, notes)

    def facts(self, name: str) -> dict[str, object] | None:
        """Return the content of one of the `facts` that a `decided` record names; None if the log lacks it or it was
        changed.
        """
        found = self.named("facts", name)
        said = found.body.get("said") if found else None
        return said if isinstance(said, dict) and digest(said) == name else None

    def refused(self, session: str, refusal: Refusal) -> int:
        """Record a tool call that never became an action (malformed arguments, unknown tool)."""
        return self._append(refused_body(session, refusal), "the refusal could not be recorded")

    def finished(self, decided: int, outcome: Outcome, ran: Ran | None = None) -> int:
        """Record what became of the action that record `decided` allowed."""
        number = self._append(finished_body(decided, outcome, ran), "the outcome of an action could not be recorded")
        last = self.store.latest("checkpoint")
        if number - (last.number if last else 0) >= EVERY:  # now, when no action waits for it
            self.checkpoint()
        return number

    def applied(self, session: str, patching: Patching) -> int:
        """Record that a person puts a patch into the workspace. Raises AuditError: then nothing may be changed."""
        return self._append(applied_body(session, patching), "the patch could not be recorded, so nothing was changed")

    def planned(self, session: str, planned: Planned) -> int:
        """Record what a person said to a plan. Raises AuditError: then the mode may not change."""
        return self._append(planned_body(session, planned), "the answer to a plan could not be recorded, so it is a no")

    def ended(self, session: str, end: SessionEnd) -> int:
        """Record how a session ended, and leave a checkpoint after it."""
        number = self._append(ended_body(session, end), "the end of the session could not be recorded")
        self.checkpoint()
        return number

    def checkpoint(self) -> int | None:
        """Record the root of a Merkle tree over all records so far, signed where a key is; answers the record's id.

        None when there is nothing new since the last one.
        """
        from runner.audit.checkpoint import checkpoint  # a Merkle tree, needed once in `EVERY` records

        return checkpoint(self.store, self._signer)

    def rows(
        self,
        *,
        kind: str | tuple[str, ...] = (),
        query: "Query | None" = None,
        first: int | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """Yield records, newest first: of these kinds (all if none is named), with ids up to `first` and above `after`.

        Only the conditions of `query` that the store can evaluate are applied: the caller applies `Query.matches`.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        return map(self._record, self.store.select(Wanted(kinds, query, first, after, limit)))

    def get(self, number: int) -> Record | None:
        """Return the record with this id."""
        return self._known(self.store.get(number))

    def named(self, kind: str, name: str) -> Record | None:
        """Return the newest record of a kind with this name: the session's id for `session` and `ended`, else
        `sha256`."""
        return self._known(self.store.named(kind, name))

    def outcome_of(self, decided: int) -> Record | None:
        """Return the `finished` record of a decision; None when it was denied, still runs, or the program died."""
        return self._known(self.store.outcome_of(decided))

    def cause_of(self, finished: int) -> Record | None:
        """Return the decision whose outcome has this id."""
        return self._known(self.store.cause_of(finished))

    def _append(self, body: dict[str, object], failure: str, notes: Sequence[dict[str, object]] = ()) -> int:
        """Append `body` and, before it, each of its `notes` that the log does not hold yet; all of them or nothing."""
        said = {}
        if self._redact is not None:
            body, lost = cleaned(body, self._redact)
            if lost:
                body["redacted"] = lost
            notes = [cleaned(note, self._redact)[0] for note in notes]
        if notes:
            said = {digest(note): note for note in notes}
            body["facts"] = list(said)
        text = canonical(body)
        with self.store.writing(failure) as writing:
            for name, note in said.items():
                if self.store.named("facts", name) is None:
                    append(writing, facts_body(name, note))
            return writing.add(seal(writing.head.hash, text), text)

    def _known(self, row: Row | None) -> Record | None:
        return self._record(row) if row is not None else None

    def _record(self, row: Row) -> Record:
        from runner.audit.legacy import current  # only readers need this module

        try:
            body = loads(row.body)
            if not isinstance(body, dict):
                raise TypeError("it is no object")
        except (ValueError, TypeError, RecursionError):
            why = f"`{self.store.name}`: record {row.id} is nothing that this program writes"
            raise AuditError(Problem("the audit log cannot be read", why, "run `agent audit verify`")) from None
        return Record(row.id, row.hash, current(body), row.log if self.store.merged else "", row.number)


def _database(url: str, *, write: bool) -> Store:
    try:
        from runner.audit.stores.postgres import PostgresStore
    except ImportError:
        what = "the audit log is in a database, and what talks to one is not installed"
        fix = "install it with: pip install 'ringfence[fleet]'"
        raise AuditError(Problem(what, "it is an extra, which few need", fix)) from None
    return PostgresStore.open(url, write=write)
