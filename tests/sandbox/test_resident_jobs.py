"""Scheduled jobs in a real resident process: it starts what is due, stays for what waits, and ends its runs."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from policy.model.frozen import replace
from runner.jobs.job import StoredJob
from runner.jobs.schedule import Interval
from runner.jobs.store import JobStore
from tests.support.cli_harness import CliHarness
from tests.support.resident_process import resident, short_place, until


def add(place: CliHarness, command: str, *, ago: float) -> str:
    """Add a job whose latest time has come `ago` seconds ago, and return its id."""
    script = place.base / f"script{time.monotonic_ns()}.json"
    call = {"name": "bash", "arguments": {"command": command}}
    script.write_text(json.dumps({"turn": [{"calls": [call]}, {"text": "done"}]}))
    words = ("--every=1h", "--mode=trust-project", f"--model=scripted:{script}", "--json", "go")
    done = place.agent("jobs", "add", *words)
    assert done.returncode == 0, done.stderr
    id = str(json.loads(done.stdout)["id"])
    start = int(time.time() - ago) - 3600

    def earlier(each: StoredJob) -> StoredJob:
        job = replace(each.job, schedule=Interval(3600, start))
        return StoredJob(job, replace(each.progress, since=float(start)))

    JobStore(place.base / "state").change(id, earlier)
    return id


def living(mark: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if words.startswith(mark.encode()):
                found.append(int(name))
    return found


@pytest.mark.thorough
def test_a_due_job_is_started_once_and_a_waiting_job_keeps_the_process() -> None:
    with short_place() as place:
        due, later = add(place, "echo x >> made.txt", ago=5), add(place, "true", ago=-1800)
        store = JobStore(place.base / "state")
        with resident(place, "[serve]", 'idle = "1s"') as process:
            until(lambda: bool(store.summaries(due)), "the run of the due job")
            until(lambda: not store.is_running(due), "its end")
            # The process looks at its jobs again, later than the time without work: it starts this one then.
            third = add(place, "true", ago=-3)
            until(lambda: bool(store.summaries(third)), "the run of the third job")
            until(lambda: not store.is_running(third), "its end")
            assert process.poll() is None, "a job waits"
            assert (place.work / "made.txt").read_text() == "x\n"
            assert [each.trigger for each in store.summaries(due)] == ["schedule"]
            assert store.summaries(later) == []
            for id in (due, later, third):
                store.remove(id)
            until(lambda: process.poll() is not None, "the end without work")


@pytest.mark.thorough
@pytest.mark.threat("T295")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def test_no_run_and_no_command_outlives_the_resident_process(number: signal.Signals) -> None:
    mark = f"sleep\0{4000 + int(number)}.{os.getpid()}\0"
    with short_place() as place:
        id = add(place, mark.replace("\0", " ").strip(), ago=5)
        store = JobStore(place.base / "state")
        with resident(place) as process:
            until(lambda: bool(living(mark)), "the start of the command")
            process.send_signal(number)
            process.wait()
            until(lambda: not living(mark), "the end of the command")
            until(lambda: not store.is_running(id), "the end of the run")
        store.settle(id)
        (run,) = store.summaries(id)
        assert run.exit in (130, None)
