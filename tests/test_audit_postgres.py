"""The record in a real PostgreSQL: the same answers as from a file, the same proof, and nothing runs without it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.action import ReadFile, RunScript
from policy.tier import Mode
from runner.audit.card import Card, card_of
from runner.audit.chain import canonical
from runner.audit.deeds import deeds
from runner.audit.log import AuditLog, Broken, Sealed
from runner.audit.postgres import PostgresStore
from runner.audit.prune import Plan, plan, prune
from runner.audit.query import Query
from runner.audit.store import AuditError
from sandbox.backend import Outcome
from tests.audit_records import allowed, denied, info, refusal
from tests.postgres import PASSWORD, Server, postgres

AGENT = Path(sys.executable).parent / "agent"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    """An empty database, at the URL of its owner."""
    server.sql("DROP TABLE IF EXISTS ringfence_records, ringfence_logs; DROP FUNCTION IF EXISTS ringfence_append_only")
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
    Query(rules=("policy/commands/cat.toml:1",)),
    Query(modes=("plan",)),
    Query(tools=("bash", "\ud800")),
    Query(workspaces=("/other",)),
    Query(sessions=("%", "_", "a", "0")),
    Query(since="2020"),
    Query(until="2020"),
    Query(asked=True),
]


def test_it_answers_as_a_file_does(tmp_path: Path, url: str) -> None:
    """The same records in both: the same hashes, and for every query the same decisions in the same order."""
    with AuditLog.open(tmp_path / "audit.db") as file, AuditLog(PostgresStore.open(url, write=True)) as fleet:
        written(file)
        for record in reversed(list(file.rows())):
            with fleet.store.writing("not copied") as writing:
                fleet.add(writing, record.body)
        assert [*fleet.rows()] == [*file.rows()]
        for query in QUERIES:
            assert [*deeds(fleet, query)] == [*deeds(file, query)], query
            assert [*deeds(fleet, query, limit=3)] == [*deeds(file, query, limit=3)], query
        assert fleet.verify() == file.verify()
        assert isinstance(fleet.verify(), Sealed)
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
                fleet.add(writing, record.body)
        last = [row.body["time"] for row in file.rows()][12]
        for before, silent in (("2000", "2000"), ("2100", "2000"), (str(last), "2100"), ("2100", "2100")):
            assert plan(fleet.store, before, silent) == plan(file.store, before, silent)
        assert sorted(fleet.store.spans(99)) == sorted(file.store.spans(99))
        prune(fleet, Plan(1, 11, 1, "2100"), lambda: None)
        fleet.store.shrink()
        result = fleet.verify()
        assert isinstance(result, Sealed)
        assert (result.count, result.chains[0].pruned, [row.id for row in fleet.rows()][-1]) == (24, 11, 12)
        assert plan(fleet.store, "2100", "2100").first == 12


def test_a_walk_is_of_one_moment_with_all_that_is_asked_on_the_way(url: str) -> None:
    """Else a log that is pruned while it is verified would look as if somebody had changed it."""
    with AuditLog(PostgresStore.open(url, write=True)) as log, AuditLog(PostgresStore.open(url, write=False)) as reader:
        written(log)
        with reader.store.walking() as walk:
            prune(log, Plan(1, 11, 1, "2100"), lambda: None)
            assert reader.store.latest("tombstone") is None
            assert [*reader.store.hashes(1, 3)] == [row.hash for row in walk.rows()][:3]
        assert reader.store.latest("tombstone") is not None
        assert isinstance(reader.verify(), Sealed)


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
        assert isinstance(log.verify(), Sealed)
        if "ringfence_records" in statement:
            with pytest.raises(subprocess.CalledProcessError):  # the fence, even for its owner
                server.sql(f"SET ROLE ringfence; {statement}")
        server.sql(f"SET session_replication_role = replica; {statement}")  # what the server's own administrator can do
        result = log.verify()
        assert isinstance(result, Broken), why
        assert result.id == first, result.why


WRITER = """
import sys
from tests.audit_records import refusal
from runner.audit.log import AuditLog
from runner.audit.postgres import PostgresStore
from runner.audit.prune import Plan, plan, prune
with AuditLog(PostgresStore.open(sys.argv[1], write=True)) as log:
    for number in range(10_000):
        print(log.refused("s", refusal(f"{sys.argv[2]} {number}")), flush=True)
