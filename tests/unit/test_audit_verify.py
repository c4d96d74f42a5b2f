"""Tests of `verify`: it names the first invalid record after every kind of change."""

import sqlite3
from pathlib import Path

import pytest

from policy.model.action import ReadFile, RunScript
from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.list_view import lines
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.audit.records import Refusal
from runner.audit.verify import BrokenChain, Expected, ExpectedRecord, VerifiedLog, verify
from sandbox.backend import Outcome
from tests.support.audit_records import allowed, denied, fill, info, unfenced

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
        assert isinstance(verify(log.store), VerifiedLog)
    unfenced(path, statement)
    with AuditLog.open_to_read(path) as log:
        result = verify(log.store)
    assert isinstance(result, BrokenChain), why
    assert result.id == first, result.why


# Behind the definition of `card_of_denial`: another index, and then the old definition put back.
BEHIND = (
    "DROP INDEX card_of_denial; CREATE INDEX card_of_denial ON cards {index};"
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql ="
    " 'CREATE INDEX card_of_denial ON cards (verdict) WHERE verdict = ''deny''' WHERE name = 'card_of_denial'"
)
TEXT = "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, '{old}', '{new}')"
COLUMNS = {
    "records": "id, body, hash",
    "cards": "id, log, number, kind, time, session, decided, verdict, mode, tool, tiers, rules, name",
    "logs": "number, name, last, hash, merged",
}


def endless(table: str, row: str) -> str:
    """A view in the place of a table. Who reads from it never comes to an end."""
    return (
        f"ALTER TABLE {table} RENAME TO other; CREATE VIEW {table} ({COLUMNS[table]}) AS WITH RECURSIVE"
        f" counted(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM counted) SELECT {row} FROM counted"
    )


