"""One record of the log, by what people call it: its number, `last`, or the session that it is of."""

import re

from runner.audit.chain import Record
from runner.audit.decisions import DECISIONS, Deed
from runner.audit.log import AuditLog


def deed_of(log: AuditLog, record: Record) -> Deed | None:
    """The decision that `record` is, or is the outcome of; None for any other kind."""
    decision = log.cause_of(record.id) if record.kind == "finished" else record
    if decision is None or decision.kind not in DECISIONS:
        return None
    session = log.named("session", str(decision.body.get("session")))
    return Deed(decision, session, log.outcome_of(decision.id))


def record_named(log: AuditLog, word: str) -> Record | None:
    """`12`: that record; `last`: the newest decision; the beginning of a session's name (4 characters at least): the
    record of that session, the newest where several begin so."""
    if word == "last":
        return next(log.rows(kind=DECISIONS, limit=1), None)
    if word.isascii() and word.isdigit() and len(word) < 16 and (found := log.get(int(word))) is not None:
        return found
    if not re.fullmatch("[0-9a-f]{4,16}", word):
        return None
    return next((row for row in log.rows(kind="session") if str(row.body.get("session", "")).startswith(word)), None)
