"""The audit log: append-only, hash-chained records in SQLite, durable before the action they describe may run.

Each record is canonical JSON (ASCII, sorted keys, no spaces); `hash = sha256(previous hash || canonical bytes)`. The
chain is the proof; the triggers that refuse UPDATE and DELETE are only a fence against accidents. Without a key kept
elsewhere nobody can prove that the *end* was not cut off and the head rewritten: `verify(expect=...)` takes a head
noted earlier for that.
"""

import contextlib
import hashlib
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from policy.record import dataclass
from policy.verdict import Problem
from runner.audit.records import (
    Decision,
    Ran,
    Refusal,
    SessionEnd,
    SessionInfo,
    decided_body,
    ended_body,
    facts_body,
    finished_body,
    refused_body,
    session_body,
)
from sandbox.backend import Outcome

BUSY_SECONDS = 15.0
_ZERO = "0" * 64
_INDEX = 1 << 16  # bytes; SOURCE: sqlite.org/walformat.html, the index grows by 32 KiB, and the log needs a page

# As the index by_facts has it.
_FACTS = "SELECT body FROM records WHERE kind = 'facts' AND json_extract(body, '$.sha256') = ? LIMIT 1"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    id      INTEGER PRIMARY KEY,
    body    TEXT NOT NULL,
    hash    TEXT NOT NULL,
    kind    TEXT GENERATED ALWAYS AS (json_extract(body, '$.kind')) VIRTUAL,
    verdict TEXT GENERATED ALWAYS AS (json_extract(body, '$.verdict')) VIRTUAL,
    decided INTEGER GENERATED ALWAYS AS (json_extract(body, '$.decided')) VIRTUAL
);
CREATE INDEX IF NOT EXISTS outcome_of ON records (decided) WHERE decided IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_verdict ON records (verdict) WHERE verdict IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_facts ON records (json_extract(body, '$.sha256')) WHERE kind = 'facts';
CREATE TABLE IF NOT EXISTS head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
"""


class AuditError(Exception):
    """The log could not be opened, read or written. When writing failed, the action must not run."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Record:
    """One sealed record. `body` is its JSON object; `id` counts from 1 without gaps."""

    id: int
    hash: str
    body: dict[str, object]

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))


@dataclass(frozen=True, slots=True)
class Sealed:
    """The whole chain holds. Note `head` elsewhere to be able to prove later that nothing was cut off."""

    count: int
    hash: str

    @property
    def head(self) -> str:
        return f"{self.count}:{self.hash}"


@dataclass(frozen=True, slots=True)
class Broken:
    """`id` is the first record that does not hold; `why` says what is wrong with it."""

    id: int
    why: str


