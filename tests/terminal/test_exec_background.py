"""Tests of `agent exec --background` with the real sandbox: the start, `agent processes` and `agent ports`, and the end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from runner.audit.log import AuditLog
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.waiting import has_ended, until

START = ("exec", "--mode", "trust-project", "--background")


@pytest.fixture
def user(tmp_path: Path) -> CliHarness:
    for name in ("work", "home", "state"):
        (tmp_path / name).mkdir(mode=0o700)
    return CliHarness(tmp_path, execve=True)


def rows(user: CliHarness) -> list[dict[str, object]]:
    return [json.loads(line) for line in user.agent("processes", "--json").stdout.splitlines()]


def supervisor_of(user: CliHarness) -> int:
    """Return the process ID of the supervisor, which is at the other end of the control socket."""
    (path,) = (user.base / "state" / "control").iterdir()
    folder = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"/proc/self/fd/{folder}/{path.name}")
            return int.from_bytes(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
    finally:
        os.close(folder)


def descendants(pid: int) -> set[int]:
    """Return the processes below `pid`, also those in other PID namespaces."""
    found, queue = set[int](), [pid]
    while queue:
        for task in Path(f"/proc/{queue.pop()}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                below = {int(each) for each in task.read_text().split()}
                queue += below - found
                found |= below
    return found


def gone(pids: set[int]) -> None:
    """Wait until every process has ended. A zombie has ended."""
    until(lambda: all(map(has_ended, pids)))


@pytest.mark.threat("T159")
def test_a_server_is_listed_read_forwarded_and_stopped(user: CliHarness) -> None:
    (user.work / "page").write_text("served from the sandbox\n")
    # The pipes of the caller are at their end when `agent` returns: otherwise this call would wait for the server.
    done = user.agent(*START, "echo begun; exec python3 -m http.server 3000")
    name = done.stdout.strip()
    assert (done.returncode, done.stdout) == (0, f"{name}\n")
    assert f"agent processes stop {name}" in done.stderr
    supervisor = supervisor_of(user)
    until(lambda: rows(user)[0]["ports"], of=supervisor)
    listed = rows(user)
    assert [(row["id"], row["running"], row["ports"]) for row in listed] == [(name, True, [3000])]
    assert user.agent("processes", "output", name).stdout.startswith("begun\n")
    assert "3000" in user.agent("ports").stdout
    url = user.agent("ports", "forward", "3000", "0").stdout.partition(" leads to port 3000 of ")[0]
    with urllib.request.urlopen(f"{url}/page") as answer:
        assert answer.read() == b"served from the sandbox\n"
    assert os.getsid(supervisor) == supervisor, "it has no terminal"
    assert {os.readlink(f"/proc/{supervisor}/fd/{stream}") for stream in (0, 1, 2)} == {os.devnull}
    tree = descendants(supervisor)
    assert tree
    stopped = user.agent("processes", "stop", name)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout.startswith(f"{name} ended (cancelled)")
    gone({supervisor, *tree})
    assert list((user.base / "state" / "control").iterdir()) == []
    with contextlib.closing(AuditLog.open(user.base / "state" / "audit.db")) as audit:
        counts = {kind: len(list(audit.rows(kind=kind))) for kind in ("decided", "started", "forwarded", "finished")}
    assert counts == {"decided": 1, "started": 1, "forwarded": 1, "finished": 2}


@pytest.mark.threat("T159")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_the_tree_ends_with_its_supervisor(user: CliHarness, number: signal.Signals) -> None:
    read, write = os.pipe()  # a pipe that a careless caller leaves open
    os.set_inheritable(write, True)
    done = subprocess.run(
        [AGENT, *START, "--json", "sleep 600 & setsid sleep 600 & wait"],
        cwd=user.work, env=user.environ, capture_output=True, stdin=subprocess.DEVNULL, close_fds=False,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 0, done.stderr
    with open(read, "rb") as pipe:
        assert pipe.read() == b"", "the supervisor does not hold it"
    assert set(json.loads(done.stdout)) == {"process", "session", "record", "command", "rights", "output"}
    supervisor = supervisor_of(user)
    tree = descendants(supervisor)
    assert tree
    os.kill(supervisor, number)
    gone({supervisor, *tree})
    assert rows(user) == []


# the words after `agent exec --mode trust-project --background`, the exit code, what is said, why
NOT_STARTED = [
    (("cat ~/.ssh/id_rsa",), 3, "denied: ", "a denial"),
    (("--", "./broken"), 127, "broken", "an interpreter that does not exist"),
    (("--limit", "output=1M", "sleep 600"), 2, "exclude each other", "a limit that does not apply"),
    (("--backend", "T9", "sleep 600"), 2, "no backend", "an unknown sandbox"),
]


@pytest.mark.threat("T159")
@pytest.mark.parametrize(("words", "code", "said", "why"), NOT_STARTED, ids=[row[3] for row in NOT_STARTED])
def test_what_cannot_run_starts_nothing(
    user: CliHarness, words: tuple[str, ...], code: int, said: str, why: str
) -> None:
    (user.work / "broken").write_text("#!/nonexistent/interpreter\n")
    (user.work / "broken").chmod(0o755)
    done = user.agent(*START, *words)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr
    assert user.agent("processes").stdout == "no open session has a background process\n"


def test_only_a_time_that_was_set_ends_it(user: CliHarness) -> None:
    name = user.agent(*START, "--timeout", "0.5", "sleep 600").stdout.strip()
    assert name
    outcome = until(lambda: user.audit()[0]["outcome"])
    assert isinstance(outcome, dict)
    assert outcome["ended_by"] == "wall"
