"""Tests of the audit log in a real PostgreSQL: the same answers and proofs as from a file, and no action without it."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from policy.model.action import ReadFile, RunScript
from policy.model.tier import Mode
from runner.audit.chain import AuditError, append, canonical
from runner.audit.decisions import deeds
from runner.audit.log import AuditLog
from runner.audit.prune import PrunePlan, plan, prune
from runner.audit.query import Query
from runner.audit.stores.postgres import PostgresStore
from runner.audit.stores.postgres_server import IndexColumns, index_columns_of
from runner.audit.verify import BrokenChain, VerifiedLog, verify
from runner.doctor.report import CheckState, record
from sandbox.backend import Outcome
from tests.support import agent_program, forked_agent
from tests.support.audit_records import allowed, denied, info, refusal
from tests.support.postgres import PASSWORD, Server, postgres
from tests.support.waiting import until

AGENT = Path(agent_program.AGENT)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    """An empty database, at the URL of its owner."""
    server.sql(
        "DROP TABLE IF EXISTS ringfence_records, ringfence_logs; DROP FUNCTION IF EXISTS ringfence_append_only, ringfence_append, ringfence_head"
    )
    return server.url


def written(log: AuditLog) -> None:
    """Two sessions with what a query may ask for, the odd texts among it."""
    for workspace in ("/w", "/other"):
        session = log.session(info(workspace))
        for number in range(4):
            decided = log.decided(session, allowed(RunScript(f"echo {number}", "/w"), rules=number * 4 + 1))
            log.finished(decided, Outcome(0, b"out", b"", 0.25))
        log.decided(session, denied(ReadFile("/w/\0\ud800.env"), Mode.PLAN))
        log.refused(session, refusal("\0\ud800\x1b[2J"))
    log.checkpoint()


QUERIES = [
    Query(),
    Query(verdicts=("deny",)),
    Query(verdicts=("allow", "deny")),
    Query(tiers=("secret",)),
    Query(tiers=("read", "no-such\0")),
    Query(rules=("command:cat:1",)),
    Query(modes=("plan",)),
    Query(tools=("bash", "\ud800")),
    Query(workspaces=("/other",)),
    Query(sessions=("%", "_", "a", "0")),
    Query(since="2020"),
    Query(until="2020"),
    Query(asked=True),
]


def test_it_answers_as_a_file_does(tmp_path: Path, url: str) -> None:
    """With equal records, both stores have equal hashes and return equal decisions in equal order for every query."""
    with AuditLog.open(tmp_path / "audit.db") as file, AuditLog(PostgresStore.open(url, write=True)) as fleet:
        written(file)
        for record in reversed(list(file.rows())):
            with fleet.store.writing("not copied") as writing:
                append(writing, record.body)
        assert [*fleet.rows()] == [*file.rows()]
        for query in QUERIES:
            assert [*deeds(fleet, query)] == [*deeds(file, query)], query
            assert [*deeds(fleet, query, limit=3)] == [*deeds(file, query, limit=3)], query
        assert verify(fleet.store) == verify(file.store)
        assert isinstance(verify(fleet.store), VerifiedLog)
        names = [str(row.body["session"]) for row in file.rows(kind="session")]
        for name in (*names, "none", "\0", "\ud800"):
            assert fleet.named("session", name) == file.named("session", name)
        assert [fleet.get(number) for number in range(30)] == [file.get(number) for number in range(30)]
        assert [*fleet.store.hashes(2, 9)] == [*file.store.hashes(2, 9)]
        assert fleet.store.latest("checkpoint") == file.store.latest("checkpoint")
        assert [*fleet.rows(first=9, after=2, limit=4)] == [*file.rows(first=9, after=2, limit=4)]


@pytest.mark.threat("T25")
def test_it_is_pruned_as_a_file_is(tmp_path: Path, url: str) -> None:
    with AuditLog.open(tmp_path / "audit.db") as file, AuditLog(PostgresStore.open(url, write=True)) as fleet:
        written(file)
        for record in reversed(list(file.rows())):
            with fleet.store.writing("not copied") as writing:
                append(writing, record.body)
        last = [row.body["time"] for row in file.rows()][12]
        for before, silent in (("2000", "2000"), ("2100", "2000"), (str(last), "2100"), ("2100", "2100")):
            assert plan(fleet.store, before, silent) == plan(file.store, before, silent)
        assert sorted(fleet.store.spans(99)) == sorted(file.store.spans(99))
        prune(fleet, PrunePlan(1, 11, 1, "2100"), lambda: None)
        fleet.store.shrink()
        result = verify(fleet.store)
        assert isinstance(result, VerifiedLog)
        assert (result.count, result.chains[0].pruned, [row.id for row in fleet.rows()][-1]) == (24, 11, 12)
        assert plan(fleet.store, "2100", "2100").first == 12


def test_a_walk_is_of_one_moment_with_all_that_is_asked_on_the_way(url: str) -> None:
    """Else a log that is pruned while it is verified would look as if a user had changed it."""
    with AuditLog(PostgresStore.open(url, write=True)) as log, AuditLog(PostgresStore.open(url, write=False)) as reader:
        written(log)
        with reader.store.walking() as walk:
            prune(log, PrunePlan(1, 11, 1, "2100"), lambda: None)
            assert reader.store.latest("tombstone") is None
            assert [*reader.store.hashes(1, 3)] == [row.hash for row in walk.rows()][:3]
        assert reader.store.latest("tombstone") is not None
        assert isinstance(verify(reader.store), VerifiedLog)


# fmt: off
TAMPERING = [
    ("UPDATE ringfence_records SET body = replace(body, 'echo 2', 'echo 9') WHERE id = 6", 6, "a changed field"),
    ("UPDATE ringfence_records SET body = body || ' ' WHERE id = 3",                       3, "a byte that changes no field"),
    ("UPDATE ringfence_records SET hash = '00' WHERE id = 4",                              4, "a changed hash"),
    ("UPDATE ringfence_records SET verdict = 'allow' WHERE verdict = 'deny'",             10, "what is only selected by"),
    ("DELETE FROM ringfence_records WHERE id = 5",                                         5, "a row taken out"),
    ("DELETE FROM ringfence_records WHERE id = 1",                                         1, "the first one"),
    ("DELETE FROM ringfence_records WHERE id >= 9",                                        9, "the end cut off"),
    ("DELETE FROM ringfence_records",                                                      1, "everything cut off"),
    ("UPDATE ringfence_logs SET hash = '00'",                                             23, "the head alone"),
]
# fmt: on


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("statement", "first", "why"), TAMPERING, ids=[row[2] for row in TAMPERING])
def test_tampering_is_named(server: Server, url: str, statement: str, first: int, why: str) -> None:
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        written(log)
        assert isinstance(verify(log.store), VerifiedLog)
        if "ringfence_records" in statement:
            with pytest.raises(subprocess.CalledProcessError):  # the fence, even for its owner
                server.sql(f"SET ROLE ringfence; {statement}")
        server.sql(f"SET session_replication_role = replica; {statement}")  # what the server's own administrator can do
        result = verify(log.store)
        assert isinstance(result, BrokenChain), why
        assert result.id == first, result.why


# fmt: off
BESIDE = [
    ("CREATE RULE x AS ON INSERT TO ringfence_records DO ALSO NOTIFY x",                         "relhasrules",    "a rule"),
    ("ALTER TABLE ringfence_records ENABLE ROW LEVEL SECURITY; CREATE POLICY x ON ringfence_records USING (verdict <> 'deny')", "", "a policy for rows"),
    ("CREATE FUNCTION ringfence_x() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$; CREATE TRIGGER x BEFORE INSERT ON ringfence_records FOR EACH ROW EXECUTE FUNCTION ringfence_x()", "its trigger", "one more trigger"),
    ("ALTER TABLE ringfence_records DISABLE TRIGGER ringfence_fence",                            "its trigger",    "the fence switched off"),
    ("DROP TRIGGER ringfence_fence ON ringfence_records",                                        "its trigger",    "no fence"),
    ("CREATE OR REPLACE FUNCTION ringfence_append_only() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$", "its function `ringfence_append_only`", "a fence that lets through"),
    ("CREATE OR REPLACE FUNCTION ringfence_append(body text, OUT number bigint, OUT hash text) LANGUAGE sql AS $$SELECT 1::bigint, ''$$", "its function `ringfence_append`", "another function"),
    ("ALTER FUNCTION ringfence_append SECURITY INVOKER",                                         "its function",   "a function with the rights of its caller"),
    ("ALTER FUNCTION ringfence_append SET search_path = public",                                 "its function",   "a function that looks elsewhere"),
    ("ALTER TABLE ringfence_records ADD COLUMN x text",                                          "its column",     "one more column"),
    ("ALTER TABLE ringfence_records ALTER COLUMN verdict SET DEFAULT 'allow'",                   "its column",     "a default"),
    ("ALTER TABLE ringfence_records ALTER COLUMN verdict TYPE text COLLATE \"C\"",               "its column",     "a collation"),
    ("ALTER TABLE ringfence_records ALTER COLUMN verdict TYPE varchar",                          "its column",     "another type"),
    ("ALTER TABLE ringfence_records ADD CHECK (id > 0)",                                         "its constraint", "a check"),
    ("CREATE INDEX x ON ringfence_records (tool)",                                               "its index",      "one more index"),
    ("DROP INDEX ringfence_by_denial",                                                           "its index",      "no index"),
    ("DROP INDEX ringfence_by_denial; CREATE INDEX ringfence_by_denial ON ringfence_records (id) WHERE verdict = 'zzz'", "its index", "another index"),
    ("CREATE TABLE x () INHERITS (ringfence_records)",                                           "",               "a table below"),
    ("ALTER TABLE ringfence_records SET UNLOGGED",                                               "its table",      "a table that a crash empties"),
    ("ALTER TABLE ringfence_records RENAME TO hidden; CREATE VIEW ringfence_records AS SELECT * FROM hidden WHERE verdict IS DISTINCT FROM 'deny'", "", "a view in the place of a table"),
]
# fmt: on


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("statement", "said", "why"), BESIDE, ids=[row[2] for row in BESIDE])
def test_what_is_changed_beside_the_records_is_named(server: Server, statement: str, said: str, why: str) -> None:
    server.sql("DROP SCHEMA IF EXISTS beside CASCADE; CREATE SCHEMA beside AUTHORIZATION ringfence")
    url = f"{server.url}&options=-csearch_path%3Dbeside"
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        written(log)
        assert isinstance(verify(log.store), VerifiedLog)
    server.sql(f"SET search_path = beside; SET ROLE ringfence; {statement}")
    with AuditLog.open_to_read(url) as log:
        result = verify(log.store)
    assert isinstance(result, BrokenChain), why
    assert said in result.why or said == "relhasrules"


@pytest.mark.threat("T25")
def test_an_index_that_answers_something_else_is_named(server: Server, url: str) -> None:
    """The administrator of a server can change the catalogue's definition of an index, but not the index itself."""
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        written(log)
        server.sql(
            "DROP INDEX ringfence_by_denial; CREATE INDEX other ON ringfence_records (id) WHERE verdict = 'deny';"
            "CREATE INDEX ringfence_by_denial ON ringfence_records (id) WHERE verdict = 'zzz';"
            "SET allow_system_table_mods = on; UPDATE pg_index SET indpred = (SELECT indpred FROM pg_index WHERE"
            " indexrelid = 'other'::regclass) WHERE indexrelid = 'ringfence_by_denial'::regclass; DROP INDEX other"
        )
    with AuditLog.open_to_read(url) as log:
        assert "`ringfence_by_denial` does not match" in getattr(verify(log.store), "why", "")


