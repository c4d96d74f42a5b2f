"""The pool that runs the tasks of a batch in parallel, in list order, until all are done or a limit is hit."""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from policy.model.frozen import dataclass
from runner.config.trust.session_check import now
from runner.frontends.batch.progress import Bar, Lines
from runner.frontends.batch.store import BatchFolder, Status, TaskResult, status_of
from runner.frontends.batch.task import Task
from runner.problems import Exit


class Engine(Protocol):
    """The place where attempts run."""

    async def attempt(self, task: Task, number: int, left: float | None, hurry: asyncio.Event) -> TaskResult:
        """Make one attempt and return its result. The caller has removed the files of an earlier attempt.

        `left` is the part of the batch's cost limit that is not spent, in the currency of the prices, or None for no
        limit. After cancellation, nothing is left running, unless a cluster does not answer any more; if `hurry` is
        set, processes are then killed at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch.

    Attributes:
        jobs: The number of parallel tasks.
        fail_fast: True if no task is started after one has failed.
        cost: The largest total cost of all results, including earlier calls, in the currency of the prices; None for
            no limit.
        seconds: Wall time of this call; None for no limit.
    """

    jobs: int
    fail_fast: bool = False
    cost: float | None = None
    seconds: float | None = None


class TaskPool:
    """One call of a batch.

    Attributes:
        ended_by: The exit code if the batch ended before its tasks did, or None.
        why: The reason as text, or empty.
    """

    def __init__(self, store: BatchFolder, engine: Engine, bounds: BatchLimits, watch: Bar | Lines) -> None:
        self._store = store
        self._engine = engine
        self._bounds = bounds
        self._watch = watch
        self._running: dict[asyncio.Task[TaskResult], Task] = {}
        self._waiting: deque[Task] = deque()
        self._hurry = asyncio.Event()
        self._cancelled = False
        self.ended_by: Exit | None = None
        self.why = ""

    async def run(self, tasks: Sequence[Task]) -> None:
        """Work on the tasks. When this function returns or raises, no task is running."""
        self._waiting.extend(tasks)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)
        until = time.monotonic() + self._bounds.seconds if self._bounds.seconds is not None else None
        try:
            while self._running or (self._waiting and self.ended_by is None):
                if self._end_if_over_budget():
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
                if until is not None and time.monotonic() >= until:  # also for tasks that continue after --fail-fast
                    self._end(Exit.LIMIT, f"stopped after {self._bounds.seconds:g} s, the time limit of the batch")
                    self._cancel()
                    until = None
        finally:
            self._cancel()
            while self._running:
                await asyncio.wait(self._running)
                self._running = {each: task for each, task in self._running.items() if not each.done()}
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _take(self, done: asyncio.Task[TaskResult], task: Task) -> None:
        if done.cancelled():
            return  # recorded as begun, without a result: the next call runs it again
        # An unexpected exception of the engine is raised here and ends the batch.
        # The fingerprint is that of the task in the list: the engine may have lowered the task's cost limit.
        result = {**done.result(), "task": task.fingerprint, **self._store.files(task)}
        if self._cancelled and result.get("exit") == Exit.INTERRUPTED:
            return
        self._store.end(result)
        self._watch.ended(task, result)
        if result.get("exit") == Exit.SANDBOX:
            self._end(Exit.SANDBOX, "stopped, because the sandbox is not available")
        elif self._bounds.fail_fast and status_of(result) is Status.FAILED:
            self._end(Exit.FAILED, f"stopped after `{task.id}` failed (--fail-fast)")

    def _end_if_over_budget(self) -> bool:
        """End the batch if its cost limit is reached. Return True if this call ended it."""
        if self._bounds.cost is None or self.ended_by is not None or self._spent() < self._bounds.cost:
            return False
        self._end(Exit.LIMIT, f"stopped after {self._bounds.cost:g}, the cost limit of the batch")
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
            if not each.cancelling():  # a second cancel would interrupt the cleanup of the first one
                each.cancel()

    def _interrupted(self) -> None:
        if self.ended_by is Exit.INTERRUPTED:
            self._hurry.set()
            return
        running = len(self._running)
        self.ended_by, self.why = Exit.INTERRUPTED, "interrupted"
        self._watch.notice(f"interrupted: {running} running tasks are stopped now; press Ctrl-C again to kill them")
        self._cancel()
