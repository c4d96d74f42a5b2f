"""Tests of merging audit logs: each chain stays whole, duplicates are stored once, and a forked chain is refused."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from policy.model.action import RunScript
from runner.audit import merge as merge_module
from runner.audit.chain import AuditError, now, seal
from runner.audit.decisions import deeds, trail_of
from runner.audit.log import AuditLog
from runner.audit.merge import merge
from runner.audit.prune import PrunePlan, prune
from runner.audit.query import Query
from runner.audit.stores.sqlite import write_merged
from runner.audit.verify import BrokenChain, Expected, ExpectedRecord, VerifiedLog, verify
from sandbox.backend import Outcome
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import allowed, fill, info, refusal, unfenced
from tests.support.waiting import until


def merged(into: Path, *paths: Path) -> tuple[str, ...]:
    """Merge the logs at `paths` and return the list of omitted parts."""
    logs = [AuditLog.open_to_read(path) for path in paths]
    try:
        return merge([log.store for log in logs], into).left_out
    finally:
        for log in logs:
            log.close()


def copy(source: Path, name: str) -> Path:
    return Path(shutil.copy(source, source.with_name(name)))


def turns(*paths: Path) -> None:
    """A session in each log, and their actions by turns; the last log has one record more.

    No two turns are of one millisecond: records of one time are in the order of their logs."""
    logs = [AuditLog.open(path) for path in paths]
    sessions = [log.session(info()) for log in logs]
    for number in range(4):
        for log, session in zip(logs, sessions, strict=True):
            found = log.decided(session, allowed(RunScript(f"echo {Path(log.store.name).name} {number}", "/w")))
            log.finished(found, Outcome(number))
            turned = now()
            until(lambda: now() > turned)  # noqa: B023  # called in the same turn
    logs[-1].checkpoint()
    for log in logs:
        log.close()


def test_every_record_is_there_in_the_order_of_its_time(tmp_path: Path) -> None:
    one, two, into = (tmp_path / name for name in ("one.db", "two.db", "all.db"))
    turns(one, two)
    assert merged(into, one, two) == ()
    with AuditLog.open_to_read(into) as log, AuditLog.open_to_read(one) as first, AuditLog.open_to_read(two) as second:
        records = list(log.rows())
        assert [record.id for record in records] == list(range(19, 0, -1))
        times = [str(record.body["time"]) for record in records]
        assert times == sorted(times, reverse=True)
        for source in (first, second):
            name = next(source.rows(first=1)).hash[:16]
            mine = [(record.number, record.hash, record.body) for record in records if record.log == name]
            assert mine == [(record.id, record.hash, record.body) for record in source.rows()]
        for deed in deeds(log):
            action, finished = deed.record.body["action"], deed.finished
            assert isinstance(action, dict)
            assert finished is not None
            assert deed.session is not None
            assert str(finished.body["status"]) == str(action["script"])[-1], (
                "its own outcome, not that of the other log"
            )
            assert (finished.log, deed.session.log) == (deed.record.log,) * 2
            assert trail_of(log, finished) == deed
            assert log.get(deed.record.id) == deed.record
        (session,) = [record.body["session"] for record in first.rows(kind="session")]
        assert len(list(deeds(log, Query(sessions=(str(session),))))) == 4
        result, apart = verify(log.store), [verify(source.store) for source in (first, second)]
        assert isinstance(result, VerifiedLog)
        assert sorted(chain.head for chain in result.chains) == sorted(each.head for each in apart)  # type: ignore[union-attr]  # they hold
    assert into.stat().st_mode & 0o777 == 0o600


@pytest.mark.threat("T25")
def test_a_merged_file_verifies_chain_by_chain(tmp_path: Path) -> None:
    one, two, into = (tmp_path / name for name in ("one.db", "two.db", "all.db"))
    turns(one, two)
    merged(into, one, two)
    with AuditLog.open_to_read(two) as log:
        sealed = verify(log.store)
        assert isinstance(sealed, VerifiedLog)
    with AuditLog.open_to_read(into) as log:
        (chain,) = sealed.chains
        notes = (ExpectedRecord.head(chain.head), ExpectedRecord(chain.count, chain.hash, chain.root, chain.log))
        assert isinstance(verify(log.store, Expected(notes)), VerifiedLog)
        assert isinstance(verify(log.store, Expected((ExpectedRecord(3, "00" * 32),))), BrokenChain)
        assert verify(log.store, Expected((ExpectedRecord(3, "00" * 32, log="0" * 16),))) == BrokenChain(
            1, "the expected head is of another log, `0000000000000000`"
        )
    for statement, why in (
        ("UPDATE records SET body = replace(body, 'two.db 2', 'two.db 3')", "changed after"),
        ("DELETE FROM records WHERE id = 7; DELETE FROM cards WHERE id = 7", "is missing"),
        ("UPDATE cards SET log = 3 - log WHERE id IN (1, 2)", ""),
        ("UPDATE cards SET verdict = 'deny' WHERE id = 9", "its index fields differ"),
        ("DELETE FROM logs WHERE number = 2", ""),
        ("UPDATE logs SET last = last + 1 WHERE number = 2", "removed at the end"),
    ):
        changed = copy(into, "changed.db")
        unfenced(changed, statement)
        with AuditLog.open_to_read(changed) as log:
            result = verify(log.store)
        assert isinstance(result, BrokenChain), statement
        assert why in result.why, statement


def test_copies_are_one_log(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    fill(path, 2)
    fill(other, 1)
    early = copy(path, "early.db")
    fill(path, 2)
    same = copy(path, "same.db")
    told = merged(tmp_path / "all.db", early, path, same, other)
    assert told == (f"`{early}` is the beginning of `{path}`", f"`{same}` is the same log as `{path}`")
    with AuditLog.open_to_read(tmp_path / "all.db") as log:
        result = verify(log.store)
        assert isinstance(result, VerifiedLog)
        assert sorted(chain.count for chain in result.chains) == [3, 10]
    more = tmp_path / "more.db"
    fill(more, 1)
    assert merged(tmp_path / "again.db", tmp_path / "all.db", more, path) == (
        f"`{path}` is the same log as `{tmp_path / 'all.db'}`",
    )
    with AuditLog.open_to_read(tmp_path / "again.db") as log:
        assert len(list(log.rows())) == 16
        assert isinstance(verify(log.store), VerifiedLog)


def test_a_pruned_log_is_merged_as_it_is(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    fill(path, 4)
    fill(other, 1)
    before, early = copy(path, "before.db"), tmp_path / "early.db"
    fill(early, 1)
    with AuditLog.open(path) as log:
        prune(log, PrunePlan(1, 5, 1, "2100"), lambda: None)
    merged(tmp_path / "all.db", before, path, other)
    with AuditLog.open_to_read(tmp_path / "all.db") as log:
        result = verify(log.store)
        assert isinstance(result, VerifiedLog)
        assert sorted((chain.count, chain.pruned) for chain in result.chains) == [(3, 0), (10, 5)]
        outcomes = [record for record in log.rows(kind="finished") if record.id < record.number]
        assert len(outcomes) == 2, "ids of a merged file count from 1, and the numbers of a pruned log do not"
        for record in outcomes:
            cause = log.cause_of(record.id)
            assert cause is not None
            assert (cause.kind, cause.log, cause.number) == ("decided", record.log, record.body["decided"])


REFUSED = [
    ("fork", "share their first 5 records", "two programs wrote to copies"),
    ("pruned fork", "share their first 5 records", "the numbers are those of the records"),
    ("broken", "is not intact from record 3 on", "one record was changed"),
    ("strange", "record 6 of log .* was not written by this program", "hashed as it should be, and no object"),
    ("there", "already exists", "the file is not replaced"),
    ("pruned", "were pruned from one copy", "nothing shows that they are one"),
]


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("case", "said", "why"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused(tmp_path: Path, case: str, said: str, why: str) -> None:
    one, into = tmp_path / "one.db", tmp_path / "all.db"
    fill(one, 2)
    two = copy(one, "two.db")
    match case:
        case "fork":
            fill(one, 1)
            fill(two, 2)
        case "pruned fork":
            fill(one, 2)
            fill(two, 1)
            with AuditLog.open(two) as log:
                prune(log, PrunePlan(1, 3, 1, "2100"), lambda: None)
        case "broken":
            unfenced(two, "UPDATE records SET body = body || ' ' WHERE id = 3")
        case "strange":
            with AuditLog.open(two) as log, log.store.writing("") as writing:
                writing.add(seal(writing.head.hash, "[1, 2]"), "[1, 2]")
        case "there":
            into.write_text("mine")
        case "pruned":
            fill(one, 2)
            with AuditLog.open(one) as log:
                prune(log, PrunePlan(1, 7, 1, "2100"), lambda: None)
    with pytest.raises(AuditError, match=said):
        merged(into, one, two)
    left = {name for name in os.listdir(tmp_path) if not name.endswith(("-wal", "-shm"))}
    assert left == {"one.db", "two.db"} | ({"all.db"} if case == "there" else set()), why


@pytest.mark.threat("T25")
def test_what_comes_to_be_there_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, into = tmp_path / "one.db", tmp_path / "all.db"
    fill(one, 2)

    def late(*given: Any) -> None:
        write_merged(*given)
        into.write_text("mine")

    monkeypatch.setattr(merge_module, "write_merged", late)
    with AuditLog.open_to_read(one) as log, pytest.raises(AuditError, match="already exists"):
        merge([log.store], into)
    assert into.read_text() == "mine"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_nothing_is_added_to_a_merged_file(tmp_path: Path) -> None:
    one, two, into = (tmp_path / name for name in ("one.db", "two.db", "all.db"))
    turns(one, two)
    merged(into, one, two)
    with AuditLog.open(into) as log:
        with pytest.raises(AuditError, match="can be added"):
            log.refused("s", refusal())
        with pytest.raises(AuditError, match="can be added"):
            prune(log, PrunePlan(1, 5, 1, "2100"), lambda: None)


def test_the_command(tmp_path: Path) -> None:
    one, two, into = (tmp_path / name for name in ("one.db", "two.db", "all.db"))
    turns(one, two)

    def said(*words: str, code: int = 0) -> str:
        command = [AGENT, "audit", *words]
        done = forked_agent.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert said("merge", str(one), str(two), str(one), "--into", str(into)).splitlines()[-1] == f"2 logs in {into}"
    assert said("verify", "--file", str(into)).startswith("all 19 records are intact")
    listed = [json.loads(line) for line in said("list", "--json", "--file", str(into)).splitlines()]
    assert [each["outcome"]["status"] for each in listed] == [3, 3, 2, 2, 1, 1, 0, 0]
    assert f'"id":{listed[3]["id"]},' in said("show", str(listed[3]["id"]), "--json", "--file", str(into))
    assert "was merged from several" in said("prune", "--older-than", "now", "--yes", "--file", str(into), code=1)
    assert "cannot be sealed" in said("seal", "--file", str(into), code=1)
    assert "already exists" in said("merge", str(one), "--into", str(into), code=1)
    nowhere = said("merge", str(one), "--into", str(tmp_path / "none/all.db"), code=1)
    assert f"`{tmp_path}/none` is not a folder" in nowhere
    assert "name a file in an existing folder" in nowhere
