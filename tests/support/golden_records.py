"""The records of the golden files, and the comparison of a text with its golden file."""

import json
import os
from dataclasses import replace

from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail
from runner.audit.legacy import current
from tests.support.places import TESTS

GOLDEN = TESTS / "golden"


def records() -> list[Record]:
    """Return a few real records of an earlier version, read with the names of today, as the log reads them."""
    lines = (GOLDEN / "audit_records.jsonl").read_text("utf-8").splitlines()
    found = [Record(**json.loads(line)) for line in lines]
    return [replace(record, body=current(record.body)) for record in found]


def all_deeds() -> list[DecisionTrail]:
    """Return all decisions in the order of `deeds`: newest first."""
    found = records()
    finished = {record.body["decided"]: record for record in found if record.kind == "finished"}
    session = next(record for record in found if record.kind == "session")
    decisions = [record for record in found if record.kind in ("decided", "refused")]
    return [DecisionTrail(record, session, finished.get(record.id)) for record in reversed(decisions)]


def golden(name: str, shown: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown, "utf-8")
    assert shown == path.read_text("utf-8"), f"UPDATE_GOLDEN=1 writes {name} anew"
