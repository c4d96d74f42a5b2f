"""The writer of events as JSON lines on standard output. A reader that stops reading first delays and then ends the
agent.

A write to a full pipe returns only when its reader reads. In the thread of the event loop, it would block everything
that limits a run: its time, the limits of a command, an interrupt, SIGTERM. Another thread writes for this reason.
"""

import asyncio
import contextlib
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner.events import CommandOutput, ErrorRaised, Event
from runner.problems import Exit, Stopped, known_problem
from runner.secrets.redactor import Redactor
from runner.stderr import unwritten
from runner.text.json_line import utc_now

MOST = 16 << 20  # bytes that may wait for the reader
PATIENCE = deadline(10.0)  # seconds to wait for room if so many bytes wait; a slow reader makes room in this time
_GOODBYE = deadline(2.0)  # seconds for the last lines after a signal or an error
_PIECE = 1 << 16  # bytes of one write
_LOOK = 1000  # milliseconds between two checks if the writer has ended

_UNREAD = Problem(
    "the events are not read",
    f"{MOST >> 20} MiB of events wait, and none was read for {PATIENCE:g} s",
    "read standard output while the agent works, or send it to a file",
)


class JsonLines:
    """An Emit and a context manager. An exception with a Problem that ends the block is written as an event `error`.

    If the output cannot be written, the function registered with `when_lost` is called. The next event that is not
    command output then raises BrokenPipeError or Stopped, and so does the end of the block unless an Exception ends it.
    """

    def __init__(self, number: int = 1, *, most: int = MOST, patience: float = PATIENCE) -> None:
        self._number = number
        self._most = most
        self._patience = patience
        self._lines: deque[bytes] = deque()
        self._waiting = 0  # bytes that are not written yet
        self._changed = threading.Condition()
        self._over = False
        self._hurried = False
        self._lost: Exception | None = None
        self._told: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        threading.Thread(target=self._write, name="standard output", daemon=True).start()
        kind = os.fstat(self._number).st_mode
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            threading.Thread(target=self._watch, name="its reader", daemon=True).start()
        return self

    def when_lost(self, end: Callable[[], None]) -> None:
        """Register `end`, which is called in the current event loop when the output cannot be written any more."""
        self._told = partial(asyncio.get_running_loop().call_soon_threadsafe, end)

    def __call__(self, event: "Event") -> None:
        line = event.line(utc_now()).encode("ascii") + b"\n"
        with self._changed:
            # A line that is longer than `most` is accepted if nothing else waits.
            room = self._changed.wait_for(
                lambda: self._lost is not None or not self._waiting or self._waiting + len(line) <= self._most,
                self._patience,
            )
            if not room:
                self._lose(Stopped(_UNREAD, Exit.FAILED))
            if self._lost is not None:
                if isinstance(event, CommandOutput):
                    return  # not every backend passes an exception on; `when_lost` ends the program
                raise self._lost
            self._lines.append(line)
            self._waiting += len(line)
            self._changed.notify_all()

    def hurry(self) -> None:
        """Limit the last wait for the reader, which may have stopped reading after a signal."""
        self._hurried = True

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found = known_problem(error) if isinstance(error, Exception) else None
        if found is not None and self._lost is None:
            self(ErrorRaised(Redactor(live=True, shapes=True).mask(found[0])))
        with self._changed:
            self._over = True
            self._changed.notify_all()
            while self._waiting and self._lost is None:
                before, patience = self._waiting, _GOODBYE if self._hurried or error is not None else None
                if not self._changed.wait_for(partial(self._fewer, before), patience):
                    break
        if self._lost is not None and not isinstance(error, Exception):  # also if the loss cancelled the block
            raise self._lost from None

    def _fewer(self, before: int) -> bool:
        """Return True if the reader took some bytes since `before`, or the output is lost."""
        return self._waiting < before or self._lost is not None

    def _lose(self, error: Exception) -> None:
        """Store the first error of the output and report the loss. The caller holds the lock of `_changed`."""
        self._lost = self._lost or error
        self._changed.notify_all()
        with contextlib.suppress(RuntimeError):  # the event loop is closed, and so is the session
            self._told()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._lines) or self._over)
                if not self._lines:
                    return
                line = memoryview(self._lines.popleft())
            try:
                while line:
                    try:
                        done = os.write(self._number, line[:_PIECE])
                    except BlockingIOError:  # the parent process made it non-blocking
                        select.select((), (self._number,), ())
                        continue
                    line = line[done:]
                    with self._changed:
                        self._waiting -= done
                        self._changed.notify_all()
            except OSError as error:
                with self._changed:
                    gone = isinstance(error, BrokenPipeError)
                    self._lose(error if gone else Stopped(unwritten(error), Exit.FAILED))
                return

    def _watch(self) -> None:
        """Detect a closed reader at once, not only with the next event, which may come hours later."""
        poll = select.poll()
        poll.register(self._number, 0)
        while not poll.poll(_LOOK) and not self._over:  # POLLERR and POLLHUP alone (poll(2))
            pass
        with self._changed:
            if not self._over:
                self._lose(BrokenPipeError())
