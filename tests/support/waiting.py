"""Waits for an event of another process or task, without a time limit of their own.

A limit on the clock fails on a machine that is only slow. These waits end when the condition holds, or when the observed
process has ended without it. A wait for something that never happens is ended by the time limit of pytest-timeout, which
prints the stacks of all threads.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

Value = TypeVar("Value")
# A process that a test observes: a child of this one, a process ID, or a function that returns True after its end.
Observed: TypeAlias = "subprocess.Popen[Any] | int | Callable[[], bool]"


def until(
    condition: Callable[[], Value],
    *,
    of: "Observed | None" = None,
    what: str | Callable[[], object] = "the event",
) -> Value:
    """Wait for a condition and return its first true value.

    Args:
        condition: called again and again, at first every millisecond, at last every 50 milliseconds.
        of: the process that makes the condition true: a Popen, a process ID, or a function that returns True after its
            end. If the process has ended and the condition does not hold afterwards, the wait fails at once.
        what: names the event in the message of a failure; a function is called for it then.
    """
    pauses = _pauses()
    while not (value := _checked(condition, of, what)):
        time.sleep(next(pauses))
    return value


async def until_async(
    condition: Callable[[], Value],
    *,
    of: "Observed | None" = None,
    what: str | Callable[[], object] = "the event",
) -> Value:
    """Do what `until` does, while the other tasks of the event loop run."""
    pauses = _pauses()
    while not (value := _checked(condition, of, what)):
        await asyncio.sleep(next(pauses))
    return value


def has_ended(process: Observed) -> bool:
    """Return True if a process has ended. One that nobody has waited for yet (a zombie) has ended as well."""
    if isinstance(process, subprocess.Popen):
        return process.poll() is not None
    if callable(process):
        return process()
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def is_at_rest(pid: int) -> bool:
    """Return True if every thread of a process sleeps, so that only an event or a timer wakes it.

    An event makes a thread runnable at once, also on a busy machine. So a process at rest has taken note of every event
    before this call.
    """
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return bool(states) and set(states) == {"S"}


def _checked(condition: Callable[[], Value], of: "Observed | None", what: str | Callable[[], object]) -> Value:
    """Return the value of a condition. Fail if it does not hold and the process has ended."""
    value = condition()
    if not value and of is not None and has_ended(of):
        value = condition()  # the last thing that the process did
        assert value, f"{what if isinstance(what, str) else what()} did not happen before the end of the process"
    return value


def _pauses() -> Iterator[float]:
    pause = 0.001
    while True:
        yield pause
        pause = min(pause * 1.5, 0.05)
