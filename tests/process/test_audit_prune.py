"""Tests of pruning: whole sessions are removed, the rest verifies and names what was removed, and a crash leaves all
or nothing.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from policy.model.action import RunScript
from runner.audit import checkpoint as checkpoint_module
from runner.audit import log as log_module
from runner.audit import prune as prune_module
from runner.audit import records
from runner.audit.chain import AuditError, LogTransaction, append
from runner.audit.decisions import deeds
from runner.audit.log import AuditLog
from runner.audit.prune import PrunePlan, plan, prune
from runner.audit.records import SessionEnd
from runner.audit.stores import sqlite_file
from runner.audit.verify import ExpectedRecord, VerifiedLog, verify
from sandbox.backend import Outcome
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import allowed, info, refusal, unfenced
from tests.support.places import ROOT
from tests.support.sealed_records import SIGNER, broken, resealed, whole

END = SessionEnd(0, "done", 1, ())


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The day of March that a record is written on: the last of the list."""
    today = [1]

    def said(now: float | None = None) -> str:
        return f"2026-03-{today[-1]:02d}T00:00:00.000Z"

    for module in (records, log_module, checkpoint_module, prune_module):
        monkeypatch.setattr(module, "now", said)
    return today


def act(log: AuditLog, session: str, day: int, days: list[int]) -> None:
    days.append(day)
    log.finished(log.decided(session, allowed(RunScript(f"echo {day}", "/w"))), Outcome(0))


def on(day: int) -> str:
    return f"2026-03-{day:02d}"


def made(path: Path, days: list[int]) -> None:
    """Records 1-5: a session of the 1st with an end and its checkpoint; 6-8: one of the 2nd that was killed; 9-16: one
    from the 3rd to the 6th beside 12-13 of the 4th; 17 of the 9th."""
    with AuditLog.open(path) as log:
        days.append(1)
        one = log.session(info())
        act(log, one, 1, days)
        log.ended(one, END)
        days.append(2)
        two = log.session(info())
        act(log, two, 2, days)
        days.append(3)
        three = log.session(info())
        act(log, three, 3, days)
        days.append(4)
        four = log.session(info())
        log.refused(four, refusal())
        act(log, three, 6, days)
        log.ended(three, END)
        days.append(9)
        log.session(info())


