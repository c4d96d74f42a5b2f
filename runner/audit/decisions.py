"""Decisions with their sessions and outcomes, as every reader of the log iterates over them."""

import re
from collections.abc import Iterator

from policy.model.frozen import dataclass
from runner.audit.chain import Record
from runner.audit.log import AuditLog
from runner.audit.query import Query

DECISIONS = ("decided", "refused", "applied", "planned")  # the kinds of record that say what was to be done
SESSIONS = 256  # that are held at a time: a log may have as many of them as it has decisions


@dataclass(frozen=True, slots=True)
class DecisionTrail:
    """A decision together with its session and its outcome.

    Attributes:
        record: the decision; its kind is one of DECISIONS
        session: the session's record; None in a log whose beginning was pruned
        finished: the outcome; None when nothing ran, when the action still runs, or when the program died
    """

    record: Record
    session: Record | None
    finished: Record | None


def deeds(log: AuditLog, query: Query | None = None, *, limit: int | None = None) -> Iterator[DecisionTrail]:
    """Yield the decisions that match `query`, newest first, at most `limit`."""
    wanted = query or Query()
    sessions: dict[str, Record | None] = {}
    left = limit
    for record in log.rows(kind=DECISIONS, query=wanted):
        if left == 0:
            return
        name = str(record.body.get("session", ""))
        if name not in sessions:
            if len(sessions) >= SESSIONS:
                sessions.clear()
            sessions[name] = log.named("session", name)
        session = sessions[name]
        finished = log.outcome_of(record.id) if record.body.get("verdict") != "deny" else None  # nothing ran
        if wanted.matches(record.body, session.body if session else {}, finished.body if finished else {}):
            left = None if left is None else left - 1
            yield DecisionTrail(record, session, finished)


def trail_of(log: AuditLog, record: Record) -> DecisionTrail | None:
    """Return the decision that `record` is, or whose outcome `record` is; None for any other kind of record."""
    decision = log.cause_of(record.id) if record.kind == "finished" else record
    if decision is None or decision.kind not in DECISIONS:
        return None
    session = log.named("session", str(decision.body.get("session")))
    return DecisionTrail(decision, session, log.outcome_of(decision.id))


def record_named(log: AuditLog, word: str) -> Record | None:
    """Return the record with this name, or None.

    `12` is the record with that number; `last` the newest decision; the first 4 to 16 characters of a session's id are
    the record of that session, and of the newest one when several ids begin like that.
    """
    if word == "last":
        return next(log.rows(kind=DECISIONS, limit=1), None)
    if word.isascii() and word.isdigit() and len(word) < 16 and (found := log.get(int(word))) is not None:
        return found
    if not re.fullmatch("[0-9a-f]{4,16}", word):
        return None
    return next((row for row in log.rows(kind="session") if str(row.body.get("session", "")).startswith(word)), None)
