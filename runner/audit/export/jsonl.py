"""JSON Lines: the same objects as `agent audit --json`, one a line, for programs."""

import json
from collections.abc import Iterable, Iterator

from runner.audit.deeds import Deed


def lines(deeds: Iterable[Deed]) -> Iterator[str]:
    for deed in deeds:
        outcome = {"id": deed.finished.id, **deed.finished.body} if deed.finished else None
        yield json.dumps({"id": deed.record.id, "hash": deed.record.hash, **deed.record.body, "outcome": outcome})
