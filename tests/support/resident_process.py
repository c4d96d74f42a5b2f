"""A resident process for tests: of one user, in a state folder of its own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import waiting
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.marked_processes import processes_about

processes = processes_about
PATIENCE = 60.0  # seconds


def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait for a condition."""
    waiting.until(condition, what=what)


@contextlib.contextmanager
def short_place() -> Iterator[CliHarness]:
    """Yield a user whose state folder has a short path: that of a socket has at most 107 bytes."""
    base = Path(tempfile.mkdtemp(prefix="rf-", dir="/tmp"))
    try:
        for name in ("home", "work", "state", "config", "cache"):
            (base / name).mkdir(mode=0o700)
        subprocess.run(["git", "init", "-q", str(base / "work")], check=True)
        yield CliHarness(base, execve=True)
    finally:
        end_resident(base / "state")
        shutil.rmtree(base)


@contextlib.contextmanager
def resident(place: CliHarness, *settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `agent serve` for `place`, and end it. `settings` are lines of the user's configuration file."""
    if settings:
        folder = place.base / "config" / "ringfence"
        folder.mkdir(exist_ok=True, mode=0o700)
        (folder / "config.toml").write_text("\n".join(settings) + "\n")
    process = subprocess.Popen(
        [AGENT, "serve"], env=place.environ, cwd=place.work, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert "is ready" in said, said + process.stderr.read().decode()
        yield process
    finally:
        process.terminate()
        process.communicate()


class Served(int):
    """A number of commands, which a failed assertion shows with the log of the resident process."""

    log = ""

    def __repr__(self) -> str:
        return f"{int(self)} ({self.log})"


def status(place: CliHarness) -> dict[str, Any]:
    """Return what the resident process says about itself. The command that asks is forked: it never runs in a worker."""
    found: dict[str, Any] = json.loads(CliHarness(place.base).agent("serve", "--status", "--json").stdout)
    return found


def served(place: CliHarness) -> Served:
    """Return the number of commands that workers have run or are running."""
    found = Served(status(place)["served"])
    log = place.base / "state" / "resident" / "log"
    found.log = " / ".join(log.read_text().splitlines()[-3:]) if log.exists() else "no log"
    return found


def end_resident(state: Path) -> None:
    """End the resident processes of a state folder, also one that is just starting, and wait until they are gone."""

    def gone() -> bool:
        found = serving("RINGFENCE_STATE_DIR", str(state))
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return not found

    until(gone, "the end of the resident process")


def serving(variable: str, value: str) -> list[int]:
    """Return the processes that run `agent serve` with that variable and were not forked by another one of them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = f"{variable}={value}\0".encode() in (path / "environ").read_bytes() + b"\0"
            if mine and b"serve" in (path / "cmdline").read_bytes().split(b"\0"):
                found[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in found.items() if parent not in found]
