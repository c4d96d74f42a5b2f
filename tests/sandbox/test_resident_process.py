"""The life of the resident process: one for a user, from its start to its end."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.law import number_of_examples
from tests.support.places import ROOT
from tests.support.resident_process import PATIENCE, resident, served, serving, short_place, status, until


@pytest.fixture
def place() -> Iterator[CliHarness]:
    with short_place() as made:
        yield made


@pytest.fixture(scope="module")
def steady() -> Iterator[CliHarness]:
    """A user with a resident process that all rows of a table share."""
    with short_place() as made, resident(made):
        yield made


def test_it_is_started_shown_and_ended(place: CliHarness) -> None:
    done = place.agent("serve", "--status")
    assert (done.returncode, done.stdout) == (1, "there is no resident process; `agent serve --start` starts one\n")
    assert place.agent("serve", "--stop").stderr == "notice: there is no resident process\n"
    assert place.agent("serve", "--start").returncode == 0
    assert place.agent("serve", "--start").stderr == "notice: the resident process runs already\n"
    folder = place.base / "state" / "resident"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()} == {
        "warm": 0o600, "control": 0o600, "lock": 0o600,
    }  # fmt: skip
    first = status(place)["pid"]
    again = place.agent("serve")
    assert again.returncode == 2
    assert "there is a resident process already" in again.stderr
    assert place.agent("serve", "--restart").returncode == 0
    assert status(place)["pid"] != first
    assert place.agent("serve", "--stop").stderr == "notice: the resident process has ended\n"
    assert {each.name for each in folder.iterdir()} == {"lock"}
    assert status(place) == {"running": False}


@pytest.mark.parametrize("words", [("--start", "--stop"), ("--json",), ("--status", "--restart")])
def test_options_that_do_not_fit_are_refused(place: CliHarness, words: tuple[str, ...]) -> None:
    done = CliHarness(place.base).agent("serve", *words)
    assert done.returncode == 2
    assert "  fix: " in done.stderr


def test_the_first_command_starts_it_if_the_user_wants(place: CliHarness) -> None:
    config = place.base / "config" / "ringfence"
    config.mkdir()
    (config / "config.toml").write_text("[serve]\nstart = true\n")
    assert place.agent("exec", "echo a").stdout == "a\n"
    until(lambda: status(place)["running"] is True, "the start")
    assert place.agent("why", "ls").returncode == 0
    assert served(place) == 1
    home = str(place.base / "home")
    assert len(serving("HOME", home)) == 1, "its rehearsal of commands starts no further one"


def test_a_repository_cannot_start_it(place: CliHarness) -> None:
    (place.work / ".ringfence.toml").write_text("[serve]\nstart = true\n")
    assert place.agent("exec", "--unattended", "true").returncode == 0
    assert status(place) == {"running": False}


def test_it_ends_when_it_has_nothing_to_do(place: CliHarness) -> None:
    with resident(place, "[serve]", "idle = 1") as process:
        assert place.agent("exec", "true").returncode == 0
        assert process.wait(PATIENCE) == 0


@pytest.mark.threat("T276")
def test_it_ends_when_its_sockets_are_removed(place: CliHarness) -> None:
    with resident(place) as process:
        (place.base / "state" / "resident" / "warm").unlink()
        assert process.wait(PATIENCE) == 0


@pytest.mark.threat("T276")
@pytest.mark.parametrize(("words", "code"), [(("serve",), 0), (("serve", "--stay"), 1)], ids=["usual", "by systemd"])
def test_a_changed_program_runs_cold(place: CliHarness, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    """A worker compares the folders of the program before each command; the process compares all files."""
    copy = tmp_path / "program"
    copy.mkdir()
    for name in ("policy", "profiles", "runner", "sandbox", "tools"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "ringfence.py", copy)
    program = tmp_path / "agent"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(copy)!r})\nfrom ringfence import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *words],
            cwd=place.work,
            env=place.environ,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
        )

    process = subprocess.Popen(
        [program, *words], cwd="/", env=place.environ, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        assert process.stderr is not None
        assert b"is ready" in process.stderr.readline()
        assert run("exec", "echo a").stdout == "a\n"
        assert json.loads(run("serve", "--status", "--json").stdout)["served"] == 1
        assert place.agent("exec", "echo b").stdout == "b\n"  # another copy of the program
        wording = copy / "runner" / "frontends" / "exec" / "report.py"
        again = wording.with_suffix(".new")
        again.write_text(wording.read_text() + "\n# changed\n")
        again.rename(wording)
        assert run("exec", "echo c").stdout == "c\n"
        assert json.loads(run("serve", "--status", "--json").stdout).get("served", 1) == 1
        assert process.wait(PATIENCE) == code  # nothing depends on it any more
    finally:
        process.kill()
        process.communicate()


@pytest.mark.threat("T276")
@pytest.mark.parametrize(
    "line",
    [
        b"\n", b"{\n", b"[]\n", b'{"op": "nonsense"}\n', b'{"op": "spawn"}\n', b"x" * 100, b"\xff\n",
        b'{"op": "spawn", "kind": "shell", "words": [], "environ": {}, "cwd": "/"}\n',
        b'{"op": "spawn", "kind": "job", "words": ["a\\u0000"], "environ": {}, "cwd": "/"}\n',
        b'{"op": "spawn", "kind": "job", "words": [], "environ": {}, "cwd": "/missing"}\n',
    ],
)  # fmt: skip
def test_nonsense_changes_nothing(steady: CliHarness, line: bytes) -> None:
    import socket

    before = status(steady)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(steady.base / "state" / "resident" / "control"))
        client.sendall(line)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(PATIENCE)
        assert b'"pid"' not in client.recv(1 << 16)
    after = status(steady)
    assert (after["pid"], after["processes"]) == (before["pid"], [])
    assert steady.agent("exec", "echo a").stdout == "a\n"
    assert served(steady) == before["served"] + 1


@pytest.mark.threat("T275")
def test_what_it_started_ends_with_it(place: CliHarness) -> None:
    from runner.resident.control import ask

    with resident(place) as process:
        request = {
            "op": "spawn",
            "kind": "job",
            "words": ["mcp", "serve"],
            "environ": place.environ,
            "cwd": str(place.work),
        }
        found = ask(place.environ, request)
        assert found is not None
        pid = int(str(found["pid"]))  # it ends at once, because its input is empty
        until(lambda: status(place)["processes"] == [], "the note of its end")
        log = (place.base / "state" / "resident" / "log").read_text()
        assert f"started job {pid}" in log
        assert f"ended job {pid}" in log
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_the_path_of_the_state_folder_may_be_too_long(tmp_path: Path) -> None:
    place = CliHarness(tmp_path, execve=True)
    state = tmp_path / ("x" * 100)
    for name in ("home", "work", "config", "cache"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [AGENT, "serve", "--start"],
        cwd=place.work,
        env={**place.environ, "RINGFENCE_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "RINGFENCE_STATE_DIR" in done.stderr
    done = subprocess.run(
        [AGENT, "exec", "echo a"],
        cwd=place.work,
        env={**place.environ, "RINGFENCE_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "a\n"


@pytest.mark.thorough
@pytest.mark.threat("T275")
@pytest.mark.slow("each victim is killed at two moments at least")
def test_nothing_is_left_or_lost_by_kills() -> None:
    """`python tests/fuzz/kill_resident.py` plays five hundred rounds."""
    rounds = str(number_of_examples(12, many=100))
    program = str(ROOT / "tests" / "fuzz" / "kill_resident.py")
    words = [sys.executable, program, "--rounds", rounds, "--seed", str(os.getpid())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
