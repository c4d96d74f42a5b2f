"""`agent guard hook --warm` answers by the resident process: like the hook itself, and never from old settings."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_program import impatient
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.resident_process import PATIENCE, resident, served, short_place, until


@pytest.fixture
def place() -> Iterator[CliHarness]:
    with short_place() as made:
        yield made


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


@pytest.mark.threat("T193")
def test_it_answers_from_the_settings_and_the_state_of_the_moment(place: CliHarness) -> None:
    with resident(place):
        words = ("guard", "hook", "claude", "--warm")
        done = place.agent(*words, stdin=call(place, "git status"))
        assert decision(done.stdout) == "allow"
        config = place.base / "config" / "ringfence"
        config.mkdir()
        rule = '[[rule]]\nverdict = "deny"\nrun = ["git", "status", "**"]\nwhy = "today"\n'
        (config / "config.toml").write_text(rule)
        done = place.agent(*words, stdin=call(place, "git status"))
        assert decision(done.stdout) == "deny"
        (config / "config.toml").write_text("[")
        done = place.agent(*words, stdin=call(place, "git status"))
        assert (done.stdout, done.returncode) == ("", 2)
        assert "config.toml" in done.stderr
        done = place.agent(*words, stdin=b"{")
        assert done.returncode == 2
        assert served(place) == 4


@pytest.mark.threat("T193")
def test_the_first_call_starts_the_resident_process(place: CliHarness) -> None:
    words = ("guard", "hook", "claude", "--warm")
    done = place.agent(*words, stdin=call(place, "ls"))
    assert decision(done.stdout) == "allow"
    until(lambda: (place.base / "state" / "resident" / "control").exists(), "the start")
    until(lambda: place.agent("serve", "--status").returncode == 0, "the start")
    assert decision(place.agent(*words, stdin=call(place, "ls")).stdout) == "allow"
    assert served(place) == 1


@pytest.mark.threat("T193")
@pytest.mark.parametrize(
    "answer", [b"", b"ready\n", b"ready x\n", b"ready 99999999999999999999\n", b"cold\n", b"code 0\n"]
)
def test_a_process_that_answers_something_else_is_not_believed(place: CliHarness, answer: bytes) -> None:
    """The hook judges by itself then."""
    (place.base / "state" / "resident").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place.base / "state" / "resident" / "warm"))
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
        server.settimeout(PATIENCE)
        client, _ = server.accept()
        with client:
            client.recv(1 << 16)
            client.sendall(answer)
            client.shutdown(socket.SHUT_WR)
            assert process.stdout is not None
            with process.stdout:
                assert decision(process.stdout.read().decode()) == "allow"
        assert process.wait(PATIENCE) == 0


@pytest.mark.threat("T193")
def test_a_worker_that_dies_is_no_answer(place: CliHarness) -> None:
    """Also if it had written a part of the answer: the hook reads it only if the worker ended by itself."""
    with resident(place) as process:
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGSTOP)
        hook = subprocess.Popen(
            [*impatient("runner.resident.client", "PATIENCE", 0.3), "guard", "hook", "claude", "--warm"],
            env=place.environ,
            cwd=place.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        out, _ = hook.communicate(call(place, "ls"), timeout=PATIENCE)
        assert decision(out.decode()) == "allow"
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGCONT)