def test_somebody_else_prunes_meanwhile(tmp_path: Path, days: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """While a person thinks about the question, or in the last moment: a second tombstone would not fit the chain."""
    path = tmp_path / "audit.db"
    made(path, days)
    with AuditLog.open(path) as log, AuditLog.open(path) as other:
        late, writing = plan(log.store, on(3), on(30)), log.store.writing

        def meanwhile(failure: str) -> AbstractContextManager[LogTransaction]:
            prune(other, plan(other.store, on(2), on(30)), lambda: None)
            return writing(failure)

        with monkeypatch.context() as patch:
            patch.setattr(log.store, "writing", meanwhile)
            with pytest.raises(AuditError, match="another process pruned it"):
                prune(log, late, lambda: None)
        with pytest.raises(AuditError, match="another process pruned it"):
            prune(log, late, lambda: None)
        result = verify(log.store)
        assert isinstance(result, VerifiedLog)
        assert (result.chains[0].pruned, result.count) == (5, 19)


PLANS = [
    # older than, silent since, the last record that goes, sessions, why
    (1, 30, 0, 0, "nothing is older than the first day"),
    (2, 30, 5, 1, "a session that ended, with its checkpoint"),
    (3, 30, 8, 2, "one without an end that is silent"),
    (3, 2, 5, 1, "one without an end that may still run"),
    (4, 30, 8, 2, "not the half of one that goes on later"),
    (5, 30, 8, 2, "nor one that began after it"),
    (7, 30, 17, 4, "all that ended"),
    (7, 4, 8, 2, "a border moves before all that is not to go"),
    (30, 30, 18, 5, "everything"),
    (30, 9, 17, 4, "all but one that may still run"),
    (30, 2, 5, 1, "one that may still run keeps what came after it"),
]


@pytest.mark.parametrize(("before", "silent", "last", "sessions", "why"), PLANS, ids=[row[4] for row in PLANS])
def test_what_may_go(
    tmp_path: Path, days: list[int], before: int, silent: int, last: int, sessions: int, why: str
) -> None:
    path = tmp_path / "audit.db"
    made(path, days)
    with AuditLog.open_to_read(path) as log:
        assert plan(log.store, on(before), on(silent)) == PrunePlan(1, last, sessions, on(before)), why


@pytest.mark.threat("T25")
def test_what_is_left_verifies_and_says_what_went(tmp_path: Path, days: list[int]) -> None:
    path = tmp_path / "audit.db"
    made(path, days)
    before = whole(path)
    with AuditLog.open(path) as log:
        number = prune(log, plan(log.store, on(3), on(30)), lambda: SIGNER)
        assert number == 19
        body = next(log.rows(kind="tombstone")).body
        assert (body["first"], body["last"], body["sessions"], body["user"]) == (1, 8, 2, os.geteuid())
        assert [record.id for record in log.rows()] == list(range(19, 8, -1))
        assert [deed.record.id for deed in deeds(log)] == [14, 13, 10]
        log.store.shrink()
    after = whole(path)
    assert (after.pruned, after.count, after.log, after.keys) == (8, 19, before.log, (SIGNER.public,))
    with AuditLog.open(path) as log:
        log.checkpoint()
    assert whole(path).root != after.root
    assert whole(path).checkpoints == 2, "the tree goes on from what the tombstone holds"
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw.execute("DELETE FROM records")
    raw.close()


def test_pruning_again_counts_from_the_first_record(tmp_path: Path, days: list[int]) -> None:
    path = tmp_path / "audit.db"
    made(path, days)
    full = whole(path)
    with AuditLog.open(path) as log:
        prune(log, plan(log.store, on(2), on(30)), lambda: None)
        again = plan(log.store, on(7), on(30))
        assert (again.first, again.last, again.count) == (6, 17, 12)
        prune(log, again, lambda: SIGNER)
        everything = plan(log.store, on(30), on(30))
        assert everything.first == 18
        prune(log, everything, lambda: None)
        log.refused("s", refusal())
    assert (whole(path).pruned, whole(path).log) == (everything.last, full.log)
    assert whole(path, noted=(ExpectedRecord(everything.last, str(bodies(path)[0]["hash"])),)).count == 22
    why = f"the expected record {full.count} was pruned, so it cannot be checked"
    assert broken(path, noted=(ExpectedRecord(full.count, full.hash),)).why == why


def bodies(path: Path) -> list[dict[str, object]]:
    with AuditLog.open_to_read(path) as log:
        return [record.body for record in log.rows(kind="tombstone")]


def test_what_later_decisions_share_is_carried_over(tmp_path: Path, days: list[int]) -> None:
    """A note is recorded once, with the first decision that needs it: that one may go, the note may not."""
    path = tmp_path / "audit.db"
    with AuditLog.open(path) as log:
        log._append({"kind": "decided", "session": "a", "time": on(1)}, "", [{"look": 1}, {"gone": 2}])
        log._append({"kind": "decided", "session": "b", "time": on(5)}, "", [{"look": 1}])
        names: list[Any] = [record.body["facts"] for record in log.rows(kind="decided")]
        prune(log, plan(log.store, on(3), on(30)), lambda: None)
        (kept,) = names[0]
        assert log.facts(kept) == {"look": 1}
        assert [log.facts(name) for name in names[1]] == [{"look": 1}, None]
        assert isinstance(verify(log.store), VerifiedLog)


FORGED = [
    ({"last": 7}, "is not valid"),
    ({"root": "00" * 32}, "root"),
    ({"hash": "00" * 32}, "changed"),
    ({"hash": 5}, "is not valid"),
    ({"log": "0" * 16}, "root"),
    ({"user": 5}, "signature"),
    ({"peaks": ["00" * 32]}, "it is a checkpoint that does not match"),
]


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("change", "why"), FORGED, ids=[f"{next(iter(row[0]))} {row[1]}" for row in FORGED])
def test_a_forged_tombstone_is_named(tmp_path: Path, days: list[int], change: dict[str, object], why: str) -> None:
    path = tmp_path / "audit.db"
    made(path, days)
    with AuditLog.open(path) as log:
        prune(log, plan(log.store, on(3), on(30)), lambda: SIGNER)
    resealed(path, lambda body: body.update(change), at=19)
    assert why in broken(path).why