def append_without_end(url: str, name: int, told: IO[str]) -> None:
    """Append records and write the number of each to `told`, until this process is killed."""
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        while True:
            print(log.refused("s", refusal(f"{name}")), file=told, flush=True)


@pytest.mark.thorough
def test_writers_that_are_killed_lose_nothing_and_break_nothing(url: str) -> None:
    readers: list[tuple[int, IO[str]]] = []
    for who in range(8):
        reader, writer = os.pipe()
        if (process := os.fork()) == 0:
            try:
                with os.fdopen(writer, "w") as told_by_child:
                    append_without_end(url, who, told_by_child)
            finally:
                os._exit(1)
        os.close(writer)
        readers.append((process, os.fdopen(reader)))
    told: list[int] = []
    for place, (process, file) in enumerate(readers):
        with file:
            told += [int(file.readline()) for _ in range(5 + place)]
            os.kill(process, signal.SIGKILL)
            told += [int(line) for line in file if line.endswith("\n")]
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    with AuditLog(PostgresStore.open(url, write=False)) as log:
        assert isinstance(verify(log.store), VerifiedLog)
        kept = {record.id for record in log.rows()}
    assert len(told) == len(set(told)) >= 8 * 5
    assert set(told) <= kept


def test_a_writer_that_hangs_with_the_head_in_its_hand_does_not_hold_up_the_others_for_ever(url: str) -> None:
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        log.refused("s", refusal())
        with PostgresStore.open(f"{url}&options=-c%20lock_timeout%3D1", write=True).writing("x"):
            impatient = AuditLog(PostgresStore.open(url, write=True))
            connection = impatient.store._engine.connect()  # type: ignore[attr-defined]
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "15s"
            assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one() == "1min"
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"
            connection.close()
            impatient.close()
        log.refused("s", refusal())