class AuditLog:
    """One open log. Every append blocks until the record is on the disk, on purpose."""

    def __init__(self, database: sqlite3.Connection, path: Path, redact: Callable[[str], str] | None) -> None:
        self._database = database
        self._redact = redact
        self.path = path

    @classmethod
    def open(cls, path: Path, *, redact: Callable[[str], str] | None = None) -> "AuditLog":
        """Open for appending; a new file is 0600. `redact` sees every string before it is kept."""
        with _speaking(path, "the audit log cannot be opened"):
            _claim(path)
            database = _connect(path, "rw")
            try:
                _prepare(database)
            except BaseException:
                database.close()
                raise
        return cls(database, path, redact)

    @classmethod
    def open_to_read(cls, path: Path) -> "AuditLog":
        """Open an existing log for reading only; works on a copy in a read-only folder too."""
        with _speaking(path, "the audit log cannot be read"):
            if not path.exists():
                raise FileNotFoundError("there is no such file; it is made by the first `agent exec` or `agent run`")
            # A log whose write-ahead file is gone is complete in one file: SQLite may then skip its side files.
            complete = not path.with_name(path.name + "-wal").exists()
            database = _connect(path, "ro&immutable=1" if complete and not os.access(path.parent, os.W_OK) else "ro")
        return cls(database, path, None)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> "AuditLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, info: SessionInfo) -> str:
        """Record that a session began; answers its id, which `decided` and `refused` want."""
        name = os.urandom(8).hex()
        self._append(session_body(name, info), "the session could not be recorded, so nothing was run")
        return name

    def decided(self, session: str, decision: Decision) -> int:
        """Record a verdict, durable before return; answers the record's id. Raises AuditError: then nothing may run."""
        notes = decision.noted.parts() if decision.noted is not None else ()
        failure = "the decision could not be recorded, so nothing was run"
        return self._append(decided_body(session, decision), failure, notes)

    def facts(self, digest: str) -> dict[str, object] | None:
        """What a `decided` record names as one of its `facts`; None when the log does not hold it, or not as it was."""
        with _speaking(self.path, "the audit log cannot be read"):
            found = self._database.execute(_FACTS, (digest,)).fetchone()
        said = json.loads(found[0]).get("said") if found else None
        return said if isinstance(said, dict) and _digest(said) == digest else None

    def refused(self, session: str, refusal: Refusal) -> int:
        """Record a tool call that never became an action (malformed arguments, unknown tool)."""
        return self._append(refused_body(session, refusal), "the refusal could not be recorded")

    def finished(self, decided: int, outcome: Outcome, ran: Ran | None = None) -> int:
        """Record what became of the action that record `decided` allowed."""
        return self._append(finished_body(decided, outcome, ran), "the outcome of an action could not be recorded")

    def ended(self, session: str, end: SessionEnd) -> int:
        """Record how a session ended."""
        return self._append(ended_body(session, end), "the end of the session could not be recorded")

    def rows(
        self,
        *,
        kind: str | tuple[str, ...] = (),
        denied: bool = False,
        session: str | None = None,
        first: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """Records, newest first: of these kinds (none named: all), from the id `first` downwards, `limit` at most.

        `denied` keeps the verdict `deny`, which malformed tool calls carry too.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        where: list[str] = []
        values: list[str | int] = [*kinds]
        if kinds:
            where.append(f"kind IN ({', '.join('?' * len(kinds))})")
        if denied:
            where.append("verdict = 'deny'")
        if session is not None:
            where.append("json_extract(body, '$.session') = ?")
            values.append(session)
        if first is not None:
            where.append("id <= ?")
            values.append(first)
        clause = f" WHERE {' AND '.join(where)}" if where else ""
        query = f"SELECT id, body, hash FROM records{clause} ORDER BY id DESC LIMIT ?"  # noqa: S608  # constants only
        with _speaking(self.path, "the audit log cannot be read"):
            for number, body, digest in self._database.execute(query, (*values, -1 if limit is None else limit)):
                yield Record(number, digest, json.loads(body))

    def outcome_of(self, decided: int) -> Record | None:
        """The `finished` record of a decision, or None when it was denied, still runs, or the program died."""
        query = "SELECT id, body, hash FROM records WHERE decided = ? ORDER BY id LIMIT 1"
        with _speaking(self.path, "the audit log cannot be read"):
            found = self._database.execute(query, (decided,)).fetchone()
            return Record(found[0], found[2], json.loads(found[1])) if found else None

    def verify(self, *, expect: str | None = None) -> Sealed | Broken:
        """Recompute the whole chain. `expect` is a head (`COUNT:HASH`) noted earlier, which must still lie on it."""
        number, digest = 0, _ZERO
        wanted, _, wanted_hash = (expect or "").partition(":")
        try:
            with self._reading():
                for found, body, sealed in self._database.execute("SELECT id, body, hash FROM records ORDER BY id"):
                    number += 1
                    if found != number:
                        return Broken(number, f"record {number} is missing; the next one is {found}")
                    if not isinstance(body, str):
                        return Broken(number, "its content is not text")
                    digest = _seal(digest, body)
                    if sealed != digest:
                        return Broken(number, "its content, its place or its hash was changed after it was written")
                    if expect and wanted == str(number) and wanted_hash != digest:
                        return Broken(number, "it is not the record that was noted: the log was written anew")
                head = self._database.execute("SELECT id, hash FROM head").fetchone() or (0, _ZERO)
        except sqlite3.DatabaseError as error:
            return Broken(number + 1, f"the file is damaged from there on ({error})")
        if head[0] > number:
            return Broken(number + 1, f"record {number + 1} is missing: records were cut off the end")
        if tuple(head) != (number, digest):
            return Broken(max(number, 1), "the head of the log does not name it as the last record")
        if expect and (not wanted.isdigit() or int(wanted) > number):
            return Broken(number + 1, f"the log ends before the noted record {wanted}")
        return Sealed(number, digest)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """One snapshot for several statements, so that a writer in between does not look like tampering."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("ROLLBACK")

    def _append(self, body: dict[str, object], failure: str, notes: Sequence[dict[str, object]] = ()) -> int:
        """Append `body` and, before it, each of its `notes` that the log does not hold yet; all of them or nothing."""
        said = {}
        if self._redact is not None:
            body, lost = _cleaned(body, self._redact)
            if lost:
                body["redacted"] = lost
            notes = [_cleaned(note, self._redact)[0] for note in notes]
        if notes:
            said = {_digest(note): note for note in notes}
            body["facts"] = list(said)
        text = canonical(body)
        with _speaking(self.path, failure):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                texts = [canonical(facts_body(name, note)) for name, note in said.items() if not self._holds(name)]
                # The head, not the last row: when rows were cut off, the next id leaves a gap that `verify` names.
                last, sealed = self._database.execute("SELECT id, hash FROM head").fetchone() or (0, _ZERO)
                for each in (*texts, text):
                    last, sealed = last + 1, _seal(sealed, each)
                    self._database.execute(
                        "INSERT INTO records (id, body, hash) VALUES (?, ?, ?)", (last, each, sealed)
                    )
                self._database.execute("INSERT OR REPLACE INTO head (one, id, hash) VALUES (1, ?, ?)", (last, sealed))
                self._database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # SQLite already rolled back when the disk is full
                    self._database.execute("ROLLBACK")
                raise
        return int(last)

    def _holds(self, facts: str) -> bool:
        return self._database.execute(_FACTS, (facts,)).fetchone() is not None


def canonical(body: dict[str, object]) -> str:
    """The one spelling of a record: ASCII (lone surrogates and NULs are escapes), sorted keys, no spaces, no NaN."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _seal(previous: str, text: str) -> str:
    return hashlib.sha256(bytes.fromhex(previous) + text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(said: dict[str, object]) -> str:
    return hashlib.sha256(canonical(said).encode("ascii")).hexdigest()


def _cleaned(body: dict[str, object], redact: Callable[[str], str]) -> tuple[dict[str, object], list[str]]:
    """`body` without secrets, and the names of the fields that held one, such as `action.script`."""
    lost: dict[str, None] = {}

    def clean(text: str, place: str) -> str:
        shown = redact(text)
        if shown != text:
            lost[place] = None
        return shown

    def cleaned(value: object, place: str) -> object:
        match value:
            case str():
                return clean(value, place)
            case list():
                return [cleaned(item, place) for item in value]
            case dict():
                shown = {key: clean(key, place) for key in value}  # a path may be a key, and hold one
                return {shown[key]: cleaned(item, f"{place}.{shown[key]}") for key, item in value.items()}
            case _:
                return value

    return {key: cleaned(value, key) for key, value in body.items()}, list(lost)


def _claim(path: Path) -> None:
    """Make the file ours and private, or refuse: a symlink or another user's file could leak or lose records."""
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


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Two slashes at the start (HOME=/) would make the first name a host.
    quoted = ("/" + str(path.absolute()).lstrip("/")).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file:{quoted}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _prepare(database: sqlite3.Connection) -> None:
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            (journal,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # Two first users of a new file: SQLite does not call its busy handler for this switch.
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
    if journal != "wal":
        raise sqlite3.OperationalError(f"the file system does not allow a write-ahead log (got `{journal}`)")
    database.execute("PRAGMA synchronous = FULL")
    if database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'by_facts'").fetchone() == (0,):
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")


@contextlib.contextmanager
def _speaking(path: Path, what: str) -> Iterator[None]:
    """Turn what SQLite and the kernel say into a Problem."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()
        if "i/o" in why and _full(path.parent):
            why = "the disk is full"  # all that SQLite says when the index beside the log finds no room
        raise AuditError(Problem(what=what, why=f"`{path}`: {why}", fix=_fix(path, why))) from error


def _full(folder: Path) -> bool:
    try:
        free = os.statvfs(folder)
    except OSError:
        return False  # what SQLite said stands
    return free.f_bavail * free.f_frsize < _INDEX


def _fix(path: Path, why: str) -> str:
    if "full" in why or "space" in why or "large" in why:
        return "free some disk space, or set RINGFENCE_STATE_DIR to a folder on another disk"
    if "malformed" in why or "not a database" in why:
        return f"run `agent audit verify`; to go on with a new log, move this one aside: mv '{path}' '{path}.damaged'"
    if "no such file" in why:
        return "run something first, or set RINGFENCE_STATE_DIR to the folder that holds the log"
    return f"check who owns `{path.parent}` and that you may write there, or set RINGFENCE_STATE_DIR to another folder"
