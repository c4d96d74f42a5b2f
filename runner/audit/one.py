"""One record of the log, by what people call it: its number, `last`, or the session that it is of."""

import re

from runner.audit.deeds import Deed
from runner.audit.log import AuditLog, Record

DECISIONS = ("decided", "refused")


def record_at(log: AuditLog, number: int) -> Record | None:
    found = next(log.rows(first=number, limit=1), None)
    return found if found is not None and found.id == number else None


def deed_of(log: AuditLog, record: Record) -> Deed | None:
    """The decision that `record` is, or is the outcome of; None for any other kind."""
    decided = record.body.get("decided")
    decision = record_at(log, decided) if record.kind == "finished" and isinstance(decided, int) else record
    if decision is None or decision.kind not in DECISIONS:
        return None
    session = next(log.rows(kind="session", session=str(decision.body.get("session")), limit=1), None)
    return Deed(decision, session, log.outcome_of(decision.id))


def record_named(log: AuditLog, word: str) -> Record | None:
    """`12`: that record; `last`: the newest decision; the beginning of a session's name (4 characters at least): the
    record of that session, the newest where several begin so."""
    if word == "last":
        return next(log.rows(kind=DECISIONS, limit=1), None)
    if word.isascii() and word.isdigit() and len(word) < 16 and (found := record_at(log, int(word))) is not None:
        return found
    if not re.fullmatch("[0-9a-f]{4,16}", word):
        return None
    return next((row for row in log.rows(kind="session") if str(row.body.get("session", "")).startswith(word)), None)
