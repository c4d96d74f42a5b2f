"""The common part of the processes that stay, of helpers and of containers: their findings so far and their outcome."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from policy.model.frozen import replace
from policy.model.verdict import Permit, Problem
from sandbox.backend import Connection, Enforcement, Outcome, Violation
from sandbox.linux.command_watch import CommandWatch
from sandbox.linux.process_watch import LateFiles

if TYPE_CHECKING:
    from sandbox.egress.proxy import Egress

LOOK = 0.2  # seconds between two checks of the limits and for files that appeared
TAIL = 16 << 10  # bytes at the end of each stream, which tell why a process failed
END_OF_FILE = b"\x04"  # VEOF, termios(3)

FinishOutcome = Callable[[Outcome], Outcome]  # ends the sandbox of a process, and adds the violations to an outcome


class SupervisedProcess:
    """A process with the task that supervises it. A subclass starts both, and sets `_task`.

    Attributes:
        permit: The permit that it executes.
        enforcement: What its sandbox enforces.
    """

    def __init__(
        self,
        permit: Permit,
        enforcement: Enforcement,
        egress: "Egress | None",
        watch: CommandWatch,
        late: LateFiles | None,
    ) -> None:
        """Prepare the process. `late` watches for files that its mounts do not cover; None without a private root."""
        self.permit, self.enforcement = permit, enforcement
        self._egress, self._watch, self._late = egress, watch, late
        self._began = time.monotonic()
        self._task: asyncio.Task[Outcome] | None = None  # it ends when nothing of the process is left
        self._outcome: Outcome | None = None

    def when_ended(self, call: Callable[[Self], None]) -> None:
        """Call `call` with this process when it has ended."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: call(self))

    @property
    def outcome(self) -> Outcome | None:
        if self._outcome is None and self._task is not None and self._task.done():
            seconds = time.monotonic() - self._began
            if self._task.cancelled():
                self._outcome = Outcome(137, seconds=seconds, ended_by="cancelled")
            elif (error := self._task.exception()) is not None:
                problem = Problem("the process was ended", f"its supervision failed ({error})", "start it again")
                self._outcome = Outcome(137, seconds=seconds, ended_by="failure", problem=problem)
            else:
                self._outcome = self._task.result()
        return self._outcome

    @property
    def violations(self) -> tuple[Violation, ...]:
        if (outcome := self.outcome) is not None:
            return outcome.violations
        live = self._watch.live
        refused = self._egress.so_far()[1] if self._egress is not None else ()
        return (*refused, *(live.found if live is not None else ()), *self._late_found)

    @property
    def connections(self) -> tuple[Connection, ...]:
        if (outcome := self.outcome) is not None:
            return outcome.connections
        return self._egress.so_far()[0] if self._egress is not None else ()

    async def wait(self) -> Outcome:
        assert self._task is not None
        await asyncio.wait({self._task})
        outcome = self.outcome
        assert outcome is not None
        return outcome

    @property
    def _late_found(self) -> tuple[Violation, ...]:
        found = self._late.found if self._late is not None else None
        return (found,) if found is not None else ()

    async def _completed(self, outcome: Outcome, complete: FinishOutcome) -> Outcome:
        """Return the outcome with its connections and all violations, and without the output, which the listener got.

        `complete` is called after the connections were ended.
        """
        if self._egress is not None:
            connections, violations = await self._egress.end()
            outcome = replace(outcome, connections=connections, violations=violations)
        outcome = complete(outcome)
        violations = (*outcome.violations, *self._late_found)
        return replace(outcome, stdout=b"", stderr=b"", truncated=False, violations=violations)
