"""Kill the resident process, its workers, its clients and their commands at random, and look at what is left.

    python tests/fuzz/kill_resident.py --rounds 500

After each round no command may live, the next command must work, and every action that was decided must have a record.
The record must verify at the end.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.resident_process import processes, short_place, status, until

VICTIMS = ("resident", "worker", "client", "terminal", "nothing")


def resident_of(place: CliHarness) -> int | None:
    """Return the resident process of a user, or None if it does not run."""
    pid = status(place).get("pid")
    return int(pid) if pid else None


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def killed(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def play(place: CliHarness, number: int, victim: str, choice: random.Random) -> str:
    """Play one round and return `victim`. Raise AssertionError if anything is left or lost."""
    if resident_of(place) is None:
        place.agent("serve", "--start")
    mark = f"sleep 8{number:05}.5"
    # The shell stands for the terminal: it is killed with its whole process group.
    shell = subprocess.Popen(
        ["sh", "-c", f"'{AGENT}' exec --mode trust-project 'echo {number} > f; {mark}'; true"],
        cwd=place.work, env=place.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    time.sleep(choice.choice((0.0, 0.01, 0.03, 0.06, 0.1, 0.3)))
    pid = resident_of(place) if victim in ("resident", "worker") else None
    match victim:
        case "resident":
            killed(pid or 0) if pid else None
        case "worker":
            for child in children(pid or 0):
                killed(child)
        case "client":
            for child in children(shell.pid):
                killed(child)
        case "terminal":
            os.killpg(shell.pid, signal.SIGKILL)
    time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGTERM)  # a command that nobody killed ends in the usual way
    shell.wait(60)
    until(lambda: not processes(mark), f"the end of `{mark}` after {victim}")
    done = place.agent("exec", f"echo {number}")
    assert (done.stdout, done.returncode) == (f"{number}\n", 0), (victim, done.stderr)
    return victim


def run(rounds: int, seed: int) -> dict[str, int]:
    """Play the rounds and return how often each victim was killed."""
    counts = dict.fromkeys(VICTIMS, 0)
    choice = random.Random(seed)  # repeatable, not secret
    left: list[str] = []  # of a pass over all victims, so that few rounds kill each of them
    with short_place() as place:
        for number in range(rounds):
            left = left or choice.sample(VICTIMS, len(VICTIMS))
            counts[play(place, number, left.pop(), choice)] += 1
        rows = place.audit("--limit", str(rounds * 3))
        ran = sum(row["verdict"] == "allow" and str(row.get("script", row.get("action", ""))) != "" for row in rows)
        assert ran >= rounds, f"{ran} records of at least {rounds} actions"
        verified = place.agent("audit", "verify")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(run(given.rounds, given.seed))
