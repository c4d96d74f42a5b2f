"""A resident process for tests: of one user, in a state folder of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.cli_harness import AGENT, CliHarness

PATIENCE = 60.0  # seconds


def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait for a condition. Fail if it does not become true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)


@contextlib.contextmanager
def short_place() -> Iterator[CliHarness]:
    """Yield a user whose state folder has a short path: that of a socket has at most 107 bytes."""
    base = Path(tempfile.mkdtemp(prefix="rf-", dir="/tmp"))
    try:
        for name in ("home", "work", "state", "config", "cache"):
            (base / name).mkdir(mode=0o700)
        subprocess.run(["git", "init", "-q", str(base / "work")], check=True)
        yield CliHarness(base)
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
        process.communicate(timeout=PATIENCE)


def served(place: CliHarness) -> int:
    """Return the number of commands that workers have run or are running."""
    import json

    done = place.agent("serve", "--status", "--json")
    return int(json.loads(done.stdout)["served"])


def end_resident(state: Path) -> None:
    """End the resident process of a state folder, if there is one, and wait until it and its workers are gone."""
    lock = state / "resident" / "lock"
    if not lock.exists() or not lock.read_text().strip():
        return
    pid = int(lock.read_text())
    words = Path(f"/proc/{pid}/cmdline")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if b"serve" in words.read_bytes():
            os.kill(pid, signal.SIGTERM)
            until(lambda: not words.exists() or not words.read_bytes(), "the end of the resident process")
