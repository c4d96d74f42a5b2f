"""Tests of the audit log: durable, chained, append-only. Each kind of tampering is named, each failure stops the
action.
"""

import json
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.action import RunArgv, RunScript
from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.decisions import record_named
from runner.audit.list_view import json_lines, lines, whole
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.audit.records import TEXT_KEPT, Refusal
from runner.audit.stores import sqlite
from runner.audit.verify import VerifiedLog, verify
from sandbox.backend import Connection, Outcome, Violation
from tests.support.audit_records import TERMS, allowed, denied, fill, info
from tests.support.law import examples
from tests.support.places import ROOT


def test_a_decision_is_whole_again_when_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    with AuditLog.open(path) as log:
        session = log.session(info())
        number = log.decided(session, denied(RunScript("cat ~/.ssh/id_rsa", "/w")))
        (record,) = log.rows(kind="decided")
    assert record.id == number == 2
    body = record.body
    assert body["action"] == {"type": "RunScript", "script": "cat ~/.ssh/id_rsa", "cwd": "/w", "timeout": None}
    assert body["cell"] == {"tier": "secret", "mode": "default", "ruling": "deny"}
    assert body["because"] == {
        "tier": "secret",
        "text": "reads a file",
        "rule": "command:cat:3",
        "span": [0, 3],
    }
    assert body["answer"] == {
        "question": "really?",
        "yes": False,
        "source": "user",
        "by": "terminal",
        "feedback": "no!",
        "seconds": None,
    }
    assert body["session"] == session