# fmt: off
REFUSED = [
    ("postgresql://u:hunter2@127.0.0.1/audit",                "contains a password", "would be read by others"),
    ("postgresql://u@127.0.0.1/audit?password=hunter2",       "contains a password", "also there"),
    ("postgresql://u@127.0.0.1/audit?sslpassword=hunter2",    "contains a password", "that of a key"),
    ("postgresql://u@127.0.0.1/audit?ssl%70assword=hunter2",  "contains a password", "in another spelling"),
    ("postgresql://u:hunter%32@127.0.0.1/audit",              "contains a password", "in another spelling, too"),
    ("mysql://u@127.0.0.1/audit",                             "`mysql` is not supported", "another kind"),
    ("postgresql://127.0.0.1:1/audit",                        "connection failed",      "no program listens"),
    ("postgresql://u@127.0.0.1:x/audit",                      "it is not the URL",           "a port that is none"),
]
# fmt: on


@pytest.mark.parametrize(("address", "said", "why"), REFUSED, ids=[row[2] for row in REFUSED])
def test_an_address_that_does_not_do(address: str, said: str, why: str) -> None:
    with pytest.raises(AuditError, match=said) as caught:
        PostgresStore.open(address, write=True)
    assert "hunter2" not in str(caught.value)


def test_to_another_machine_only_by_tls_with_its_name_verified() -> None:
    import sqlalchemy as sa

    from runner.audit.stores.postgres_server import _is_local

    rows = {
        "postgresql://u@db.example/a": False,
        "postgresql://u@localhost/a": True,
        "postgresql://u@/a?host=/run": True,
        "postgresql://u@localhost/a?host=db.example": False,
        "postgresql://u@localhost/a?hostaddr=10.0.0.1": False,
        "postgresql://u@localhost/a?hostaddr=127.0.0.1": True,
        "postgresql:///a?service=fleet": False,
    }
    rows |= {"postgresql://u@10.0.0.1/a": False, "postgresql://u@[::1]/a": True, "postgresql://u@/a?host=x,/run": False}
    assert {address: _is_local(sa.make_url(address), {}) for address in rows} == rows
    local = sa.make_url("postgresql://u@localhost/a"), sa.make_url("postgresql:///a")
    said: list[tuple[dict[str, str], bool, bool]] = [
        ({"PGHOST": "db.example"}, True, False),  # which counts where the URL names no host
        ({"PGHOST": "/run/postgresql"}, True, True),
        ({"PGHOSTADDR": "10.0.0.1"}, False, False),
        ({"PGSERVICE": "fleet"}, False, False),
    ]
    for environ, *expected in said:
        assert [_is_local(each, environ) for each in local] == expected, environ


