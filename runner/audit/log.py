"""The audit log: append-only, hash-chained records, durable before the action they describe may run.

The chain proves that no record was changed. At the end of a session, and after an outcome at least `EVERY` records
after the last checkpoint, a checkpoint is added: the root of a Merkle tree over all records before it, signed if there
is a key. Without a key, or a head stored elsewhere, there is no proof that the
*end* was not cut off and later records written again. `chain` defines the interface of a store, and the parts that all
stores share.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.profile import MAIN
from policy.model.verdict import Problem
from runner.audit.chain import AuditError, LogStore, Record, RecordRow, Wanted, append, digest, now
from runner.audit.records import Patching, finished_body, started_body
from runner.audit.stores.sqlite import SqliteStore
from runner.state.paths import is_configured, state_dir

if TYPE_CHECKING:
    from runner.audit.query import Query
    from runner.audit.records import (
        Decision,
        Forwarding,
        Ran,
        RecordedPlan,
        RecordedReply,
        Refusal,
        Reverting,
        SessionEnd,
        SessionInfo,
    )
    from runner.audit.signing import Signer
    from runner.config import Settings
    from sandbox.backend import Outcome

FILE = "audit.db"
EVERY = 512  # records after which an outcome causes a checkpoint

Place = Path | str  # path of a file, or URL of a database


class AuditLog:
    """An open log. Each append blocks on purpose until the record is durable, and raises AuditError if that fails.

    `redact` is applied to every text before it is stored, except to those of a record for which `harmless` returns
    True. `harmless` gets all texts of the record in one, and must return True only if `redact` changes none of them.
    `signer` is called only when a checkpoint is due.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        redact: Callable[[str], str] | None = None,
        harmless: Callable[[str], bool] = lambda texts: False,
        signer: "Callable[[], Signer] | None" = None,
    ) -> None:
        self.store = store
        self._redact = redact
        self._harmless = harmless
        self._signer = signer

    @classmethod
    def open(
        cls,
        place: Place,
        *,
        redact: Callable[[str], str] | None = None,
        harmless: Callable[[str], bool] = lambda texts: False,
        signer: "Callable[[], Signer] | None" = None,
    ) -> "AuditLog":
        """Open a file (created with mode 0600) or the database at a URL for appending. Raises AuditError."""
        store = SqliteStore.open(place) if isinstance(place, Path) else _database(place, write=True)
        return cls(store, redact=redact, harmless=harmless, signer=signer)

    @classmethod
    def open_to_read(cls, place: Place, *, any_schema: bool = False) -> "AuditLog":
        """Open an existing log for reading only. A file may be in a read-only folder. Raises AuditError.

        A file whose schema this program did not create is refused, unless `any_schema` is set, to verify the file.
        """
        if isinstance(place, Path):
            return cls(SqliteStore.open_to_read(place, any_schema=any_schema))
        return cls(_database(place, write=False))

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> "AuditLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, info: "SessionInfo", name: str = "") -> str:
        """Record that a session began, and return the session's id, an argument of `decided` and `refused`.

        `name` is an id that the caller derived from the session of another agent. If it is recorded already, nothing is
        added.
        """
        if name and self.named("session", name) is not None:
            return name
        name = name or os.urandom(8).hex()
        self._append(info.body(name), "the session could not be recorded, so nothing was run")
        return name

    def decided(self, session: str, decision: "Decision") -> int:
        """Record a verdict durably and return the number of the record. Raises AuditError: then nothing may run."""
        return self._decided(decision, session)

    def began(self, info: "SessionInfo", name: str, decision: "Decision") -> tuple[str, int]:
        """Do what `session` and then `decided` do, in one transaction. Return the results of both."""
        if name and self.named("session", name) is not None:
            return name, self._decided(decision, name)
        name = name or os.urandom(8).hex()
        return name, self._decided(decision, name, info.body(name))

    def _decided(self, decision: "Decision", session: str, before: dict[str, object] | None = None) -> int:
        notes = decision.noted.parts() if decision.noted is not None else ()
        failure = "the decision could not be recorded, so nothing was run"
        return self._append(decision.body(session), failure, notes, before)

    def facts(self, name: str) -> dict[str, object] | None:
        """Return the facts with this name, which `decided` records refer to; None if they are missing or were
        changed.
        """
        record = self.named("facts", name)
        content = record.body.get("said") if record else None
        return content if isinstance(content, dict) and digest(content) == name else None

    def refused(self, session: str, refusal: "Refusal") -> int:
        """Record a tool call that never became an action (malformed arguments, unknown tool)."""
        return self._append(refusal.body(session), "the refusal could not be recorded")

    def finished(
        self,
        decided: int,
        outcome: "Outcome",
        ran: "Ran | None" = None,
        *,
        agent: str = MAIN,
        parent: str | None = None,
    ) -> int:
        """Record the outcome of the action of `agent` that record `decided` allowed. Return the number of the new
        record.
        """
        body = finished_body(decided, outcome, ran, agent=agent, parent=parent)
        number = self._append(body, "the outcome of an action could not be recorded")
        last = self.store.latest("checkpoint")
        if number - (last.number if last else 0) >= EVERY:  # at the end of an action, so that no action waits for it
            self.checkpoint()
        return number

    def started(self, decision: int, process: str, *, agent: str, terminal: bool) -> int:
        """Record that a process began to stay. Raises AuditError: then the process must be ended.

        Record `decision` allowed the process, whose name in the session is `process`.
        """
        body = started_body(decision, process, agent, terminal=terminal)
        return self._append(body, "the start of a process could not be recorded, so it was ended")

    def applied(self, session: str, changing: "Patching | Reverting") -> int:
        """Record that the user applies a patch, or undoes actions. Raises AuditError: then no patch may be applied."""
        what = "patch" if isinstance(changing, Patching) else "undo"
        return self._append(changing.body(session), f"the {what} could not be recorded, so nothing was changed")

    def forwarded(self, session: str, forwarding: "Forwarding") -> int:
        """Record that the user forwards a port. Raises AuditError: then the port must not be opened."""
        return self._append(forwarding.body(session), "the forward could not be recorded, so it was not opened")

    def planned(self, session: str, planned: "RecordedPlan") -> int:
        """Record the user's answer to a plan. Raises AuditError: then the mode may not change."""
        return self._append(planned.body(session), "the answer to a plan could not be recorded, so it is a refusal")

    def replied(self, session: str, reply: "RecordedReply") -> int:
        """Record the user's answer to a tool server. Raises AuditError: then the server may not get it."""
        return self._append(reply.body(session), "the answer to a tool server could not be recorded")

    def ended(self, session: str, end: "SessionEnd") -> int:
        """Record the end of a session, and add a checkpoint after it."""
        number = self._append(end.body(session), "the end of the session could not be recorded")
        self.checkpoint()
        return number

    def checkpoint(self) -> int | None:
        """Record the root of a Merkle tree over all records so far, signed if there is a key, and return the number of
        the record. Return None if there is no new record since the last checkpoint, or if only the owner of the log
        may add one.
        """
        from runner.audit.checkpoint import checkpoint  # imported here, because few sessions add a checkpoint

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
        """Yield at most `limit` records, newest first: of these kinds (empty: all), with ids up to `first` and above
        `after`. Only the conditions of `query` that the store can evaluate are applied: the caller applies
        `Query.matches`.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        return map(self._record, self.store.select(Wanted(kinds, query, first, after, limit)))

    def get(self, number: int) -> Record | None:
        """Return the record with this id, or None."""
        return self._known(self.store.get(number))

    def named(self, kind: str, name: str) -> Record | None:
        """Return the newest record of a kind with this name, or None. The name is the session's id for `session` and
        `ended`, else the field `sha256`."""
        return self._known(self.store.named(kind, name))

    def outcome_of(self, decided: int) -> Record | None:
        """Return the `finished` record of a decision; None when it was denied, still runs, or the program died."""
        return self._known(self.store.outcome_of(decided))

    def cause_of(self, finished: int) -> Record | None:
        """Return the decision whose outcome is the record with this id, or None."""
        return self._known(self.store.cause_of(finished))

    def _append(
        self,
        body: dict[str, object],
        failure: str,
        notes: Sequence[dict[str, object]] = (),
        before: dict[str, object] | None = None,
    ) -> int:
        """Append `before`, each of the `notes` that the log does not hold yet, then `body`, in one transaction. Return
        the number of the record of `body`.
        """
        named_notes = {}
        body = self._redacted(body)
        if self._redact is not None:
            notes = [note if self._is_harmless(note) else redact_body(note, self._redact)[0] for note in notes]
        if notes:
            named_notes = {digest(note): note for note in notes}
            body["facts"] = list(named_notes)
        earlier = [] if before is None else [self._redacted(before)]
        with self.store.writing(failure) as writing:
            for record in earlier:
                append(writing, record)
            for name, note in named_notes.items():
                if self.store.named("facts", name) is None:
                    append(writing, {"kind": "facts", "time": now(), "sha256": name, "said": note})
            return append(writing, body)

    def _redacted(self, body: dict[str, object]) -> dict[str, object]:
        if self._redact is None or self._is_harmless(body):
            return body
        shown, lost = redact_body(body, self._redact)
        return {**shown, "redacted": lost} if lost else shown

    def _is_harmless(self, body: dict[str, object]) -> bool:
        # JSON escapes no character with which a key begins, so a beginning is found in it as in the text itself.
        return self._harmless(dumps(body))

    def _known(self, row: RecordRow | None) -> Record | None:
        return self._record(row) if row is not None else None

    def _record(self, row: RecordRow) -> Record:
        from runner.audit.legacy import current  # imported here, because writers do not need it

        try:
            body = loads(row.body)
            if not isinstance(body, dict):
                raise TypeError("it is not an object")
        except (ValueError, TypeError, RecursionError):
            why = f"`{self.store.name}`: record {row.id} was not written by this program"
            raise AuditError(Problem("the audit log cannot be read", why, "run `agent audit verify`")) from None
        return Record(row.id, row.hash, current(body), row.log if self.store.merged else "", row.number)


def _database(url: str, *, write: bool) -> LogStore:
    try:
        from runner.audit.stores.postgres import PostgresStore
    except ImportError:
        what = "the audit log is in a database, and its driver is not installed"
        fix = "install it with: pip install 'ringfence[fleet]'"
        raise AuditError(Problem(what, "it is an optional extra", fix)) from None
    return PostgresStore.open(url, write=write)


def redact_body(body: dict[str, object], redact: Callable[[str], str]) -> tuple[dict[str, object], list[str]]:
    """Return `body` without secrets, and the names of the fields that held a secret, such as `action.script`."""
    lost: dict[str, None] = {}

    def clean(text: str, place: str) -> str:
        shown = redact(text)
        if shown != text:
            lost[place] = None
        return shown

    def each(value: object, place: str) -> object:
        match value:
            case str():
                return clean(value, place)
            case list():
                return [each(item, place) for item in value]
            case dict():
                shown = {key: clean(key, place) for key in value}  # a key may be a path that contains a secret
                return {shown[key]: each(item, f"{place}.{shown[key]}") for key, item in value.items()}
            case _:
                return value

    return {key: each(value, key) for key, value in body.items()}, list(lost)


def log_place(settings: "Settings", environ: Mapping[str, str]) -> Place:
    """Return the location of the log for a session with these settings. Raises PlaceError."""
    url = settings.values.get(("audit", "url"))  # read directly, because most starts do not load the table of keys
    return str(url) if url else state_dir(environ) / FILE


def log_exists(place: Place) -> bool:
    """Return True if there may be a log to read. For a database it is True: opening reports a missing log."""
    return not isinstance(place, Path) or place.exists()


def own_log_place(environ: Mapping[str, str]) -> Place:
    """Return the location of this user's log, for commands that only read. Raises ConfigError and PlaceError."""
    from runner.state.workspace import workspace_at

    if not is_configured(workspace_at(os.path.realpath(os.getcwd()), environ), environ):
        return state_dir(environ) / FILE
    from runner.config import load

    return log_place(load(Path.cwd(), environ, unattended=True), environ)


def open_log(
    settings: "Settings", environ: Mapping[str, str], *, redact: Callable[[str], str] | None = None
) -> AuditLog:
    """Open the log of these settings for appending, with redaction and, if `audit.sign` is set, with signatures.

    `redact` replaces the default redaction, for a session that knows more secrets. Raises AuditError or PlaceError;
    then no action may run.
    """
    from runner.secrets.redactor import Redactor

    signer: Callable[[], Signer] | None = None
    if settings.values.get(("audit", "sign")) is True:
        from runner.audit.signing import required_signer  # imported here, because most logs are not signed

        signer = required_signer

    # The command line may contain a key, for example if the caller's shell expanded a variable.
    own = Redactor(live=True, shapes=True)
    if redact is not None:
        return AuditLog.open(log_place(settings, environ), redact=redact, signer=signer)
    return AuditLog.open(log_place(settings, environ), redact=own.text, harmless=own.is_harmless, signer=signer)
