"""Tests of stores: a query never selects too few records, and a log of the first format is migrated."""

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.action import RunScript
from policy.model.assessment import Reason, RuleKind, RuleRef
from policy.model.tier import Mode, Tier
from runner.audit.chain import AuditError
from runner.audit.decisions import deeds
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.audit.stores import sqlite_file
from runner.audit.stores.sqlite_file import SCHEMA, find_schema_fault
from runner.audit.verify import VerifiedLog, verify
from sandbox.backend import Outcome
from tests.support.audit_records import allowed, denied, fill, info, refusal

QUERIES = [
    (Query(), 7, "everything"),
    (Query(verdicts=("deny",)), 3, "denials and malformed calls"),
    (Query(verdicts=("allow", "deny")), 7, "either"),
    (Query(tiers=("secret",)), 2, "a tier"),
    (Query(tiers=("read", "secret")), 6, "one of two tiers"),
    (Query(modes=("plan",)), 1, "a mode"),
    (Query(tools=("exec",)), 3, "a tool"),
    (Query(tools=('od"d\ud800\\',)), 1, "a tool whose name JSON spells otherwise"),
    (Query(rules=("command:cat:3",)), 6, "a rule; malformed calls have none"),
    (Query(rules=("command:cat:4",)), 1, "a rule that is not the first"),
    (Query(rules=("command:cat:32",)), 1, "the last of thirty"),
    (Query(rules=("/c.toml:4",)), 1, "a rule of the user that asked, which no reason names"),
    (Query(rules=('po"licy',)), 0, "no rule"),
    (Query(sessions=("",)), 7, "any session"),
    (Query(sessions=("nobody",)), 0, "no session"),
    (Query(since="2000", until="2100"), 7, "a time"),
    (Query(since="2100"), 0, "a later time"),
    (Query(verdicts=("deny",), modes=("plan",), tiers=("secret",)), 1, "all at once"),
    (Query(commands=("echo",)), 4, "what only the body tells"),
    (Query(workspaces=("/other",)), 1, "what only the session tells"),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixed") / "audit.db"
    with AuditLog.open(path) as log:
        one, two = log.session(info()), log.session(info("/other"))
        for tool in ("exec", "exec", 'od"d\ud800\\'):
            log.finished(log.decided(one, allowed(RunScript("echo a", "/w"), tool)), Outcome(0))
        log.decided(one, denied(RunScript("cat b", "/w")))
        other = denied(RunScript("cat c", "/w"), Mode.PLAN)
        rule = Reason(Tier.WRITE, "your rule asks", RuleRef(RuleKind.USER, "/c.toml", 4))
        log.decided(two, replace(other, assessment=replace(other.assessment, asked=(rule,))))
        log.refused(one, refusal())
        log.decided(one, allowed(RunScript("echo d", "/w"), rules=30))
    return path


@pytest.mark.parametrize(("query", "count", "why"), QUERIES, ids=[row[2] for row in QUERIES])
def test_a_selection_holds_all_that_a_query_wants(mixed: Path, query: Query, count: int, why: str) -> None:
    with AuditLog.open_to_read(mixed) as log:
        bodies = {record.id: record.body for record in log.rows()}
        sessions = {body["session"]: body for body in bodies.values() if body["kind"] == "session"}
        wanted = [
            number
            for number, body in bodies.items()
            if body["kind"] in ("decided", "refused") and query.matches(body, sessions[body["session"]], {})
        ]
        assert len(wanted) == count, why
        assert [deed.record.id for deed in deeds(log, query)] == wanted
        assert [deed.record.id for deed in deeds(log, query, limit=2)] == wanted[:2]


def test_one_record_is_found_by_its_id_its_cause_and_its_name(mixed: Path) -> None:
    with AuditLog.open_to_read(mixed) as log:
        record = log.get(3)
        assert record is not None
        assert (record.id, record.number, record.kind) == (3, 3, "decided")
        assert record.log == "", "there is but one"
        finished = log.outcome_of(3)
        assert finished is not None
        assert finished.body["decided"] == 3
        cause = log.cause_of(finished.id)
        assert cause is not None
        assert cause.id == 3
        session = log.named("session", str(record.body["session"]))
        assert session is not None
        assert session.id == 1
        assert log.named("session", "\ud800") is log.named("session", "x") is log.get(99) is log.outcome_of(99) is None
        assert [record.id for record in log.rows(after=9, limit=2)] == [12, 11]


# The first format: the fields as computed columns, and one head.
FIRST_FORMAT = """
CREATE TABLE records (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL,
    kind TEXT GENERATED ALWAYS AS (json_extract(body, '$.kind')) VIRTUAL,
    verdict TEXT GENERATED ALWAYS AS (json_extract(body, '$.verdict')) VIRTUAL,
    decided INTEGER GENERATED ALWAYS AS (json_extract(body, '$.decided')) VIRTUAL);
CREATE INDEX outcome_of ON records (decided) WHERE decided IS NOT NULL;
CREATE INDEX by_verdict ON records (verdict) WHERE verdict IS NOT NULL;
CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE TRIGGER no_update BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
PRAGMA journal_mode = WAL;
"""


def first_format(path: Path, source: Path) -> None:
    """The records of `source` in a log of the first format."""
    new = sqlite3.connect(path)
    new.executescript(FIRST_FORMAT)
    new.execute("ATTACH ? AS source", (str(source),))
    new.execute("INSERT INTO records (id, body, hash) SELECT id, body, hash FROM source.records")
    new.execute("INSERT INTO head SELECT 1, last, hash FROM source.logs")
    new.commit()
    new.close()
    path.chmod(0o600)


@pytest.mark.parametrize("empty", [False, True])
def test_a_log_of_the_first_format_is_taken_over(tmp_path: Path, mixed: Path, empty: bool) -> None:
    path, source = tmp_path / "audit.db", tmp_path / "empty.db" if empty else mixed
    if empty:
        AuditLog.open(source).close()
    first_format(path, source)
    before = path.read_bytes()
    with AuditLog.open_to_read(path) as log, AuditLog.open_to_read(source) as same:
        assert list(log.rows()) == list(same.rows())
        assert verify(log.store) == verify(same.store)
        assert [d.record.id for d in deeds(log, QUERIES[1][0])] == [d.record.id for d in deeds(same, QUERIES[1][0])]
    assert path.read_bytes() == before, "reading changes nothing"
    with AuditLog.open(path) as log, AuditLog.open_to_read(source) as same:
        assert list(log.rows()) == list(same.rows())
        number = log.refused("s", refusal())
        assert number == (1 if empty else 13)
        assert isinstance(verify(log.store), VerifiedLog)
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw.execute("DELETE FROM records")
    raw.close()
    fill(path, 1)
    with AuditLog.open_to_read(path) as log:
        assert isinstance(verify(log.store), VerifiedLog)


def test_a_program_of_the_first_format_cannot_add_to_this_one(tmp_path: Path) -> None:
    """It would leave records out of what is found; so it must not run anything."""
    path = tmp_path / "audit.db"
    fill(path, 1)
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.OperationalError, match="head"):
        raw.execute("SELECT id, hash FROM head")
    raw.close()