# fmt: off
SCHEMAS = [
    (BEHIND.format(index="(verdict) WHERE verdict = 'zzz'"),              "indexes do not match",           True,  "an index without entries"),
    (BEHIND.format(index="(verdict) WHERE verdict = 'deny' AND id > 12"), "indexes do not match",           True,  "an index without some entries"),
    (BEHIND.format(index="(verdict)"),                                    "indexes do not match",           True,  "an index with too many entries"),
    (BEHIND.format(index="(mode) WHERE verdict = 'deny'"),                "indexes do not match",           True,  "an index of another column"),
    (BEHIND.format(index="(upper(verdict)) WHERE verdict = 'deny'"), "indexes do not match",           True,  "an index of an expression"),
    ("DROP INDEX card_of_denial",                                         "`card_of_denial` is missing",   False, "no index"),
    (BEHIND.format(index="(verdict) WHERE verdict = 'deny'").replace("''deny''", "''zzz''"), "`card_of_denial` is not the one", False, "another definition"),
    (TEXT.format(old="verdict, mode", new="verdict COLLATE NOCASE, mode"), "`cards` is not the one",           False, "a collation"),
    (TEXT.format(old="(id INTEGER PRIMARY KEY, body", new="(id INTEGER PRIMARY KEY DESC, body"), "", False, "another order"),
    (TEXT.format(old="name TEXT NOT NULL UNIQUE", new="name TEXT NOT NULL UNIQUE CHECK (name)"), "`logs` is not the one", False, "a check"),
    (TEXT.format(old="hash TEXT NOT NULL, merged", new="hash TEXT NOT NULL DEFAULT 1, merged"), "`logs` is not the one", False, "a default"),
    (TEXT.format(old="BEFORE UPDATE ON records BEGIN", new="BEFORE UPDATE ON records WHEN 0 BEGIN"), "`no_update` is not the one", False, "a trigger that does nothing"),
    ("DROP TRIGGER no_delete",                                            "`no_delete` is missing",        False, "no fence"),
    ("CREATE TRIGGER x AFTER INSERT ON cards BEGIN UPDATE cards SET verdict = 'allow'; END", "the trigger `x` is not one", False, "one more trigger"),
    ("CREATE TABLE x (a)",                                                "the table `x` is not one",         False, "one more table"),
    ("CREATE TABLE x (a INTEGER PRIMARY KEY AUTOINCREMENT)",              "the table `sqlite_sequence` is not one", False, "a table of SQLite's"),
    ("CREATE VIEW x AS SELECT 1",                                         "the view `x` is not one",          False, "one more view"),
    ("CREATE TABLE space (x)",                                            "the table `space` is not one",      False, "a name that is a word of another message"),
    ("CREATE INDEX x ON cards (tool)",                                    "the index `x` is not one",         False, "one more index"),
    ("ALTER TABLE cards ADD COLUMN x",                                    "`cards` is not the one",            False, "one more column"),
    ("ALTER TABLE cards RENAME COLUMN tool TO tools",                     "",            False, "another name"),
    ("ANALYZE",                                                           "the table `sqlite_stat1` is not one", False, "what the planner believes"),
    ("CREATE VIRTUAL TABLE x USING fts5(a)",                              "the table `x` is not one",         False, "a table of a module"),
    ("ALTER TABLE cards RENAME TO c; CREATE VIEW cards AS SELECT * FROM c WHERE verdict IS NOT 'deny'", "", False, "a view in the place of a table"),
    (endless("logs", "x, '', 0, '', 0"),                "`logs` is not the one",            False, "a view with rows without end in the place of the heads"),
    (endless("cards", "x, 1, x" + ", ''" * 10),         "`cards` is not the one",            False, "one in the place of the cards"),
    (endless("records", "x, '{}', ''"),                 "`records` is not the one",          False, "one in the place of the records"),
    ("PRAGMA user_version = 1",                                           "",                             False, "another format"),
    ("PRAGMA user_version = -1",                                          "",                             False, "a format that never was"),
    ("PRAGMA application_id = 7",                                         "`application_id`",              True,  "a file of another program"),
    ("INSERT INTO logs VALUES (2, 'x', 0, '', 0)",                        "`logs` does not have",         True,  "one more head"),
    ("INSERT INTO logs VALUES (-1, '', 0, '', 0)",                        "`logs` does not have",         True,  "a head before it"),
    ("UPDATE logs SET merged = 1",                                        "the log was merged",            True,  "said to be merged"),
    ("UPDATE logs SET merged = 2",                                        "`logs` does not have",         True,  "neither"),
    ("UPDATE logs SET number = 2; UPDATE cards SET log = 2",              "`logs` does not have",         True,  "another number"),
]
# Changes of a card: to another type, or by characters that are not visible.
VALUES = [
    ("UPDATE cards SET verdict = CAST(verdict AS BLOB) WHERE id = 7",     "bytes in the place of a text"),
    ("UPDATE cards SET verdict = 'deny' || char(0) WHERE id = 7",         "a NUL at the end"),
    ("UPDATE cards SET verdict = 'DENY' WHERE id = 7",                    "another case"),
    ("UPDATE cards SET verdict = 'deny ' WHERE id = 7",                   "a blank"),
    ("UPDATE cards SET verdict = NULL WHERE id = 7",                      "nothing"),
    ("UPDATE cards SET decided = 'x' WHERE id = 7",                       "a text in the place of a number"),
    ("UPDATE cards SET log = 9 WHERE id = 7",                             "a chain that is not there"),
    ("UPDATE cards SET number = 70 WHERE id = 7",                         "another number"),
    ("DELETE FROM cards WHERE id = 7",                                    "no card"),
    ("INSERT INTO cards (id, log, number, kind) VALUES (99, 1, 99, 'decided')", "a card of nothing"),
]
# fmt: on


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("statement", "said", "opens", "why"), SCHEMAS, ids=[row[3] for row in SCHEMAS])
def test_what_is_changed_beside_the_records_is_named(
    tmp_path: Path, statement: str, said: str, opens: bool, why: str
) -> None:
    """Every record holds, and still lists would leave some out. Readers refuse what can be told at opening."""
    path = tmp_path / "audit.db"
    with_denials(path)
    raw = sqlite3.connect(path)
    raw.executescript(f"{statement};")
    raw.close()
    with AuditLog.open_to_read(path, any_schema=True) as log:
        result = verify(log.store)
    assert isinstance(result, BrokenChain), why
    assert said in result.why
    if opens:
        AuditLog.open_to_read(path).close()
    else:
        for opened in (AuditLog.open_to_read, AuditLog.open):
            with pytest.raises(AuditError, match=r"another program changed the file|already exists") as caught:
                opened(path)
            if "already exists" not in caught.value.problem.why:
                assert "keep the file as evidence" in caught.value.problem.fix, why


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("statement", "why"), VALUES, ids=[row[1] for row in VALUES])
def test_a_card_that_says_something_else_is_named(tmp_path: Path, statement: str, why: str) -> None:
    path = tmp_path / "audit.db"
    with_denials(path)
    raw = sqlite3.connect(path)
    raw.executescript(f"{statement};")
    raw.close()
    with AuditLog.open_to_read(path) as log:
        result = verify(log.store)
        assert isinstance(result, BrokenChain), why
        assert 0 <= result.id <= 99, result
        for query in (Query(), Query(verdicts=("deny",)), Query(tools=("bash",))):
            list(lines(log, query))  # whatever is in it, it is an answer


