"""Tests of a session that sends its decisions to a collector while it runs: all are sent, and none delays the
session.
"""

import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.audit.log import AuditLog
from runner.audit.otlp_stream import OtlpStream
from runner.audit.records import Refusal
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import allowed, info
from tests.support.otlp_server import GOOD, Answer, Collecting, collector, values


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    monkeypatch.setenv("NO_PROXY", "*")


def numbers(seen: Collecting) -> list[int]:
    return [int(str(values(log.attributes)["ringfence.record.id"])) for log in seen.records]


def run(folder: Path, address: str, scripts: list[str], patience: str = "60") -> subprocess.CompletedProcess[str]:
    """One unattended run of a scripted model, with the collector named in the user's configuration."""
    home, work = folder / "home", folder / "work"
    (home / ".config" / "ringfence").mkdir(parents=True, exist_ok=True)
    (home / ".config" / "ringfence" / "config.toml").write_text(f'[audit]\notlp = "{address}"\n')
    work.mkdir(exist_ok=True)
    turns = [*({"calls": [{"name": "bash", "arguments": {"command": each}}]} for each in scripts), {"text": "done"}]
    (folder / "script.json").write_text(json.dumps({"turn": turns}))
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "OTEL_EXPORTER_OTLP_TIMEOUT": patience,
    }
    command = [AGENT, "run", "--model", f"scripted:{folder / 'script.json'}", "--unattended", "--json", "do it"]
    return forked_agent.run(command, env=environ, cwd=work, capture_output=True, text=True, timeout=100)


def notices(done: subprocess.CompletedProcess[str]) -> list[str]:
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [event["text"] for event in events if event["type"] == "notice" and "collector" in event["text"]]


def test_a_run_sends_what_it_decided(tmp_path: Path) -> None:
    with collector() as seen:
        done = run(tmp_path, seen.address, ["ls", "cat ~/.ssh/id_rsa", "echo hi"])
        assert done.returncode == 3, done.stderr
        assert notices(done) == []
        found = {str(values(log.attributes)["ringfence.action"]): values(log.attributes) for log in seen.records}
    assert list(found) == ["ls", "cat ~/.ssh/id_rsa", "echo hi"]
    assert [each["ringfence.verdict"] for each in found.values()] == ["allow", "deny", "allow"]
    assert found["ls"]["process.exit.code"] == 0, "with its outcome"


@pytest.mark.thorough
def test_a_run_without_its_collector_is_the_same_run_and_says_so(tmp_path: Path) -> None:
    with socket.socket() as silent:  # its port is nobody else's meanwhile
        silent.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = run(tmp_path, address, ["ls", "echo hi"], patience="3")
    assert done.returncode == 0, done.stderr
    (said,) = notices(done)
    assert "2 decisions of this session did not reach the collector" in said
    assert "no program listens at that address" in said
    words = said.partition("`")[2].partition("`")[0].split()
    with collector() as seen:
        words[words.index("--endpoint") + 1] = seen.address
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
        later = forked_agent.run([AGENT, *words[1:]], env=environ, capture_output=True, text=True, timeout=60)
        assert (later.returncode, later.stderr) == (0, "")
        assert len(seen.records) == 2


@pytest.mark.threat("T99")
@pytest.mark.parametrize("name", [".ringfence/config.toml", ".ringfence/config.local.toml"])
def test_a_repository_sends_nothing_anywhere(tmp_path: Path, name: str) -> None:
    with collector() as seen, collector() as theirs:
        file = tmp_path / "work" / name
        file.parent.mkdir(parents=True)
        file.write_text(f'[audit]\notlp = "{theirs.address}"\n')
        done = run(tmp_path, seen.address, ["ls"])
        assert done.returncode in (0, 2), done.stderr
        assert theirs.requests == []


class Log:
    """A log that is written to while it is sent."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.db"
        self.log = AuditLog.open(self.path)
        self.session = self.log.session(info())

    def refuse(self, count: int) -> list[int]:
        problem = Problem("a", "b", "c")
        return [self.log.refused(self.session, Refusal("bash", str(number), problem)) for number in range(count)]


def test_only_this_session_is_sent_and_what_has_no_outcome_yet_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from policy.model.action import RunScript

    monkeypatch.setattr("runner.audit.otlp_stream.PATIENCE", 30.0)
    log = Log(tmp_path)
    other = log.log.session(info())
    log.log.refused(other, Refusal("bash", "other", Problem("a", "b", "c")))
    with collector() as seen:
        sending = OtlpStream(log.path, log.session, f"{seen.address}/v1/logs")
        open_ = log.log.decided(log.session, allowed(RunScript("sleep 9", "/w")))
        denied = log.refuse(2)
        assert sending.close() is None
        assert sorted(numbers(seen)) == sorted([open_, *denied])
    log.log.close()


def test_a_collector_that_comes_back_gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.audit.otlp_stream.EVERY", 0.05)
    monkeypatch.setattr("runner.audit.otlp_stream._AGAIN", 0.05)
    monkeypatch.setattr("runner.audit.otlp_stream.PATIENCE", 30.0)
    monkeypatch.setattr("runner.audit.otlp_stream.SHORT", 30.0)
    log = Log(tmp_path)
    tried = threading.Event()

    def moody(number: int) -> Answer:
        if number == 0:
            tried.set()
            return 400, "text/plain", b"not today"
        return GOOD

    with collector(moody) as seen:
        sending = OtlpStream(log.path, log.session, f"{seen.address}/v1/logs")
        wanted = log.refuse(3)
        assert tried.wait()
        wanted += log.refuse(3)
        assert sending.close() is None
        assert set(numbers(seen)) == set(wanted)
    log.log.close()


def test_a_collector_that_never_answers_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.audit.otlp_stream.PATIENCE", 0.2)
    log = Log(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        sending = OtlpStream(log.path, log.session, f"http://127.0.0.1:{deaf.getsockname()[1]}/v1/logs")
        log.refuse(2)
        said = sending.close()
    assert said is not None
    assert "did not reach the collector" in said
    assert f"--session {log.session}" in said
    log.log.close()