def test_the_usual_schema_is_known_without_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known digest is that of a new file. A comparison says the same, and no other schema has the digest."""
    AuditLog.open(tmp_path / "audit.db").close()
    with monkeypatch.context() as patch, sqlite3.connect(tmp_path / "audit.db") as new:
        patch.setattr(sqlite_file, "find_difference", None)
        assert find_schema_fault(new) == ""
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "_USUAL", "none")
        assert find_schema_fault(new) == ""
    for statement in ("DROP INDEX card_by_name", "CREATE TABLE records2 (id)", "CREATE INDEX x ON cards (time)"):
        with sqlite3.connect(":memory:") as other:
            new.backup(other)
            other.execute(statement)
            assert "another program changed the file" in find_schema_fault(other), statement
        other.close()
    new.close()


def test_a_log_of_a_later_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path, 1)
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    raw.close()
    for opened in (AuditLog.open, AuditLog.open_to_read):
        with pytest.raises(AuditError, match="a newer ringfence wrote it") as caught:
            opened(path)
        assert caught.value.problem.fix.startswith("install that version or a newer one")


def test_a_log_that_was_merged_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path, 1)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE logs SET merged = 1")
    raw.commit()
    raw.close()
    with AuditLog.open(path) as log, pytest.raises(AuditError, match="it was merged from other logs") as caught:
        log.refused("s", refusal())
    assert f"mv '{path}'" in caught.value.problem.fix


@pytest.mark.parametrize("statement", ["PRAGMA page_count", "CREATE TABLE records (a)", "CREATE TABLE head (id)"])
def test_a_database_that_holds_no_log_is_said_to_hold_none(tmp_path: Path, statement: str) -> None:
    """One of another program, or the empty file of a program that was killed before it wrote the first record."""
    path = tmp_path / "other.db"
    path.touch()
    raw = sqlite3.connect(path)
    raw.execute(statement)
    raw.close()
    with pytest.raises(AuditError, match="it contains no log") as caught:
        AuditLog.open_to_read(path)
    assert caught.value.problem.fix == "run a command first, or name another file"


def test_a_copy_in_a_folder_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    fill(folder / "audit.db", 2)
    folder.chmod(0o555)
    try:
        with AuditLog.open_to_read(folder / "audit.db") as log:
            assert isinstance(verify(log.store), VerifiedLog)
        assert os.listdir(folder) == ["audit.db"] or os.geteuid() == 0
    finally:
        folder.chmod(0o755)
