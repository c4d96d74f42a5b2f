"""`verify` names the first record that does not hold, whatever was done to the log."""

from pathlib import Path

import pytest

from policy.verdict import Problem
from runner.audit.log import AuditLog, Broken, Sealed
from runner.audit.records import Refusal
from tests.audit_records import fill, unfenced

TAMPERING = [
    ("UPDATE records SET body = replace(body, 'echo 2', 'echo 9') WHERE id = 6", 6, "a changed field"),
    ("UPDATE records SET body = body || ' ' WHERE id = 3", 3, "a byte that changes no field"),
    ("UPDATE records SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE id = 4", 4, "a changed hash"),
    ("DELETE FROM records WHERE id = 5", 5, "a row taken out"),
    ("DELETE FROM records WHERE id = 1", 1, "the first row taken out"),
    ("DELETE FROM records WHERE id >= 9", 9, "the end cut off"),
    ("DELETE FROM records", 1, "everything cut off"),
    ("UPDATE records SET id = 99 WHERE id = 11", 11, "the last row moved"),
    (
        "UPDATE records SET id = -1 WHERE id = 4; UPDATE records SET id = 4 WHERE id = 6;"
        "UPDATE records SET id = 6 WHERE id = -1",
        4,
        "two rows swapped",
    ),
    ("INSERT INTO records (id, body, hash) SELECT 12, body, hash FROM records WHERE id = 11", 12, "a row put in"),
    ("UPDATE records SET body = CAST(body AS BLOB) WHERE id = 2", 2, "the type of a field"),
    ("UPDATE logs SET hash = '00'", 11, "the head alone"),
    ("DELETE FROM logs", 11, "no head"),
]


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("statement", "first", "why"), TAMPERING, ids=[row[2] for row in TAMPERING])
def test_tampering_is_named(tmp_path: Path, statement: str, first: int, why: str) -> None:
    path = tmp_path / "audit.db"
    fill(path)
    with AuditLog.open_to_read(path) as log:
        assert isinstance(log.verify(), Sealed)
    unfenced(path, statement)
    with AuditLog.open_to_read(path) as log:
        result = log.verify()
    assert isinstance(result, Broken), why
    assert result.id == first, result.why


@pytest.mark.threat("T25")
def test_a_log_written_anew_is_found_by_a_head_noted_earlier(tmp_path: Path) -> None:
    path, other = tmp_path / "audit.db", tmp_path / "other.db"
    fill(path, 3)
    fill(other, 4)
    with AuditLog.open(path) as log:
        noted = log.verify()
        assert isinstance(noted, Sealed)
        log.refused("s", Refusal("bash", "{", Problem("a", "b", "c")))
        assert isinstance(log.verify(expect=noted.head), Sealed), "a longer log still holds the noted head"
        assert log.verify(expect=f"99:{noted.chains[0].hash}") == Broken(9, "the log ends before the noted record 99")
    with AuditLog.open_to_read(other) as log:
        assert isinstance(log.verify(), Sealed)
        result = log.verify(expect=noted.head)
        assert isinstance(result, Broken)
        assert result.id == noted.count


@pytest.mark.threat("T25")
def test_records_added_after_a_cut_leave_the_gap_visible(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path)
    unfenced(path, "DELETE FROM records WHERE id > 8")
    with AuditLog.open(path) as log:
        log.refused("s", Refusal("bash", "{", Problem("a", "b", "c")))
        assert log.verify() == Broken(9, "record 9 is missing; the next one is 12")


def test_a_damaged_page_is_broken_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path, 200)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with AuditLog.open_to_read(path) as log:
        assert isinstance(log.verify(), Broken)
