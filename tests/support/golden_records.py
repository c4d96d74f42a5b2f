"""The records of the golden files, and the comparison of a text with its golden file."""

import json
import os

from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail
from tests.support.places import TESTS

GOLDEN = TESTS / "golden"


def records() -> list[Record]:
    """A few real records, with a time, a folder and a session of their own: some allowed, some asked, one cut."""
    lines = (GOLDEN / "audit_records.jsonl").read_text("utf-8").splitlines()
    return [Record(**json.loads(line)) for line in lines]


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
