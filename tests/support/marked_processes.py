"""The processes that a test started, found by a mark in their command line.

A mark is a word that no other test, worker or checkout uses: it contains the process ID of the worker.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

_NUMBERS = itertools.count()


def new_nap() -> str:
    """Return a number of seconds, more than two hours, which no other process of the machine sleeps: a mark."""
    return f"{9000 + next(_NUMBERS)}.{os.getpid()}"


def processes(mark: str) -> list[int]:
    """Return the processes with `mark` as a whole word of their command line, except this one."""
    return [pid for pid, words in _command_lines() if mark.encode() in words]


def processes_about(text: str) -> list[int]:
    """Return the processes whose command line contains `text`, for example a folder of the test, except this one."""
    return [pid for pid, words in _command_lines() if text.encode() in b" ".join(words)]


def _command_lines() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError):  # it ended meanwhile
                yield int(name), Path("/proc", name, "cmdline").read_bytes().split(b"\0")
