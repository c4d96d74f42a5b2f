"""The resident judge of `agent guard hook --warm`: it answers like the hook itself, and never from old settings."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.frontends.guard.resident import ask_resident
from tests.support.cli_harness import AGENT, CliHarness

_PATIENCE = 60.0  # seconds


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliHarness]:
    base = Path(f"/tmp/rf-guard-{os.getpid()}-{time.monotonic_ns()}")  # the path of a socket has at most 107 bytes
    base.mkdir()
    for name in ("home", "work", "state", "config", "cache"):
        (base / name).mkdir()
    subprocess.run(["git", "init", "-q", str(base / "work")], check=True)
    made = CliHarness(base)
    for name in list(os.environ):
        if name.startswith(("XDG_", "RINGFENCE_")):
            monkeypatch.delenv(name)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", [AGENT])
    monkeypatch.chdir(made.work)
    yield made
    lock = base / "state" / "guard" / "judge.lock"
    until(lambda: lock.exists() and lock.read_text().endswith("\n"))  # every test starts a judge, at the latest now
    judge = Path(f"/proc/{int(lock.read_text())}")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if b"judge" in (judge / "cmdline").read_bytes():
            os.kill(int(judge.name), signal.SIGKILL)
    until(lambda: not judge.exists() or b"judge" not in (judge / "cmdline").read_bytes())
    subprocess.run(["rm", "-rf", str(base)], check=True)


def call(place: CliHarness, script: str) -> bytes:
    source = {
        "session_id": "s1",
        "cwd": str(place.work),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": script},
        "tool_use_id": "c1",
    }
    return json.dumps(source).encode()


def decision(out: str) -> str:
    return str(json.loads(out)["hookSpecificOutput"]["permissionDecision"])


def started(place: CliHarness) -> None:
    """Call the hook once, and wait until the judge that it started answers."""
    done = place.agent("guard", "hook", "claude", "--warm", stdin=call(place, "ls"))
    assert decision(done.stdout) == "allow", done.stderr
    until(lambda: ask_resident("claude", {}, call(place, "ls")) is not None)


@pytest.mark.threat("T193")
def test_it_answers_from_the_settings_and_the_state_of_the_moment(place: CliHarness) -> None:
    started(place)
    found = ask_resident("claude", {}, call(place, "git status"))
    assert found is not None
    assert decision(found[0]) == "allow"
    config = place.base / "config" / "ringfence"
    config.mkdir()
    (config / "config.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["git", "status", "**"]\nwhy = "today"\n')
    found = ask_resident("claude", {}, call(place, "git status"))
    assert found is not None
    assert decision(found[0]) == "deny", found
    (config / "config.toml").write_text("[")
    found = ask_resident("claude", {}, call(place, "git status"))
    assert found is not None
    assert (found[0], found[2]) == ("", 2)
    done = place.agent("guard", "hook", "claude", "--warm", stdin=b"{")
    assert done.returncode == 2


@pytest.mark.threat("T193")
def test_it_ends_when_its_socket_is_gone(place: CliHarness) -> None:
    started(place)
    judge = int((place.base / "state" / "guard" / "judge.lock").read_text())
    (place.base / "state" / "guard" / "judge").unlink()
    until(lambda: not Path(f"/proc/{judge}/cmdline").exists() or not Path(f"/proc/{judge}/cmdline").read_bytes())


@pytest.mark.threat("T193")
@pytest.mark.parametrize("answer", [b"", b"[", b"[1]", b'{"a": 1}', b'["", "", "x"]'])
def test_a_judge_that_answers_something_else_is_not_believed(place: CliHarness, answer: bytes) -> None:
    """The hook judges by itself then."""
    (place.base / "state" / "guard").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place.base / "state" / "guard" / "judge"))
        server.listen()
        process = subprocess.Popen(
            [AGENT, "guard", "hook", "claude", "--warm"],
            env=place.environ,
            cwd=place.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(call(place, "ls"))
        process.stdin.close()
        server.settimeout(_PATIENCE)
        client, _ = server.accept()
        with client:
            while client.recv(1 << 16):
                pass
            client.sendall(answer)
        assert process.stdout is not None
        with process.stdout:
            assert decision(process.stdout.read().decode()) == "allow"
        assert process.wait(_PATIENCE) == 0
