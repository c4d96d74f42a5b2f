"""Stream of a session's decisions to a collector during the session. It never delays the log.

A thread follows the log through its own connection, so no action waits for a collector. Records that could not be sent
are in the log, and the text that `close` returns has the command that sends them later.
"""

import threading
from collections.abc import Callable

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.decisions import DECISIONS, DecisionTrail
from runner.audit.export.otlp import BATCH, Collector, Sent, Unsent, endpoint, in_clear
from runner.audit.log import AuditLog, Place
from runner.audit.query import Query
from runner.problems import Stopped
from runner.text.phrases import many

EVERY = 2.0  # seconds between two reads of the log
PATIENCE = deadline(10.0)  # seconds that the end of a session waits until the collector has accepted the rest
SHORT = deadline(2.0)  # seconds instead of PATIENCE if the collector failed before
_AGAIN = 30.0  # seconds until the next attempt after the collector failed


class OtlpStream:
    """Sender of the decisions of `session` to the collector at `address`, from its creation on.

    Each decision is sent when its outcome is known, or at the end. `close` must be called once.
    """

    def __init__(self, log: Place, session: str, address: str) -> None:
        self._log, self._session, self._address = log, session, address
        self._closing = threading.Event()
        self._collector: Collector | None = None
        self._problem: Problem | None = None
        self._sent = Sent(0, 0)
        self._waiting: list[int] = []  # decisions that were seen and not sent, oldest first
        self._last = 0  # number of the newest decision that was seen
        self._failing = False  # the last attempt failed
        self._broken = False  # the thread ended before the session
        self._thread = threading.Thread(target=self._follow, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> str | None:
        """Send the rest and wait for a limited time. Return one line about what was not sent, or None."""
        self._closing.set()
        self._thread.join(SHORT if self._failing else PATIENCE)
        if self._thread.is_alive():
            if self._collector is not None:
                self._collector.close()  # ends its wait before the next attempt; the thread ends with the process
            return self._unsent("it did not answer in time")
        return self._unsent("sending ended before the session") if self._waiting or self._broken else None

    def _unsent(self, otherwise: str) -> str:
        why = self._problem.why if self._problem else otherwise
        later = f"agent audit export --format otlp --session {self._session} --endpoint {self._address}"
        number = len(self._waiting)
        what = f"{many(number, 'decision')} of this session" if number else "a part of this session"
        lost = f"{what} did not reach the collector at {self._address}: {why}"
        return f"{lost}; the log contains them, and `{later}` sends them"

    def _follow(self) -> None:
        try:
            with AuditLog.open_to_read(self._log) as log:
                self._collector = Collector(self._address)  # in this thread, because loading the SDK takes a while
                pause = EVERY
                while not self._closing.wait(pause):
                    self._failing = not self._look(log, self._collector, whole=False)
                    pause = _AGAIN if self._failing else EVERY
                self._look(log, self._collector, whole=True)
        except (AuditError, Stopped) as error:  # of the log or the SDK: the session continues without the stream
            self._problem, self._broken = error.problem, True
        finally:
            if self._collector is not None:
                self._collector.close()

    def _look(self, log: AuditLog, collector: Collector, *, whole: bool) -> bool:
        """Send complete decisions; with `whole` also those without an outcome. Return False when the collector
        failed."""
        rows = log.rows(kind=DECISIONS, query=Query(sessions=(self._session,)), after=self._last)
        seen = sorted(record.id for record in rows if record.body.get("session") == self._session)
        if seen:
            self._waiting += seen
            self._last = seen[-1]
        beginning = log.named("session", self._session)
        batch: list[DecisionTrail] = []
        for number in self._waiting[:BATCH] if not whole else self._waiting:
            record, finished = log.get(number), log.outcome_of(number)
            if record and (whole or finished is not None or record.body.get("verdict") == "deny"):
                batch.append(DecisionTrail(record, beginning, finished))
        for first in range(0, len(batch), BATCH):
            part = batch[first : first + BATCH]
            try:
                self._sent = collector.take(part, self._sent)
            except Unsent as error:
                self._problem = error.problem
                return False
            sent = {deed.record.id for deed in part}
            self._waiting = [number for number in self._waiting if number not in sent]
        return True


def start_stream(log: Place, session: str, address: str) -> tuple[Callable[[], str | None], str | None]:
    """Start a stream to `address`, the value of `audit.otlp`. Return its method `close`, and a notice for the user if
    the data is not encrypted, else None. Raise a usage error for an invalid address.
    """
    whole = endpoint(address, {})
    clear = f"the records of this session go to {whole} unencrypted; use https" if in_clear(whole) else None
    return OtlpStream(log, session, whole).close, clear