def test_a_server_that_does_not_sync_is_refused(server: Server, url: str) -> None:
    server.sql("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    try:
        until(lambda: server.sql("SHOW fsync") == "off")
        with pytest.raises(AuditError, match="does not sync") as caught:
            PostgresStore.open(url, write=True)
        assert caught.value.problem.fix.startswith("switch it on")
    finally:
        server.sql("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
        until(lambda: server.sql("SHOW fsync") == "on")


def test_a_failure_has_a_remedy_of_its_own(
    server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))

    def fix(said: str, address: str = url, write: bool = True) -> str:
        with pytest.raises(AuditError, match=said) as caught:
            PostgresStore.open(address, write=write)
        return caught.value.problem.fix

    assert fix("the database contains no log", write=False).startswith("run a command first")
    assert ".pgpass" in fix("password", server.by_network)
    assert fix("connection failed", "postgresql://127.0.0.1:1/audit").startswith("check that the server runs")
    PostgresStore.open(url, write=True).close()
    server.sql("UPDATE ringfence_logs SET schema = schema + 1")
    for write in (True, False):
        assert fix("a newer ringfence wrote it", write=write) == "install that version or a newer one"


def test_what_is_no_record_has_no_card() -> None:
    """Else a verification would stumble over it, beside the walk that names it."""
    for text in ("", "[]", "no JSON", "[" * 100_000):
        assert index_columns_of(text) == IndexColumns()


def test_bodies_are_kept_letter_by_letter(url: str) -> None:
    body: dict[str, object] = {"kind": "refused", "session": "\ud800\0", "tool": {"cut": "x"}, "odd": ["\x7f", 1e300]}
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        with log.store.writing("not kept") as writing:
            number = append(writing, body)
        row = log.store.get(number)
        assert row is not None
        assert row.body == canonical(body)
        assert isinstance(verify(log.store), VerifiedLog)


@pytest.fixture
def home(tmp_path: Path, server: Server) -> dict[str, str]:
    """The environment of a person whose configuration names the database, reached by the network with a password."""
    for folder in ("home", "work", "config"):
        (tmp_path / folder).mkdir()
    (tmp_path / "config/config.toml").write_text(f'audit.url = "{server.by_network}"\n')
    (tmp_path / "home/.pgpass").write_text(f"{server.address}:{server.port}:audit:ringfence:{PASSWORD}\n")
    (tmp_path / "home/.pgpass").chmod(0o600)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "RINGFENCE_CONFIG_DIR": str(tmp_path / "config"),
        "RINGFENCE_STATE_DIR": str(tmp_path / "state"),
    }


