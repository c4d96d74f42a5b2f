"""The order of the tasks: a number of them in parallel, in the order of the list, until all are done or a limit is
hit.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from policy.model.frozen import dataclass
from runner.frontends.batch.attempt import now
from runner.frontends.batch.progress import Bar, Lines
from runner.frontends.batch.store import BatchFolder, Result, Status, status_of
from runner.frontends.batch.task import Task
from runner.problems import Exit


class Engine(Protocol):
    """The place where attempts run."""

    async def attempt(self, task: Task, number: int, left: float | None, hurry: asyncio.Event) -> Result:
        """Make one attempt. The files of an earlier attempt at the task are removed first.

        `left` is the money that the batch still has. After cancellation, nothing is left running. `hurry` is set if the
        end must be faster than usual.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch. `cost` is for all results, earlier ones too; `seconds` is the wall time of this call."""

    jobs: int
    fail_fast: bool = False
    cost: float | None = None
    seconds: float | None = None


class TaskPool:
    """One call of a batch. `ended_by` is the reason why it ended before its tasks did, or None."""

    def __init__(self, store: BatchFolder, engine: Engine, bounds: BatchLimits, watch: Bar | Lines) -> None:
        self._store = store
        self._engine = engine
        self._bounds = bounds
        self._watch = watch
        self._running: dict[asyncio.Task[Result], Task] = {}
        self._waiting: deque[Task] = deque()
        self._hurry = asyncio.Event()
        self._cancelled = False
        self.ended_by: Exit | None = None
        self.why = ""

    async def run(self, tasks: Sequence[Task]) -> None:
        """Work on the tasks. Nothing of them runs any more when this returns or raises."""
        self._waiting.extend(tasks)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)
        until = time.monotonic() + self._bounds.seconds if self._bounds.seconds is not None else None
        try:
            while self._running or (self._waiting and self.ended_by is None):
                if self._broke():
                    continue
                while self.ended_by is None and self._waiting and len(self._running) < self._bounds.jobs:
                    task = self._waiting.popleft()
                    attempt = self._store.begin(task, now())
                    self._watch.begun(task)
                    money = self._bounds.cost - self._spent() if self._bounds.cost is not None else None
                    work = self._engine.attempt(task, attempt, money, self._hurry)
                    self._running[asyncio.create_task(work)] = task
                rest = None if until is None else max(0.0, until - time.monotonic())
                await asyncio.wait(self._running, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
                for done in [each for each in self._running if each.done()]:
                    self._take(done, self._running.pop(done))
                if until is not None and time.monotonic() >= until:  # also of those that a first failure let go on
                    self._end(Exit.LIMIT, f"stopped after {self._bounds.seconds:g} s, the time this batch may take")
                    self._cancel()
                    until = None
        finally:
            self._cancel()
            while self._running:
                await asyncio.wait(self._running)
                self._running = {each: task for each, task in self._running.items() if not each.done()}
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _take(self, done: asyncio.Task[Result], task: Task) -> None:
        if done.cancelled():
            return  # begun and without result: it was interrupted, and is done again next time
        # It raises what nobody planned: the other tasks are ended, and the batch with it.
        # What it was asked for is what the list says: an engine may have bounded it by what was left of the money.
        result = {**done.result(), "task": task.fingerprint, **self._store.files(task)}
        if self._cancelled and result.get("exit") == Exit.INTERRUPTED:
            return
        self._store.end(result)
        self._watch.ended(task, result)
        if result.get("exit") == Exit.SANDBOX:
            self._end(Exit.SANDBOX, "stopped, since the sandbox is not available, and no other task would have one")
        elif self._bounds.fail_fast and status_of(result) is Status.FAILED:
            self._end(Exit.FAILED, f"stopped after `{task.id}` failed, as --fail-fast says")

    def _broke(self) -> bool:
        """End it when the money is spent; whether that was now."""
        if self._bounds.cost is None or self.ended_by is not None or self._spent() < self._bounds.cost:
            return False
        self._end(Exit.LIMIT, f"stopped after {self._bounds.cost:g}, the most this batch may cost")
        self._cancel()
        return True

    def _spent(self) -> float:
        return sum(past.cost for past in self._store.past.values())

    def _end(self, code: Exit, why: str) -> None:
        if self.ended_by is None:
            self.ended_by, self.why = code, why

    def _cancel(self) -> None:
        self._cancelled = True
        for each in self._running:
            if not each.cancelling():  # a second time would cut short what the first one ends well
                each.cancel()

    def _interrupted(self) -> None:
        if self.ended_by is Exit.INTERRUPTED:
            self._hurry.set()
            return
        running = len(self._running)
        self.ended_by, self.why = Exit.INTERRUPTED, "interrupted"
        self._watch.notice(f"interrupted: {running} running, each is ended now; once more to kill them")
        self._cancel()
