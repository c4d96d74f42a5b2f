"""Totals of a session, summed over its runs, for its last record."""

import asyncio
from types import TracebackType

from policy.model.profile import MAIN
from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.log import AuditLog
from runner.audit.records import SessionEnd
from runner.events import Emit, Event, RunEnded
from runner.problems import Exit


class SessionTotals:
    """Observer that sums up the events of a session. The cost is known only if the cost of every run is known."""

    def __init__(self, audit: AuditLog, session: str) -> None:
        self._audit = audit
        self._session = session
        self._cost: float | None = 0.0
        self._last: RunEnded | None = None
        self._turns = 0
        self._usage = dict.fromkeys(("input", "output", "cache_read", "cache_write"), 0)
        self.problem: Problem | None = None  # the reason if the end could not be recorded

    def watch(self, emit: Emit) -> Emit:
        """Return a function that adds each RunEnded to the totals and passes every event to `emit`."""

        def watching(event: Event) -> None:
            if isinstance(event, RunEnded) and event.agent == MAIN:  # its numbers include those of its sub-agents
                self._last = event
                self._turns += event.turns
                self._usage = {name: total + getattr(event.usage, name) for name, total in self._usage.items()}
                known = self._cost is not None and event.cost is not None
                self._cost = (self._cost or 0.0) + (event.cost or 0.0) if known else None
            emit(event)

        return watching

    def record(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the end of the session; an exit callback of an ExitStack. Never raises: a failure is in `problem`, as
        all actions of the session are already in the log.
        """
        if self._last is not None:
            code, reason = self._last.exit, self._last.reason
        elif kind is None:
            code, reason = Exit.DONE, "nothing was asked"
        else:
            interrupted = issubclass(kind, asyncio.CancelledError | KeyboardInterrupt)
            code, reason = (
                (Exit.INTERRUPTED, "stopped by the user") if interrupted else (Exit.FAILED, "ended by an error")
            )
        counts = tuple(self._usage.items())
        try:
            self._audit.ended(self._session, SessionEnd(int(code), reason, self._turns, counts, self._cost))
        except AuditError as failed:
            self.problem = failed.problem