@pytest.mark.threat("T25")
def test_an_order_of_rows_that_a_search_would_miss_is_named(tmp_path: Path) -> None:
    """A page whose rows are out of order answers a walk over all rows, and not the search for one."""
    path = tmp_path / "audit.db"
    with_denials(path)
    raw = sqlite3.connect(path)
    (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'card_of_denial'").fetchone()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    data = bytearray(path.read_bytes())
    start = (page - 1) * 4096
    cells = data[start + 8 : start + 16]  # SOURCE: sqlite.org/fileformat.html: two bytes for each cell of a leaf
    data[start + 8 : start + 16] = b"".join(bytes(cells[n : n + 2]) for n in (6, 4, 2, 0))
    path.write_bytes(data)
    with AuditLog.open_to_read(path) as log:
        result = verify(log.store)
    assert isinstance(result, BrokenChain)
    assert "indexes do not match" in result.why


def with_denials(path: Path) -> None:
    """A session with four denials among allowed actions."""
    with AuditLog.open(path) as log:
        session = log.session(info())
        for number in range(4):
            decided = log.decided(session, allowed(RunScript(f"echo {number}", "/w")))
            log.finished(decided, Outcome(0, b"out", b"", 0.25))
            log.decided(session, denied(ReadFile("/w/.env")))


@pytest.mark.threat("T25")
def test_a_log_written_anew_is_found_by_a_head_noted_earlier(tmp_path: Path) -> None:
    path, other = tmp_path / "audit.db", tmp_path / "other.db"
    fill(path, 3)
    fill(other, 4)
    with AuditLog.open(path) as log:
        noted = verify(log.store)
        assert isinstance(noted, VerifiedLog)
        log.refused("s", Refusal("bash", "{", Problem("a", "b", "c")))
        assert isinstance(verify(log.store, Expected((ExpectedRecord.head(noted.head),))), VerifiedLog), (
            "a longer log still holds the noted head"
        )
        assert verify(log.store, Expected((ExpectedRecord.head(f"99:{noted.chains[0].hash}"),))) == BrokenChain(
            9, "the log ends before the expected record 99"
        )
    with AuditLog.open_to_read(other) as log:
        assert isinstance(verify(log.store), VerifiedLog)
        result = verify(log.store, Expected((ExpectedRecord.head(noted.head),)))
        assert isinstance(result, BrokenChain)
        assert result.id == noted.count


@pytest.mark.threat("T25")
def test_records_added_after_a_cut_leave_the_gap_visible(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path)
    unfenced(path, "DELETE FROM records WHERE id > 8")
    with AuditLog.open(path) as log:
        log.refused("s", Refusal("bash", "{", Problem("a", "b", "c")))
        assert verify(log.store) == BrokenChain(9, "record 9 is missing; the next one is 12")


def test_a_damaged_page_is_broken_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path, 200)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with AuditLog.open_to_read(path) as log:
        assert isinstance(verify(log.store), BrokenChain)