@pytest.mark.threat("T24")
def test_the_record_is_durable_before_decided_returns(tmp_path: Path) -> None:
    """Another process sees it at once, and it outlives a kill -9 right after."""
    path = tmp_path / "audit.db"
    script = """
        import os, signal, sys
        from pathlib import Path
        from runner.audit.log import AuditLog
        from runner.audit.records import Refusal
        from policy.model.verdict import Problem
        log = AuditLog.open(Path(sys.argv[1]))
        for number in range(1_000_000):
            log.refused("s", Refusal("bash", str(number), Problem("a", "b", "c")))
            os.write(1, b"%d\\n" % number)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    with AuditLog.open(path) as log:
        result = verify(log.store)
        assert isinstance(result, VerifiedLog)
        assert result.count >= len(acknowledged) > 19
        log.refused("s", Refusal("bash", "after", Problem("a", "b", "c")))
        assert isinstance(verify(log.store), VerifiedLog)


@pytest.mark.threat("T25")
def test_four_writers_at_once_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    script = """
        import sys
        from pathlib import Path
        from runner.audit.log import AuditLog
        from runner.audit.records import Refusal
        from policy.model.verdict import Problem
        with AuditLog.open(Path(sys.argv[1])) as log:
            for number in range(40):
                log.refused(sys.argv[2], Refusal("bash", str(number), Problem("a", "b", "c")))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    writers = [subprocess.Popen([*command, name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    with AuditLog.open_to_read(path) as log:
        result = verify(log.store)
        assert isinstance(result, VerifiedLog)
        assert result.head == f"160:{next(log.rows()).hash}"
        for name in "abcd":
            kept = [record.body["arguments"] for record in log.rows(query=Query(sessions=(name,)))]
            assert kept == [str(number) for number in reversed(range(40))], "each writer's own order is kept"


@pytest.mark.threat("T25")
@pytest.mark.parametrize("statement", ["UPDATE records SET body = '{}'", "DELETE FROM records WHERE id = 1"])
def test_the_fence_refuses_accidents(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "audit.db"
    fill(path, 1)
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw.execute(statement)
    raw.close()


@pytest.mark.threat("T25")
def test_the_file_is_private_and_a_stranger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path, 1)
    for found in tmp_path.iterdir():
        assert stat.S_IMODE(found.stat().st_mode) == 0o600, found
    path.chmod(0o644)
    AuditLog.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "an open door is closed again"
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(AuditError, match="cannot be opened"):
        AuditLog.open(link)
    os.mkfifo(tmp_path / "fifo.db")
    with pytest.raises(AuditError, match="not a plain file"):
        AuditLog.open(tmp_path / "fifo.db")


@pytest.mark.threat("T24")
def test_a_log_that_takes_no_more_raises_and_stays_whole(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes every write beyond a size fail, as a full disk does."""
    script = """
        import resource, sys
        from pathlib import Path
        from runner.audit.log import AuditError, AuditLog
        from runner.audit.records import Refusal
        from policy.model.verdict import Problem
        log = AuditLog.open(Path(sys.argv[1]))
        log.refused("s", Refusal("bash", "before", Problem("a", "b", "c")))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            for number in range(1000):
                log.refused("s", Refusal("bash", "x" * 10_000, Problem("a", "b", "c")))
        except AuditError as error:
            print(error.problem.what, "|", error.problem.fix)
            sys.exit(0 if number else 9)
        sys.exit(8)
    """
    path = tmp_path / "audit.db"
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "could not be recorded" in done.stdout
    with AuditLog.open(path) as log:
        assert isinstance(verify(log.store), VerifiedLog)
        assert log.refused("s", Refusal("bash", "later", Problem("a", "b", "c"))) > 1
        assert isinstance(verify(log.store), VerifiedLog)


@pytest.mark.threat("T24")
def test_a_full_disk_is_said_to_be_full(tmp_path: Path) -> None:
    """A real full file system: a 1 MB tmpfs in a mount namespace of its own (without root, in a user namespace)."""
    script = """
        import sys
        from pathlib import Path
        from runner.audit.log import AuditError, AuditLog
        from runner.audit.records import Refusal
        from policy.model.verdict import Problem
        path = Path(sys.argv[1]) / "State/audit.db"
        path.parent.mkdir()
        AuditLog.open(path).close()
        log = AuditLog.open(path.with_name("other.db"))
        try:
            for number in range(1000):
                log.refused("s", Refusal("bash", "x" * 10_000, Problem("a", "b", "c")))
        except AuditError as error:
            print(error.problem)
            try:
                with open(path.with_name("ballast"), "wb", 0) as ballast:
                    while ballast.write(b"x" * 4096):
                        pass
            except OSError:
                pass  # full it is
            try:
                AuditLog.open(path).close()
            except AuditError as error:
                print(error.problem)
                sys.exit(0 if number else 9)
        sys.exit(8)
    """
    inner = f'mount -t tmpfs -o size=1m none "{tmp_path}" && exec "$@"'
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--mount", "sh", "-c", inner, "sh", sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("disk is full") == 2, "also where SQLite has no word for it"
    assert done.stdout.count("free some disk space") == 2
    assert f"{tmp_path}/State/audit.db" in done.stdout, "a path keeps its capitals"


@pytest.mark.threat("T24")
def test_a_log_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    fill(path, 1)
    os.chmod(path, 0o400)
    with AuditLog.open_to_read(path) as log, pytest.raises(AuditError, match="could not be recorded"):
        log.refused("s", Refusal("bash", "{", Problem("a", "b", "c")))
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"this is not a database at all, not even a little" * 100)
    with pytest.raises(AuditError, match="not a database"):
        AuditLog.open(garbage)
    with pytest.raises(AuditError, match="no such file"):
        AuditLog.open_to_read(tmp_path / "missing.db")


HARD_TEXTS = ["\ud800 lone", "nul \0 inside", "\x1b[2J\u202e", "é漢🎉", '"}{', "x" * 1_000_000]


@pytest.mark.parametrize("text", HARD_TEXTS, ids=["surrogate", "nul", "escapes", "wide", "json", "huge"])
def test_any_text_can_be_recorded_and_shown(tmp_path: Path, text: str) -> None:
    with AuditLog.open(tmp_path / "audit.db") as log:
        session = log.session(info())
        log.decided(session, allowed(RunScript(text, "/w")))
        log.decided(session, denied(RunArgv((text, text), "/w")))
        log.refused(session, Refusal(text, text, Problem(text, text, text)))
        assert isinstance(verify(log.store), VerifiedLog)
        for line in [*lines(log), *json_lines(log)]:
            line.encode("utf-8")
            assert "\x1b" not in line
            assert "\u202e" not in line
            assert len(line) < 12 * TEXT_KEPT + 10_000


@pytest.mark.threat("T40")
def test_a_long_text_is_cut_with_the_hash_of_the_whole(tmp_path: Path) -> None:
    import hashlib

    script = "echo " + "y" * 100_000
    with AuditLog.open(tmp_path / "audit.db") as log:
        log.decided(log.session(info()), allowed(RunScript(script, "/w")))
        (record,) = log.rows(kind="decided")
    kept = record.body["action"]
    assert isinstance(kept, dict)
    digest = hashlib.sha256(script.encode()).hexdigest()
    assert kept["script"] == {"cut": script[:TEXT_KEPT], "length": len(script), "sha256": digest}


@pytest.mark.threat("T40")
def test_environment_values_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    with AuditLog.open(path) as log:
        log.decided(log.session(info()), allowed(RunScript("env", "/w")))
        (record,) = log.rows(kind="decided")
        assert record.body["digest"] == TERMS.digest
    assert all(b"hunter2" not in found.read_bytes() for found in tmp_path.iterdir())
    assert "TOKEN" in json.dumps(record.body)


def reached(host: str, why: str = "") -> Connection:
    return Connection(host, 443, "tunnel", "" if why else "192.0.2.1", not why, why, 10, 20, 0.1)


@pytest.mark.threat("T52")
def test_every_attempt_to_reach_a_host_is_recorded_with_its_verdict(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path / "audit.db") as log:
        decided = log.decided(log.session(info()), allowed(RunScript("env", "/w")))
        made = (reached("a.org"), *(reached(f"{n}.org", "no") for n in range(300)))
        log.finished(decided, Outcome(1, connections=made))
        (record,) = log.rows(kind="finished")
    listed = record.body["connections"]
    assert isinstance(listed, list)
    assert record.body["connected"] == 301
    assert len(listed) == 200
    assert listed[0] == {
        **{"host": "a.org", "port": 443, "asked": "tunnel", "address": "192.0.2.1", "allowed": True, "why": ""},
        **{"sent": 10, "received": 20, "seconds": 0.1, "credential": ""},
    }
    assert (listed[1]["allowed"], listed[1]["why"]) == (False, "no")


def test_the_redactor_sees_every_text(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path / "audit.db", redact=lambda text: text.replace("sk-live", "[secret]")) as log:
        session = log.session(info())
        decided = log.decided(session, allowed(RunArgv(("echo", "sk-live"), "/w")))
        found = Violation("read sk-live", "/sk-live", "sk-live", True)
        log.finished(decided, Outcome(1, violations=(found,), problem=Problem("sk-live", "", "")))
        log.refused(session, Refusal("bash", '{"a": "sk-live"}', Problem("a", "b", "c")))
        assert all("sk-live" not in json.dumps(record.body) for record in log.rows())


@examples(60)
@given(st.lists(st.text(st.characters()), min_size=1, max_size=4), st.booleans())
def test_whatever_is_recorded_verifies(tmp_path_factory: pytest.TempPathFactory, words: list[str], yes: bool) -> None:
    path = tmp_path_factory.mktemp("law") / "audit.db"
    with AuditLog.open(path) as log:
        make = allowed if yes else denied
        log.decided(log.session(info()), make(RunArgv(tuple(words), "/w")))
        assert isinstance(verify(log.store), VerifiedLog)
        (record,) = log.rows(kind="decided")
        action = record.body["action"]
        assert isinstance(action, dict)
        assert action["argv"] == words


def test_the_listing(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path / "audit.db") as log:
        assert list(lines(log)) == ["nothing was decided yet"]
        assert list(lines(log, Query(verdicts=("deny",)))) == ["nothing was denied"]
        session = log.session(info())
        one = log.decided(session, allowed(RunScript("cat a\nrm b", "/w")))
        stopped = Violation("write was stopped", "/etc/x", "do not", True)
        made = (reached("a.org"), reached("a.org"), reached("b.org", "host b.org is not on the allowlist"))
        made += (reached("2001:db8::1", "not on the allowlist"), reached("", "it could not be read"))
        log.finished(one, Outcome(1, seconds=0.5, violations=(stopped,), connections=made))
        log.decided(session, denied(RunArgv(("cat", "/home/u/.ssh/id_rsa"), "/w")))
        problem = Problem("`command` is not text", "it is a number", "quote it")
        log.refused(session, Refusal("bash", '{"command": 3}', problem))
        shown = [line if line.startswith("  " * 3) else line[:7] + line[28:] for line in lines(log)]
        assert shown == [
            '    5  deny   malformed      bash  {"command": 3}',
            "       `command` is not text",
            "    4  deny   secret         bash  $ cat /home/u/.ssh/id_rsa",
            "       reads a file (command:cat:3; secret x default = deny)",
            "       answered: no, by terminal",
            "    2  allow  read           exec  $ cat a␊rm b",
            "       reads a file (command:cat:3; read x default = allow)",
            "       exit 1 after 0.50 s",
            "       network: a.org:443 allowed, b.org:443 denied, [2001:db8::1]:443 denied, an unreadable host denied",
            "       blocked: write was stopped",
        ]
        assert [json.loads(line)["id"] for line in json_lines(log, Query(verdicts=("deny",)))] == [5, 4]
        assert [json.loads(line)["id"] for line in json_lines(log, limit=1)] == [5]
        newest_first = [json.loads(line)["outcome"] for line in json_lines(log)]
        assert newest_first[:2] == [None, None]
        assert newest_first[2]["status"] == 1
        found = record_named(log, "2")
        assert found is not None
        assert json.loads(whole(log, found))["session_record"]["enforcement"]["level"] == "FULL"
        assert record_named(log, "77") is None


def test_the_limit_of_open_files_is_a_problem_too(tmp_path: Path) -> None:
    """Any failure of the kernel to give us the log is a Problem, never a traceback and never a run without a record."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest free number, wherever other tests left holes: from it on nothing can be opened
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(AuditError, match="cannot be opened"):
            AuditLog.open(tmp_path / "audit.db")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_APPEND = """
from runner.audit.log import AuditLog
from runner.audit.records import Refusal
from policy.model.verdict import Problem
with AuditLog.open(path) as log:
    log.refused("s", Refusal("bash", "more", Problem("a", "b", "c")))
"""
# fmt: off
MEANWHILE: list[tuple[str, bool, str]] = [
    # what another process does with a file that was opened before it was needed, whether the open file is used, why
    ("",                                                    True,  "nothing happens"),
    (_APPEND,                                               True,  "the chain goes on after another record"),
    ("path = path.with_name('b')" + _APPEND + "os.replace(path, path.with_name('audit.db'))", False, "records would be lost with the replaced file"),
    ("path.unlink()",                                       False, "a new file is made"),
    ("path.chmod(0o644)",                                   False, "the file is made private again"),
    ("path.with_name('audit.db-wal').unlink()",             False, "the write-ahead file is another one"),
]
# fmt: on


@pytest.mark.threat("T312")
@pytest.mark.parametrize(("change", "used", "why"), MEANWHILE, ids=[row[2] for row in MEANWHILE])
def test_a_log_that_is_opened_ahead_is_the_one_that_opening_would_find(
    tmp_path: Path, change: str, used: bool, why: str
) -> None:
    path = tmp_path / "audit.db"
    fill(path)
    sqlite.open_ahead(path)
    (ahead,) = sqlite._ahead
    code = f"import os, sys\nfrom pathlib import Path\npath = Path(sys.argv[1])\n{change}"
    subprocess.run([sys.executable, "-c", code, path], check=True, cwd=ROOT)
    with AuditLog.open(path) as log:
        assert (log.store is ahead) is used
        assert not sqlite._ahead
        log.refused("s", Refusal("bash", "last", Problem("a", "b", "c")))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with AuditLog.open_to_read(path) as log:
        assert next(log.rows()).body["arguments"] == "last"
        assert isinstance(verify(log.store), VerifiedLog)


@pytest.mark.threat("T312")
def test_a_log_that_is_opened_ahead_is_never_made_and_never_that_of_another_place(tmp_path: Path) -> None:
    path, other = tmp_path / "audit.db", tmp_path / "other.db"
    sqlite.open_ahead(path)
    assert not path.exists()
    fill(path)
    sqlite.open_ahead(path)
    fill(other)
    assert not sqlite._ahead
    sqlite.open_ahead(path)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE more (one)")
    os.replace(other, path)
    with pytest.raises(AuditError):
        AuditLog.open(path)
    sqlite.open_ahead(path)
    assert not sqlite._ahead, "a file that cannot be opened is left for the command to report"
