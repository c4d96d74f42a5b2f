"""Follower of a log: its decisions and outcomes as they are written, also while the file is replaced or pruned."""

import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

from runner.audit.chain import AuditError, Record
from runner.audit.decisions import DECISIONS, DecisionTrail, deeds, trail_of
from runner.audit.log import AuditLog, Place
from runner.audit.query import Query

POLL = 0.25  # seconds between two checks
_PATIENCE = 40  # checks of a file that cannot be read (it may be incomplete yet) before the failure is an error

TailEvent = DecisionTrail | Record  # a decision, or the `finished` record of an earlier decision


class Follower:
    """Reader of new records, which continues after pruning and starts from the beginning if another log replaces the
    file.
    """

    def __init__(self, path: Place, query: Query) -> None:
        self._path, self._query = path, query
        self._seen: tuple[int, str] | None = None  # the newest record that was read, and its hash
        self._running: set[int] = set()  # decisions that were returned, without an outcome so far
        self._state: object = None

    def start(self, count: int) -> list[DecisionTrail]:
        """Return the newest `count` decisions, after which `more` continues. The list is empty while there is no
        log."""
        self._state = self._current_state()
        if self._state is None:
            return []
        with AuditLog.open_to_read(self._path) as log:
            newest = next(log.rows(limit=1), None)
            self._seen = (newest.id, newest.hash) if newest else None
            newest_deeds = deeds(log, self._query, limit=count) if count else ()
            shown = [deed for deed in newest_deeds if newest is not None and deed.record.id <= newest.id][::-1]
        self._running = {deed.record.id for deed in shown if deed.finished is None}
        return shown

    def more(self) -> list[TailEvent]:
        """Return the events since the last call, oldest first. Raises AuditError if the file is not a log."""
        state = self._current_state()
        events: list[TailEvent] = []
        if state != self._state and state is not None:
            with AuditLog.open_to_read(self._path) as log:
                events += self._events(log)
        self._state = state
        return events

    def _events(self, log: AuditLog) -> Iterator[TailEvent]:
        newest = next(log.rows(limit=1), None)
        if newest is None:
            return
        if self._seen is not None and not self._still_holds(log, newest):
            self._seen, self._running = None, set()
        since = self._seen[0] if self._seen else 0
        fresh = list(log.rows(kind=(*DECISIONS, "finished"), first=newest.id, after=since))
        for record in reversed(fresh):
            if record.kind == "finished":
                decided = record.body.get("decided")
                if isinstance(decided, int) and decided in self._running:
                    self._running.discard(decided)
                    yield record
                continue
            deed = trail_of(log, record)
            if deed is None or not self._query.matches(deed.body, deed.start, deed.outcome):
                continue
            yield DecisionTrail(deed.record, deed.session, None)
            self._running.add(record.id)
        self._seen = (newest.id, newest.hash)

    def _still_holds(self, log: AuditLog, newest: Record) -> bool:
        """Return True if the last record that was read is still in the log, or was pruned from it."""
        number, sealed = self._seen or (0, "")
        record = log.get(number)
        return newest.id >= number and (record is None or record.hash == sealed)

    def _current_state(self) -> object:
        """Return a value that changes when the log changes: the state of its file and write-ahead file. None without a
        log.

        A database has no such state, so the value changes every second.
        """
        if not isinstance(self._path, Path):
            return int(time.monotonic())
        state: list[tuple[int, ...] | None] = []
        for path in (self._path, self._path.with_name(f"{self._path.name}-wal")):
            try:
                status = os.stat(path)
                state.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
            except FileNotFoundError:
                state.append(None)
        return state if state[0] else None


def follow(follower: Follower) -> Iterator[TailEvent]:
    """Yield new decisions and outcomes forever. Raises BrokenPipeError when the reader of standard output is gone, and
    AuditError if the log stays unreadable."""
    failures = 0
    while True:
        try:
            yield from follower.more()
            failures = 0
        except AuditError:
            failures += 1
            if failures > _PATIENCE:
                raise
        if _reader_is_gone():
            raise BrokenPipeError
        time.sleep(POLL)


def _reader_is_gone() -> bool:
    """Return True if the reader of standard output is gone.

    SOURCE: poll(2): POLLERR is set for the writing end of a pipe whose reading end was closed.
    """
    poll = select.poll()
    poll.register(1, 0)
    return any(state & select.POLLERR for _, state in poll.poll(0))