def agent(home: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    work = Path(home["HOME"]).parent / "work"
    return forked_agent.run([AGENT, *words], env=home, cwd=work, capture_output=True, text=True)


@pytest.mark.thorough
@pytest.mark.threat("T24")
def test_a_person_whose_record_is_in_a_database(url: str, home: dict[str, str], server: Server) -> None:
    done = agent(home, "exec", "--mode", "trust-project", "--", "touch", "made")
    assert (done.returncode, done.stderr) == (0, "")
    assert agent(home, "exec", "cat ~/.pgpass").returncode == 3
    listed = agent(home, "audit")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "touch made" in listed.stdout
    assert ".pgpass" in agent(home, "audit", "--denied").stdout
    assert agent(home, "audit", "verify").stdout.startswith("all ")
    assert "touch made" in agent(home, "audit", "--file", server.url).stdout
    assert not (Path(home["RINGFENCE_STATE_DIR"]) / "audit.db").exists()
    shown = agent(home, "config", "show", "--json")
    assert PASSWORD not in shown.stdout + listed.stdout + server.sql(
        "SELECT string_agg(body, '') FROM ringfence_records"
    )
    server.sql("SET session_replication_role = replica; DELETE FROM ringfence_records WHERE id = 2")
    assert "start a new log in another database or schema" in agent(home, "audit", "verify").stderr

    (Path(home["HOME"]) / ".pgpass").write_text("*:*:*:*:wrong\n")
    done = agent(home, "exec", "--mode", "trust-project", "--", "touch", "unrecorded")
    assert done.returncode == 1
    assert "password authentication failed" in done.stderr
    assert ".pgpass" in done.stderr
    assert not (Path(home["HOME"]).parent / "work/unrecorded").exists()


def test_a_password_in_the_configuration_is_an_error_with_its_line(home: dict[str, str]) -> None:
    file = Path(home["RINGFENCE_CONFIG_DIR"]) / "config.toml"
    file.write_text('[audit]\nurl = "postgresql://u:hunter2@h/d"\n')
    done = agent(home, "exec", "true")
    assert done.returncode == 2
    assert "it contains a password" in done.stderr
    assert f"{file}:2" in done.stderr
    assert "hunter2" not in done.stderr


def test_a_repository_cannot_send_the_record_elsewhere(url: str, home: dict[str, str]) -> None:
    (Path(home["RINGFENCE_CONFIG_DIR"]) / "config.toml").unlink()
    project = Path(home["HOME"]).parent / "work/.ringfence"
    project.mkdir()
    (project / "config.toml").write_text('audit.url = "postgresql://127.0.0.1:1/x"\n')
    done = agent(home, "exec", "true")
    assert done.returncode == 0
    assert (Path(home["RINGFENCE_STATE_DIR"]) / "audit.db").exists()


NARROW = """
    GRANT SELECT ON ringfence_records, ringfence_logs TO {role};
    GRANT EXECUTE ON FUNCTION ringfence_head, ringfence_append TO {role}
"""


def machine(server: Server, url: str, role: str = "writer") -> str:
    """The URL of a role with the rights that the documentation names for a machine, and no others."""
    AuditLog(PostgresStore.open(url, write=True)).close()
    server.sql(
        f"DO $$BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$",
        NARROW.format(role=role),
    )
    return url.replace("ringfence@", f"{role}@")


@pytest.mark.threat("T118")
def test_a_role_that_can_only_append(server: Server, url: str) -> None:
    """With the rights that the documentation names, and no others."""
    with AuditLog(PostgresStore.open(machine(server, url), write=True)) as log:
        written(log)
        assert isinstance(verify(log.store), VerifiedLog)
        with pytest.raises(AuditError, match="must be owner"), log.store.writing("not pruned") as writing:
            writing.remove(2)
        assert isinstance(verify(log.store), VerifiedLog)
        assert log.store.latest("checkpoint") is None, "those are the owner's"
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        assert log.checkpoint() is not None
        assert isinstance(verify(log.store), VerifiedLog)
        assert log.store.cautions() == ()


@pytest.mark.threat("T118")
def test_the_function_appends_what_the_program_would(server: Server, url: str, tmp_path: Path) -> None:
    """Hash and card of each record are those that this program computes, whatever its texts are."""
    odd = [
        "",
        "a",
        "\0",
        "\ud800",
        "\udc00",
        "\ud83d\ude00",
        "\ud800\ud83d\ude00\udc00",
        "\\\0",
        "\\u0000",
        '"',
        "ü",
        "[[{",
        "\x7f%s",
    ]
    bodies: list[dict[str, object]] = []
    for text in odd:
        shared = {"time": "2026-01-01T00:00:00.000Z", "session": text, "tool": {"cut": text}, "mode": text}
        reasons = [{"rule": text}, {"rule": "b"}, {"rule": text}, "x", {"rule": None}, {}]
        bodies += [
            {
                **shared,
                "kind": "decided",
                "verdict": text,
                "tiers": [text, "b"],
                "reasons": reasons,
                "because": {"rule": "z"},
            },
            {**shared, "kind": text or "x", "decided": 5, "sha256": text, "tiers": text, "reasons": []},
            {**shared, "kind": "session", "tiers": [], "decided": None, "because": [1], "reasons": [[1]]},
        ]
    with AuditLog(PostgresStore.open(machine(server, url), write=True)) as log:
        for body in bodies:
            with log.store.writing("not kept") as writing:
                append(writing, body)
        written(log)
        assert isinstance(verify(log.store), VerifiedLog)
        kept = [record.body for record in log.rows()][-len(bodies) :][::-1]
        assert kept == [json.loads(canonical(body)) for body in bodies]


RECORD = '{"kind":"refused","time":"2026-01-01T00:00:00.000Z"%s}'
# fmt: off
ENDING = [
    ("INSERT INTO ringfence_records (id, body, hash) VALUES (5000, '{}', 'x')",           "permission denied", "a number in advance"),
    ("UPDATE ringfence_logs SET last = 1",                                                "permission denied", "the head"),
    ("DELETE FROM ringfence_logs",                                                        "permission denied", "no head"),
    ("TRUNCATE ringfence_records",                                                        "permission denied", "everything"),
    ("SELECT * FROM ringfence_logs FOR UPDATE",                                           "permission denied", "a lock on the head"),
    ("SELECT * FROM ringfence_logs FOR KEY SHARE",                                        "permission denied", "a weak lock on the head"),
    ("BEGIN; LOCK TABLE ringfence_records IN SHARE MODE",                                        "permission denied", "a lock on the table"),
    ("CREATE TRIGGER x BEFORE INSERT ON ringfence_records EXECUTE FUNCTION suppress_redundant_updates_trigger()", "permission denied", "a trigger"),
    ("CREATE TABLE x (a bigint REFERENCES ringfence_records)",                            "permission denied", "a reference"),
    ("ALTER FUNCTION ringfence_head RESET ALL",                                           "must be owner",     "the function"),
    ("SELECT ringfence_append(NULL)",                                                     "",                  "nothing"),
    ("SELECT ringfence_append('x')",                                                      "",                  "no JSON"),
    ("SELECT ringfence_append('[1]')",                                                    "only the owner",    "no object"),
    ("SELECT ringfence_append('{}')",                                                     "only the owner",    "no kind"),
    ("SELECT ringfence_append('" + RECORD.replace("refused", "tombstone") % "" + "')",    "only the owner",    "a tombstone of all"),
    ("SELECT ringfence_append('" + RECORD.replace("refused", "checkpoint") % "" + "')",   "only the owner",    "a checkpoint that does not hold"),
    ("SELECT ringfence_append('" + RECORD.replace("refused", "\\u0074ombstone") % "" + "')", "only the owner", "a tombstone in another spelling"),
    ("SELECT ringfence_append('" + RECORD % ',"kind":"tombstone"' + "')",                 "only the owner",    "a tombstone said twice"),
    ("SELECT ringfence_append('" + RECORD.replace("2026", "9999") % "" + "')",            "the future",        "a time that keeps others from being pruned"),
    ("SELECT ringfence_append('" + RECORD % (',"x":' + "[" * 900 + "]" * 900) + "')",     "nested too deeply", "what no reader can take apart"),
    ("SELECT ringfence_append('" + RECORD % (',"x":' + "9" * 5000) + "')",                "too long",          "a number that no reader takes"),
    ("SELECT ringfence_append('" + RECORD % ',"x":"ü"' + "')",                            "not ASCII",         "letters that are spelled in two ways"),
    ("SELECT ringfence_append('" + RECORD % ',"decided":1e9' + "')",                      "names no decision", "a number that is none"),
    ("SELECT ringfence_append('" + RECORD % ',"tiers":[1]' + "')",                        "no text",           "a tier that is a number"),
    ("SELECT ringfence_append('" + RECORD % ',"reasons":[{"rule":1}]' + "')",             "no text",           "a rule that is a number"),
    ("SELECT pg_advisory_lock(1919512167, 'ringfence_logs'::regclass::oid::int), pg_sleep(600)", None, "the lock of those who append"),
    ("BEGIN; SAVEPOINT a; SELECT ringfence_head(); RELEASE a; SELECT pg_sleep(600)", None, "the head, held in a part of a transaction"),
    ("SELECT pg_advisory_lock(8244241983257013859), pg_sleep(600)",                       None,                "the lock of those who make the tables"),
    ("BEGIN; SELECT ringfence_append('" + RECORD % "" + "'), pg_sleep(600)",              None,                "the head, held open"),
    ("CREATE TEMP TABLE ringfence_logs (number int); SELECT ringfence_append('" + RECORD % "" + "')", "", "a table of the same name"),
    ("SET search_path = pg_temp; CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'; SELECT public.ringfence_append('" + RECORD % "" + "')", "", "a function of the same name"),
]
# fmt: on


class Fleet:
    """A log in a database of its own, which a machine (the role `writer`) and the owner append to."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._close = contextlib.ExitStack()
        self.harmed = True

    def intact(self) -> None:
        """Create the database, or create it again after an attack that did harm."""
        if not self.harmed:
            return
        self.close()
        self._server.sql(
            "DROP DATABASE IF EXISTS machines WITH (FORCE)",
            "CREATE DATABASE machines OWNER ringfence",
            "GRANT pg_signal_backend TO ringfence",
        )
        self.server = replace(self._server, database="machines")
        self.machine = machine(self.server, self.server.url)
        self.log = self._close.enter_context(AuditLog(PostgresStore.open(self.machine, write=True)))
        self.harmed = False

    def close(self) -> None:
        """Close the connections."""
        self._close.close()


@pytest.fixture(scope="module")
def _fleet(server: Server) -> Iterator[Fleet]:
    made = Fleet(server)
    yield made
    made.close()


@pytest.fixture
def fleet(_fleet: Fleet) -> Fleet:
    """Return one log for every attack, because each attack must leave it intact; a new one after an attack that did not."""
    _fleet.intact()
    return _fleet


@pytest.mark.threat("T118")
@pytest.mark.parametrize(("statement", "said", "why"), ENDING, ids=[row[2] for row in ENDING])
def test_one_machine_does_not_end_the_record_of_all(fleet: Fleet, statement: str, said: str | None, why: str) -> None:
    """With the rights of a machine: it is refused or harmless, and afterwards the others go on."""
    server = fleet.server
    before = fleet.log.refused("s", refusal())
    fleet.harmed = True
    words = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", str(server.folder), "-p", str(server.port), "-U", "writer"]
    attack = subprocess.Popen(
        [*words, server.database, "-c", statement], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        if said is not None:
            assert said in attack.communicate()[1], why
        else:
            sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            until(lambda: server.sql(sleeping) != "0", of=attack, what=why)
        for address in (fleet.machine, server.url):
            with AuditLog(PostgresStore.open(address, write=True)) as again:
                assert again.refused("s", refusal()) > before, why
        with AuditLog.open_to_read(server.url) as log:
            assert isinstance(verify(log.store), VerifiedLog), why
            assert log.get(before) is not None
    finally:
        if attack.poll() is None:
            attack.kill()
            attack.communicate()
            server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    fleet.log.refused("s", refusal())
    fleet.harmed = False


@pytest.mark.thorough
@pytest.mark.threat("T118")
def test_who_holds_the_log_is_named_where_nobody_may_end_it(server: Server, url: str) -> None:
    other = machine(server, url)
    server.sql("REVOKE pg_signal_backend FROM ringfence")
    machine(server, url, "holder")
    holder = PostgresStore.open(url.replace("ringfence@", "holder@"), write=True)
    with AuditLog(PostgresStore.open(other, write=True)) as log:
        with holder.writing("held"), pytest.raises(AuditError, match=r"the role holder .* holds the log") as caught:
            log.refused("s", refusal())
        assert caught.value.problem.fix.startswith("find that role")
        log.refused("s", refusal())
    holder.close()


@pytest.mark.threat("T118")
def test_rights_of_an_earlier_version_still_append_and_are_pointed_out(server: Server, url: str) -> None:
    AuditLog(PostgresStore.open(url, write=True)).close()
    server.sql("DROP FUNCTION ringfence_append, ringfence_head")
    server.sql("DO $$BEGIN CREATE ROLE wide LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$")
    server.sql("GRANT SELECT, INSERT ON ringfence_records TO wide; GRANT SELECT, UPDATE ON ringfence_logs TO wide")
    with AuditLog(PostgresStore.open(url.replace("ringfence@", "wide@"), write=True)) as log:
        written(log)
        assert isinstance(verify(log.store), VerifiedLog)
        assert log.store.cautions() == (
            "the role `wide` has the right INSERT on ringfence_records",
            "the role `wide` has the right UPDATE on ringfence_logs",
        )
    AuditLog(PostgresStore.open(url, write=True)).close()
    assert (
        server.sql("SELECT to_regproc('ringfence_append'), to_regproc('ringfence_head')")
        == "ringfence_append|ringfence_head"
    )


# fmt: off
WIDE = [
    ("GRANT INSERT (id, body, hash) ON ringfence_records TO other",  ("the role `other` has the right INSERT on the column id of ringfence_records",), "columns of the records"),
    ("GRANT UPDATE (last) ON ringfence_logs TO other",               ("the role `other` has the right UPDATE on the column last of ringfence_logs",), "a column of the head"),
    ("GRANT DELETE ON ringfence_records TO PUBLIC",                  ("every role has the right DELETE on ringfence_records",), "everybody"),
    ("GRANT ringfence TO other",                                     ("the role `other` has the rights of ringfence, who owns the tables",), "a member of the owner"),
    ("GRANT ringfence TO between; GRANT between TO other",           ("the role `other` has the rights of ringfence, who owns the tables",), "a member of a member"),
    ("GRANT pg_write_all_data TO other",                             ("the role `other` has the rights of pg_write_all_data, who writes all tables",), "who writes all tables"),
    ("ALTER SCHEMA rights OWNER TO between; GRANT USAGE ON SCHEMA rights TO ringfence; GRANT between TO other", ("the role `other` has the rights of between, who owns the schema",), "who may drop what is in the schema"),
    ("GRANT SELECT ON ringfence_records TO other; GRANT SELECT (last) ON ringfence_logs TO PUBLIC", (), "a reader"),
]
# fmt: on


@pytest.mark.threat("T118")
@pytest.mark.parametrize(("statement", "said", "why"), WIDE, ids=[row[2] for row in WIDE])
def test_who_may_do_more_than_append_is_named(
    server: Server, home: dict[str, str], statement: str, said: tuple[str, ...], why: str
) -> None:
    """By verification, and by `agent doctor` before anything happened."""
    for role in ("other LOGIN", "between"):
        server.sql(f"DO $$BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END$$")
    server.sql("DROP SCHEMA IF EXISTS rights CASCADE; CREATE SCHEMA rights AUTHORIZATION ringfence")
    url = f"{server.url}&options=-csearch_path%3Drights"
    AuditLog(PostgresStore.open(url, write=True)).close()
    server.sql(f"SET search_path = rights; {statement}")
    try:
        with AuditLog.open_to_read(url) as log:
            named = [each for each in log.store.cautions() if "`other`" in each or "every" in each]
        assert set(said) <= set(named), why
        assert bool(said) == bool(named), why
        found = record(url)
        assert found.state is (CheckState.WEAK if said else CheckState.OK), why
        assert any(each in found.detail for each in named) == bool(said)
    finally:
        server.sql("DROP OWNED BY other; REVOKE ringfence, between, pg_write_all_data FROM other, between")
        server.sql("DROP SCHEMA rights CASCADE")


def test_the_doctor_says_where_the_record_is_kept(home: dict[str, str], server: Server, url: str) -> None:
    assert record(url).fix.startswith("run a command first")
    AuditLog(PostgresStore.open(url, write=True)).close()
    assert record(url).state is CheckState.OK
    assert record(url.replace("/audit?", "/none?")).state is CheckState.MISSING
    told = json.loads(agent(home, "doctor", "--json").stdout)
    assert [each["state"] for each in told["findings"] if each["name"] == "record"] == ["ok"]


@pytest.mark.thorough
def test_a_pipeline_whose_record_is_in_a_database(url: str, home: dict[str, str]) -> None:
    base = Path(home["HOME"]).parent
    (base / "s.toml").write_text(
        '[[turn]]\ncalls = [{name = "bash", arguments = {command = "curl https://example.com"}}]\n[[turn]]\ntext = "ok"\n'
    )
    done = agent(home, "ci", "go", "--model", f"scripted:{base}/s.toml", "--seal", f"{base}/seal")
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [each["action"] for each in told["denied"]] == ["curl https://example.com"]
    assert agent(home, "audit", "verify", "--expect", told["log"]["head"]).returncode == 0
    assert agent(home, "audit", "verify", "--seal", f"{base}/seal").returncode == 0
    assert not (Path(home["RINGFENCE_STATE_DIR"]) / "audit.db").exists()