"""


def test_writers_that_are_killed_lose_nothing_and_break_nothing(url: str) -> None:
    top = Path(__file__).parent.parent
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(who)], cwd=top, stdout=subprocess.PIPE, text=True)
        for who in range(8)
    ]
    told: list[int] = []
    for place, writer in enumerate(writers):
        assert writer.stdout is not None
        told += [int(writer.stdout.readline()) for _ in range(5 + place)]
        writer.send_signal(signal.SIGKILL)
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
        writer.wait()
    with AuditLog(PostgresStore.open(url, write=False)) as log:
        assert isinstance(log.verify(), Sealed)
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
    ("postgresql://u:hunter2@127.0.0.1/audit",                "password in it",         "would be read by others"),
    ("postgresql://u@127.0.0.1/audit?password=hunter2",       "password in it",         "also there"),
    ("mysql://u@127.0.0.1/audit",                             "`mysql` is no database", "another kind"),
    ("postgresql://127.0.0.1:1/audit",                        "connection failed",      "nobody listens"),
    ("postgresql://u@127.0.0.1:x/audit",                      "it is no URL",           "a port that is none"),
]
# fmt: on


@pytest.mark.parametrize(("address", "said", "why"), REFUSED, ids=[row[2] for row in REFUSED])
def test_an_address_that_does_not_do(address: str, said: str, why: str) -> None:
    with pytest.raises(AuditError, match=said) as caught:
        PostgresStore.open(address, write=True)
    assert "hunter2" not in str(caught.value)


def test_to_another_machine_only_by_tls_with_its_name_verified() -> None:
    import sqlalchemy as sa

    from runner.audit.postgres_server import _here

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
    assert {address: _here(sa.make_url(address), {}) for address in rows} == rows
    local = sa.make_url("postgresql://u@localhost/a"), sa.make_url("postgresql:///a")
    said: list[tuple[dict[str, str], bool, bool]] = [
        ({"PGHOST": "db.example"}, True, False),  # which counts where the URL names no host
        ({"PGHOST": "/run/postgresql"}, True, True),
        ({"PGHOSTADDR": "10.0.0.1"}, False, False),
        ({"PGSERVICE": "fleet"}, False, False),
    ]
    for environ, *expected in said:
        assert [_here(each, environ) for each in local] == expected, environ


def test_a_server_that_does_not_sync_is_refused(server: Server, url: str) -> None:
    server.sql("ALTER SYSTEM SET fsync = off")
    server.sql("SELECT pg_reload_conf()")
    try:
        until = time.monotonic() + 20
        while server.sql("SHOW fsync") != "off" and time.monotonic() < until:
            time.sleep(0.02)
        with pytest.raises(AuditError, match="does not sync"):
            PostgresStore.open(url, write=True)
    finally:
        server.sql("ALTER SYSTEM RESET fsync")
        server.sql("SELECT pg_reload_conf()")
        while server.sql("SHOW fsync") != "on" and time.monotonic() < until + 20:
            time.sleep(0.02)


def test_what_is_no_record_has_no_card() -> None:
    """Else a verification would stumble over it, beside the walk that names it."""
    for text in ("", "[]", "no JSON", "[" * 100_000):
        assert card_of(text) == Card()


def test_bodies_are_kept_letter_by_letter(url: str) -> None:
    body: dict[str, object] = {"kind": "refused", "session": "\ud800\0", "tool": {"cut": "x"}, "odd": ["\x7f", 1e300]}
    with AuditLog(PostgresStore.open(url, write=True)) as log:
        with log.store.writing("not kept") as writing:
            number = log.add(writing, body)
        row = log.store.get(number)
        assert row is not None
        assert row.body == canonical(body)
        assert isinstance(log.verify(), Sealed)


@pytest.fixture
def home(tmp_path: Path, server: Server) -> dict[str, str]:
    """The environment of a person whose configuration names the database, reached by the network with a password."""
    for folder in ("home", "work", "config"):
        (tmp_path / folder).mkdir()
    (tmp_path / "config/config.toml").write_text(f'audit.url = "{server.by_network}"\n')
    (tmp_path / "home/.pgpass").write_text(f"127.0.0.1:{server.port}:audit:ringfence:{PASSWORD}\n")
    (tmp_path / "home/.pgpass").chmod(0o600)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "RINGFENCE_CONFIG_DIR": str(tmp_path / "config"),
        "RINGFENCE_STATE_DIR": str(tmp_path / "state"),
    }


def agent(home: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    work = Path(home["HOME"]).parent / "work"
    return subprocess.run([AGENT, *words], env=home, cwd=work, capture_output=True, text=True, timeout=120)


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
    assert "there is a password in it" in done.stderr
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


def test_a_role_that_can_only_append(server: Server, url: str) -> None:
    """With the rights that the documentation names, and no others."""
    AuditLog(PostgresStore.open(url, write=True)).close()
    server.sql("DO $$BEGIN CREATE ROLE writer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$")
    server.sql("GRANT SELECT, INSERT ON ringfence_records TO writer; GRANT SELECT, UPDATE ON ringfence_logs TO writer")
    with AuditLog(PostgresStore.open(url.replace("ringfence@", "writer@"), write=True)) as log:
        written(log)
        assert isinstance(log.verify(), Sealed)
        with pytest.raises(AuditError, match="must be owner"), log.store.writing("not pruned") as writing:
            writing.remove(2)
        assert isinstance(log.verify(), Sealed)


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
