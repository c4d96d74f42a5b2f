"""The newest decisions of the record for the page, through the code of `agent audit list --json`."""

import json
from collections.abc import Iterator

from runner.audit.chain import AuditError
from runner.audit.decisions import deeds
from runner.audit.list_view import action_line, decision_json
from runner.audit.log import AuditLog, Place, log_exists
from runner.audit.query import Query
from runner.frontends.remote.shown import shown

MOST = 300  # decisions of one answer
# The fields of a decision that the page shows.
_FIELDS = (
    "id", "time", "session", "verdict", "tool", "tiers", "because", "cell", "answer", "problem", "outcome", "agent",
)  # fmt: skip


def recent_decisions(place: Place, query: Query, limit: int) -> list[object]:
    """Return at most `limit` decisions that match `query`, newest first. Raise AuditError if the log cannot be read."""
    return list(_decisions(place, query, min(limit, MOST))) if log_exists(place) else []


def _decisions(place: Place, query: Query, limit: int) -> Iterator[object]:
    with AuditLog.open_to_read(place) as log:
        for deed in deeds(log, query, limit=limit):
            found = json.loads(decision_json(deed))
            row = {name: found.get(name) for name in _FIELDS}
            yield shown({**row, "line": action_line(deed)})


__all__ = ["AuditError", "recent_decisions"]
