"""Benchmark part: resuming a session of 100,000 entries, and adding one entry."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from runner.events import RunEnded
from runner.messages import AssistantMessage, TextBlock, ToolCall, ToolResult, Usage, UserMessage
from runner.secrets.redactor import Redactor
from runner.sessions.journal import Journal
from runner.sessions.open import SessionRun, SessionTarget
from runner.sessions.store import SessionStore
from tests.support.session_files import verdict

HERE = Path(__file__).resolve().parent
RUN = SessionRun("0123456789abcdef", "/w", "/w", "default", "scripted:s", unattended=False)
OUTPUT = "test_something.py::test_case PASSED\n" * 12  # 430 bytes
_RESUME = """
import resource, sys, time
from pathlib import Path
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
from runner.sessions.open import SessionTarget
from runner.sessions.store import SessionStore
begin = SessionTarget.resumed(SessionStore.of(Path(sys.argv[1]), "/w"), "0123456789abcdef", model=lambda own: "scripted:s")
seconds = time.perf_counter() - started
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(begin.past.history), len(begin._tree))
"""


def _turn(journal: Journal, number: int) -> int:
    """Ten entries, as a prompt with two calls makes them."""
    journal.message(UserMessage((TextBlock(f"prompt {number}: look into it, please"),)))
    journal.usage(Usage(1000, 20, 600, 0))
    calls = tuple(ToolCall(f"toolu_{number}_{each}", "bash", {"command": f"pytest -q tests/{each}"}) for each in "ab")
    journal.message(AssistantMessage((TextBlock("I look at it, then I know more. " * 4), *calls)))
    for place, call in enumerate(calls):
        journal.call(verdict(call.id, "it runs tests"))
        journal.result(place, ToolResult(call.id, (TextBlock(OUTPUT),)))
    journal.message(AssistantMessage((TextBlock("It is fine now. " * 10),)))
    journal.usage(Usage(2000, 50, 1600, 0))
    journal.watch(lambda event: None)(RunEnded(0, "done", 2, Usage(), ()))
    return 10


def _large(folder: str, entries: int) -> Path:
    """A session of that many entries, by our own journal, which for once does not wait for the disk."""
    store = SessionStore.of(Path(folder), "/w")
    journal = SessionTarget(store).journal(RUN, None)
    wait, os.fdatasync = os.fdatasync, lambda handle: None
    try:
        made = number = 0
        while made < entries:
            made += _turn(journal, number)
            number += 1
    finally:
        os.fdatasync = wait
    journal.close()
    return store.path(RUN.audit)


def measure(folder: str, entries: int = 100_000, rounds: int = 5) -> dict[str, float]:
    """Seconds and MB of going on (a fresh process each), milliseconds of an append."""
    path = _large(folder, entries)
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", _RESUME, folder],
            env={"PYTHONPATH": str(HERE.parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append([float(word) for word in done.stdout.split()])
    times: dict[bool, list[float]] = {True: [], False: []}
    store = SessionStore.of(Path(folder), "/w")
    journal = SessionTarget(store).journal(
        SessionRun("f" * 16, *list(_fields(RUN))[1:]), Redactor(live=True, shapes=True)
    )
    journal.message(UserMessage((TextBlock("x"),)))
    bare: list[float] = []
    handle = os.open(os.path.join(folder, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in range(300):
        started = time.perf_counter()
        os.write(handle, b"x" * 600 + b"\n")
        os.fdatasync(handle)
        bare.append(time.perf_counter() - started)
        for durable, add in (
            (True, lambda n: journal.message(AssistantMessage((TextBlock(f"{n} {OUTPUT}"),)))),
            (False, lambda n: journal.usage(Usage(n + 1, 2, 3, 4))),
        ):
            started = time.perf_counter()
            add(number)
            times[durable].append(time.perf_counter() - started)
    journal.close()
    os.close(handle)
    return {
        "megabytes": path.stat().st_size / 1e6,
        "seconds": statistics.median(row[0] for row in found),
        "rss": max(row[1] for row in found),
        "history": found[0][2],
        "durable": statistics.median(times[True]) * 1000,
        "durable p95": sorted(times[True])[int(len(times[True]) * 0.95)] * 1000,
        "bare": statistics.median(bare) * 1000,
        "plain": statistics.median(times[False]) * 1000,
    }


def _fields(run: SessionRun) -> list[object]:
    return [run.audit, run.workspace, run.cwd, run.mode, run.model, run.unattended]
