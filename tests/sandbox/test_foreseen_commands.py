"""Helpers that workers prepare for the next command: they are used, carry nothing of another command, and end."""

import json
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.verdict import Rights, Terms
from runner.frontends.resident.forecast import Forecast
from runner.frontends.resident.worker import serve_one
from runner.resident.peer import PeerState, standing
from sandbox.inside import syscalls
from sandbox.linux.launch import LaunchRequest
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.resident_process import PATIENCE, resident, served, short_place, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the resident process is Linux's")


class TemporaryFilesApart(CliHarness):
    """A user whose temporary files are in a folder of their own."""

    @property
    def environ(self) -> dict[str, str]:
        return {**CliHarness(self.base).environ, "TMPDIR": str(self.base / "tmp")}


@pytest.fixture
def place() -> Iterator[CliHarness]:
    with short_place() as made:
        (made.base / "tmp").mkdir()
        yield TemporaryFilesApart(made.base)


def prepared(place: CliHarness) -> set[str]:
    """Return the folders of the helpers that wait with a plan."""
    return {path.name for path in (place.base / "tmp").glob("ringfence-tmp-*")}


def settled(place: CliHarness) -> bool:
    """Return True if no worker runs or ends, and both workers that wait have prepared a helper."""
    if len(prepared(place)) != 2:
        return False
    status = json.loads(place.agent("serve", "--status", "--json").stdout)
    return (status["working"], status["waiting"], len(prepared(place))) == (0, 2, 2)


def foresee(place: CliHarness, *words: str, change: Callable[[], object] | None = None) -> None:
    """Run a command until both workers that wait have prepared a helper for the same command."""
    for _ in range(3):
        done = subprocess.run(
            [AGENT, *words],
            cwd=place.work,
            env=place.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            preexec_fn=change,
        )
        assert done.returncode == 0
    until(lambda: settled(place), "the preparation of helpers")


@pytest.mark.threat("T312")
def test_helpers_are_prepared_used_and_removed(place: CliHarness) -> None:
    with resident(place):
        assert not prepared(place), "nothing is prepared before the first command"
        foresee(place, "exec", "ls")
        before = prepared(place)
        assert place.agent("exec", "pwd").stdout == f"{place.work}\n"
        until(lambda: settled(place), "the preparation of another one")
        assert len(prepared(place) & before) == 1, "one was used"
        assert served(place) == 4
    assert not list((place.base / "tmp").iterdir()), "they end with the resident process"


@pytest.mark.threat("T312")
@pytest.mark.slow("commands of three callers, each also without a resident process")
def test_a_command_gets_the_state_and_the_environment_of_its_own_caller(place: CliHarness) -> None:
    script = "umask; ulimit -n; ulimit -Hn; nice; nproc; echo $LANG; pwd; ls -a"

    def run(words: tuple[str, ...], lang: str, *, other: bool) -> str:
        def change() -> None:
            os.umask(0o027)
            resource.setrlimit(resource.RLIMIT_NOFILE, (333, 444))
            os.nice(3)
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

        done = subprocess.run(
            [AGENT, "exec", *words],
            cwd=place.work,
            env={**place.environ, "LANG": lang},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            preexec_fn=change if other else None,
        )
        return done.stdout + done.stderr

    rows = [((script,), "C.UTF-8", False), ((script,), "C", False), ((script,), "C.UTF-8", True)]
    rows += [(("--limit", "open_files=99", script), "C.UTF-8", False), (("--read", "/opt", "ls /opt"), "C", False)]
    cold = [run(*row[:2], other=row[2]) for row in rows]
    assert len(set(cold)) == len(rows), "each row has another answer"
    with resident(place):
        for row, expected in zip(rows, cold, strict=True):
            foresee(place, "exec", script)
            assert run(*row[:2], other=row[2]) == expected


@pytest.mark.threat("T312")
@pytest.mark.parametrize("first", [(), (32, 33)], ids=["usual", "as make(1)"])
def test_signals_of_the_c_library_are_ignored_as_by_the_caller(place: CliHarness, first: tuple[int, ...]) -> None:
    """The order of the callers does not matter. make(1) and posix_spawn(3) ignore these signals."""
    words = ("exec", "ps -o ignored=")  # of the helper and of the command

    def ignore(signals: tuple[int, ...]) -> None:
        for number in signals:
            syscalls.ignore_signal(number)

    def run(signals: tuple[int, ...]) -> str:
        done = subprocess.run(
            [AGENT, *words],
            cwd=place.work,
            env=place.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            preexec_fn=lambda: ignore(signals),
        )
        return done.stdout + done.stderr

    for second in ((), (32, 33)):
        cold = run(second)
        with resident(place):
            foresee(place, *words, change=lambda: ignore(first))
            assert len(prepared(place)) == 2
            assert run(second) == cold
            assert served(place) == 4


@pytest.mark.threat("T312")
def test_a_secret_file_that_appears_is_hidden_and_a_rule_that_appears_counts(place: CliHarness) -> None:
    words = ("exec", "--mode", "trust-project", "grep -rs decoy .; true")
    with resident(place):
        foresee(place, *words)
        (place.work / ".env").write_text("TOKEN=decoy\n")
        assert "decoy" not in place.agent(*words).stdout
        foresee(place, "exec", "ls")
        folder = place.base / "config" / "ringfence"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["ls", "**"]\nwhy = "today"\n')
        assert place.agent("exec", "ls").returncode == 3


class ForecastForAMoment:
    """A forecast whose helper has to end three seconds after it was prepared, however long that took."""

    over = False

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def until(self) -> float:
        """Return the time at which it ends; the worker looks at it when it has prepared the helper."""
        return time.monotonic() + 3.0


@pytest.mark.threat("T312")
def test_a_helper_with_its_folder_elsewhere_is_not_used(place: CliHarness) -> None:
    """The caller has another folder for temporary files."""
    (place.base / "other").mkdir()
    script = "echo begun; cat"
    with resident(place):
        foresee(place, "exec", script)
        environ = {**place.environ, "TMPDIR": str(place.base / "other")}
        with subprocess.Popen(
            [AGENT, "exec", script], cwd=place.work, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            assert list((place.base / "other").glob("ringfence-tmp-*"))
            process.communicate(timeout=PATIENCE)
        assert served(place) == 4


@pytest.mark.threat("T312")
def test_a_helper_that_nobody_needed_ends(place: CliHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker waits on."""
    monkeypatch.setattr("tempfile.tempdir", str(place.base / "tmp"))
    assert tempfile.gettempdir() == str(place.base / "tmp")
    terms = Terms(Rights.READ_ONLY, str(place.work), "/nonexistent", system=("/usr", "/bin", "/lib", "/lib64"))
    limits = tuple((number, resource.getrlimit(number)) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE))
    score = int(Path("/proc/self/oom_score_adj").read_text())
    state = PeerState(
        0o022, 0, 0, limits, os.getpriority(os.PRIO_PROCESS, 0), frozenset(os.sched_getaffinity(0)), score
    )
    temporary = str(place.base / "tmp")
    data = pickle.dumps(Forecast(LaunchRequest("T1", terms, place.base / "cache"), state, temporary))
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place.base / "socket"))
    server.listen()
    server.setblocking(False)
    moment: Any = ForecastForAMoment(data)
    pid = os.fork()
    if pid == 0:
        try:
            serve_one(server, standing(), {}, [], lambda _: None, lambda _: None, lambda _: 0, moment, lambda _: None)
        finally:
            os._exit(0)
    until(lambda: len(prepared(place)) == 1, "the preparation")
    until(lambda: not prepared(place), "the end of the helper")
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    server.close()