@pytest.mark.threat("T25")
def test_records_that_are_taken_out_by_hand_are_not_pruned(tmp_path: Path, days: list[int]) -> None:
    path = tmp_path / "audit.db"
    made(path, days)
    with AuditLog.open(path) as log:
        prune(log, plan(log.store, on(2), on(30)), lambda: None)
    unfenced(path, "DELETE FROM records WHERE id < 9; DELETE FROM cards WHERE id < 9")
    assert "record 6 is missing" in broken(path).why


@pytest.mark.threat("T24")
def test_a_crash_in_the_middle_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Killed at every stage of it: by time, from before it begins until after it ended."""
    script = """
        import os, sys
        from pathlib import Path
        from runner.audit.log import AuditLog
        from runner.audit.prune import plan, prune
        with AuditLog.open(Path(sys.argv[1])) as log:
            os.write(1, b"x")
            os.read(0, 1)
            prune(log, plan(log.store, "2100", "2100"), lambda: None)
            os.write(1, b"x")
            log.store.shrink()
    """
    source = tmp_path / "source.db"
    with AuditLog.open(source) as log, log.store.writing("") as writing:
        for number in range(4000):
            append(writing, {"kind": "refused", "session": "s", "time": "2026", "text": "x" * 2000, "n": number})
    found = set()
    for step in range(12):
        path = tmp_path / f"{step}.db"
        path.write_bytes(source.read_bytes())
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(1)
        if step:  # else it is killed before it begins, however fast it is
            process.stdin.close()
            time.sleep((step - 1) * 0.012)
        process.send_signal(signal.SIGKILL)
        acknowledged = len(process.stdout.read())
        process.wait()
        process.stdin.close()
        process.stdout.close()
        chain = whole(path)
        found.add(chain.pruned)
        assert (chain.pruned, chain.count) in ((0, 4000), (4000, 4001))
        assert chain.pruned == 4000 or not acknowledged
        raw = sqlite3.connect(path)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute("DELETE FROM records")
        raw.close()
    assert 0 in found


def test_the_command(tmp_path: Path) -> None:
    state, home = tmp_path / "state", tmp_path / "home"
    home.mkdir()
    state.mkdir(mode=0o700)
    path = state / "audit.db"
    with AuditLog.open(path) as log, log.store.writing("") as writing:
        for number in range(300):
            append(writing, {"kind": "refused", "session": "s", "time": "2020-01-01", "text": "x" * 2000, "n": number})
    fillers = {"PATH": os.environ["PATH"], "HOME": str(home), "RINGFENCE_STATE_DIR": str(state)}

    def said(*words: str, code: int = 0) -> str:
        command = [AGENT, "audit", *words]
        done = forked_agent.run(command, env=fillers, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert said("prune", "--older-than", "2019-01-01") == "there is nothing to remove\n"
    assert said("prune", "--older-than", "90d", "--dry-run") == "300 records of 1 session would be removed\n"
    assert "no user can confirm the removal" in said("prune", "--older-than", "90d", code=2)
    assert "not a time for --older-than" in said("prune", "--older-than", "soon", code=2)
    told = json.loads(said("prune", "--older-than", "90d", "--yes", "--json"))
    assert (told["records"], told["tombstone"]) == (300, 301)
    assert told["bytes"] > 500_000
    assert told["signed"] is False, "there is no keyring here"
    assert "the first 300 records were removed by `agent audit prune` (see the tombstone)" in said("verify")
    assert said("prune", "--older-than", "1h", "--yes") == "there is nothing to remove\n"
    other = tmp_path / "other.db"
    with AuditLog.open(other) as log, log.store.writing("") as writing:
        append(writing, {"kind": "refused", "session": "t", "time": "2020-01-01"})
    assert "not signed because there is no key" in said("prune", "--older-than", "90d", "--yes", "--file", str(other))


def test_a_log_that_is_in_use_waits_or_says_so(
    tmp_path: Path, days: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.db"
    made(path, days)
    with AuditLog.open(path) as log, AuditLog.open(path) as other:
        monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.05)
        with log.store.writing(""), pytest.raises(AuditError, match="no record was removed"):
            prune(other, plan(other.store, on(3), on(30)), lambda: None)
    assert whole(path).pruned == 0
