"""Tests of `agent audit tail`: no record is missed or printed twice, even if the file is replaced; and its end."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.audit.chain import AuditError, Record, append
from runner.audit.decisions import DecisionTrail
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.audit.records import Refusal, SessionInfo
from runner.audit.tail import Follower
from sandbox.backend import Outcome
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import unfenced
from tests.support.waiting import until

INFO = SessionInfo("default", "/w", True, None)
WRONG = Problem("`command` is missing", "the tool wants one", "give one")


def refuse(path: Path, *tools: str) -> list[int]:
    with AuditLog.open(path) as log:
        session = log.session(INFO)
        return [log.refused(session, Refusal(tool, "{}", WRONG)) for tool in tools]


def told(events: Sequence[DecisionTrail | Record]) -> list[str]:
    return [
        str(event.record.body["tool"]) if isinstance(event, DecisionTrail) else f"end of {event.body['decided']}"
        for event in events
    ]


def test_each_decision_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    refuse(path, "a", "b", "c")
    follower = Follower(path, Query())
    assert told(follower.start(2)) == ["b", "c"], "the newest, oldest first"
    assert follower.more() == []
    refuse(path, "d")
    refuse(path, "e")
    assert told(follower.more()) == ["d", "e"]
    assert follower.more() == []


def test_an_outcome_comes_when_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    follower = Follower(path, Query())
    assert follower.start(10) == [], "no log yet"
    (number,) = refuse(path, "a")
    assert told(follower.more()) == ["a"]
    with AuditLog.open(path) as log:
        log.finished(number, Outcome(0))
        log.finished(number + 77, Outcome(0))
    assert told(follower.more()) == [f"end of {number}"], "of what was told, and of nothing else"


def test_an_outcome_of_nothing_is_passed_over(tmp_path: Path) -> None:
    """Anyone who owns the file can write anything into it."""
    path = tmp_path / "audit.db"
    refuse(path, "a")
    follower = Follower(path, Query())
    follower.start(10)
    with AuditLog.open(path) as log, log.store.writing("not kept") as writing:
        for decided in ([], {}, None, "1", 1e300):
            append(writing, {"kind": "finished", "decided": decided})
    refuse(path, "b")
    assert told(follower.more()) == ["b"]


def test_filters_hold(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    refuse(path, "a", "b")
    follower = Follower(path, Query(tools=("b",)))
    assert told(follower.start(10)) == ["b"]
    hidden, shown = refuse(path, "a", "b")
    with AuditLog.open(path) as log:
        log.finished(hidden, Outcome(0))
        log.finished(shown, Outcome(0))
    assert told(follower.more()) == ["b", f"end of {shown}"]


def test_a_log_that_was_moved_away_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    refuse(path, "a", "b")
    follower = Follower(path, Query())
    follower.start(0)
    path.rename(tmp_path / "old.db")
    assert follower.more() == []
    refuse(path, "c")
    assert told(follower.more()) == ["c"]
    path.rename(tmp_path / "older.db")
    refuse(path, *"defgh")
    assert told(follower.more()) == [*"defgh"], "though it has more records than the one before"


def test_a_log_that_was_pruned_goes_on(tmp_path: Path) -> None:
    path, other = tmp_path / "audit.db", tmp_path / "new.db"
    refuse(path, "a", "b", "c")
    follower = Follower(path, Query())
    follower.start(0)
    shutil.copy(path, other)
    unfenced(other, "DELETE FROM records WHERE id < 4")
    other.rename(path)
    assert follower.more() == [], "nothing is told again"
    refuse(path, "d")
    assert told(follower.more()) == ["d"]


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    follower = Follower(path, Query())
    follower.start(1)
    path.write_text("nonsense" * 100)
    with pytest.raises(AuditError, match="cannot be read"):
        follower.more()


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "RINGFENCE_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}


def test_it_follows_until_ctrl_c(tmp_path: Path, place: dict[str, str]) -> None:
    log, out = tmp_path / "audit.db", tmp_path / "out.txt"
    refuse(log, "before")
    with out.open("w") as sink:
        process = subprocess.Popen([AGENT, "audit", "tail", "-f"], env=place, stdout=sink, stderr=subprocess.PIPE)
        until(lambda: "before" in out.read_text(), of=process)
        refuse(log, "after")
        until(lambda: "after" in out.read_text(), of=process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (130, b"")


def test_it_ends_when_nobody_reads_any_more(tmp_path: Path, place: dict[str, str]) -> None:
    """Though nothing is written: `agent audit tail -f | head -1` must not wait for the next decision."""
    refuse(tmp_path / "audit.db", "before")
    process = subprocess.Popen(
        [AGENT, "audit", "tail", "-f"], env=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert b"before" in process.stdout.readline()
    process.stdout.close()
    assert (process.wait(), process.stderr.read()) == (141, b"")
    process.stderr.close()


def test_without_a_log_there_is_nothing_to_tell(place: dict[str, str]) -> None:
    done = forked_agent.run([AGENT, "audit", "tail"], env=place, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
