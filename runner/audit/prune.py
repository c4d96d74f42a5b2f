"""Pruning: permanent removal of the oldest records, such that the remaining records can still be verified.

Only a beginning of the chain is removed, and only complete sessions that ended. A tombstone replaces the removed
records: the number and hash of the last one, the Merkle root, the peaks from which later roots are computed, the user
who pruned, and the time. The tombstone is signed if there is a key.
"""

import os
from collections.abc import Callable
from json import loads
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner import VERSION
from runner.audit.chain import AuditError, LogStore, Wanted, append, convert_invalid_values, now
from runner.audit.checkpoint import tree_over
from runner.audit.log import AuditLog

if TYPE_CHECKING:
    from runner.audit.signing import Signer


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Records to remove: from `first` to `last`, and the number of their sessions. Empty if `last` is less than
    `first`.
    """

    first: int
    last: int
    sessions: int
    before: str

    @property
    def count(self) -> int:
        return max(self.last - self.first + 1, 0)


def plan(store: LogStore, before: str, silent: str) -> PrunePlan:
    """Return the records before the time `before` that may be removed. Raises AuditError.

    A session without a recorded end (the program was killed) counts as ended if it wrote nothing since `silent`.
    """
    if store.merged:
        why = "it was merged from several logs, so no tombstone can be added"
        raise AuditError(Problem("the log cannot be pruned", why, "prune each log, and merge them again"))
    with convert_invalid_values("the log cannot be pruned"):
        first, last = store.older(before)
        spans = sorted(store.spans(last), key=lambda span: -span.last)
    last = min([last, *(span.first - 1 for span in spans if not span.ended and span.time >= silent)])
    for span in spans:  # the latest end first: a session that continues after `last` is kept from its first record on
        if span.first <= last < span.last:
            last = span.first - 1
    return PrunePlan(first, last, sum(span.first <= last for span in spans), before)


def prune(log: AuditLog, planned: PrunePlan, signer: "Callable[[], Signer | None]") -> int:
    """Remove the planned records, add a tombstone in one transaction, and return the number of the tombstone. Facts
    that later decisions refer to are recorded again after the tombstone.
    """
    store, last = log.store, planned.last
    signs = signer()  # may ask a keyring, so it is done before the log is locked
    with convert_invalid_values("the log cannot be pruned"):
        ends = _ends(store, planned)
        tree = tree_over(store, last)
        seen, needed = _needed(store, last)
    with store.writing("the log could not be pruned, and no record was removed") as writing:
        _ends(store, planned)  # again, because another process may have pruned meanwhile
        needed |= _needed(store, seen)[1]
        kept = [row.body for name in sorted(needed) if (row := store.named("facts", name)) and row.number <= last]
        body: dict[str, object] = {"kind": "tombstone", "time": now(), "log": writing.head.log}
        body |= {"first": planned.first, "last": last, "sessions": planned.sessions, "before": planned.before}
        body |= {"hash": ends[-1], "root": tree.root, "peaks": tree.peak_texts}
        body |= {"user": os.geteuid(), "program": f"ringfence {VERSION}"}
        number = append(writing, signs.signed(body) if signs is not None else body)
        for text in kept:
            append(writing, loads(text))
        writing.remove(last)
    return number


def _ends(store: LogStore, planned: PrunePlan) -> list[str]:
    """Return the hashes of the first and the last record to remove. Raises AuditError if one was removed already."""
    found = [*store.hashes(planned.first, planned.first), *store.hashes(planned.last, planned.last)]
    if len(found) != 2:
        why = "another process pruned it meanwhile"
        raise AuditError(Problem("the log was not pruned", why, "start again with --dry-run"))
    return found


def _needed(store: LogStore, after: int) -> tuple[int, set[str]]:
    """Return the id of the last decision after record `after` (`after` if there is none), and the names of the facts
    that the decisions after `after` refer to."""
    last, names = after, set[str]()
    for row in store.select(Wanted(("decided",), after=after)):
        last = max(last, row.id)
        names.update(map(str, loads(row.body).get("facts") or ()))
    return last, names
