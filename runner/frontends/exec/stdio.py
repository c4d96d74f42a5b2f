"""The command's streams and ours, byte for byte: what we were given goes in, what it says comes out as it says it."""

import os
import select
import stat
import time

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped
from runner.stderr import say

STDIN_LIMIT = 64 << 20
_PATIENCE = 2.0  # seconds of silence on stdin before we say what we are waiting for


def read_stdin(deadline: float) -> bytes | None:
    """All of our stdin when it is a pipe, a file or a socket; None for a terminal, a device, or a closed one.

    The command starts when its input is complete; an input that does not end within `deadline` seconds is an error.
    """
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
        return None
    parts: list[bytes] = []
    size, started, told = 0, time.monotonic(), False
    while True:
        waited = time.monotonic() - started
        wait = deadline - waited if told or size else min(_PATIENCE - waited, deadline - waited)
        if not select.select([0], [], [], max(wait, 0))[0]:
            if time.monotonic() - started >= deadline:
                raise Stopped(_endless(deadline), Exit.LIMIT)
            if not told:
                told = True
                say("agent: waiting for the end of standard input (nothing to give? add `< /dev/null`)")
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return b"".join(parts)
        size += len(chunk)
        if size > STDIN_LIMIT:
            raise Stopped(_too_long(), Exit.LIMIT)
        parts.append(chunk)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, waiting for a slow reader. Raises BrokenPipeError when nobody reads any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # somebody who shares the terminal made it non-blocking
            select.select([], [descriptor], [])


def _endless(deadline: float) -> Problem:
    return Problem(
        f"standard input did not end within {deadline:g} s",
        "it is a pipe that somebody holds open, and a command starts only when its input is complete",
        "add `< /dev/null` when the command needs no input, or raise the time with --timeout",
    )


def _too_long() -> Problem:
    return Problem(
        f"standard input is longer than {STDIN_LIMIT >> 20} MB",
        "input is kept in memory until the command starts",
        "put it into a file in the workspace and let the command read that",
    )
