"""One attempt at one task on this machine, in a process of its own and on a copy of the workspace."""

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from runner.frontends.batch import process
from runner.frontends.batch.outcome import result_of
from runner.frontends.batch.store import Result
from runner.frontends.batch.task import Task
from runner.state.paths import BATCH
from sandbox.inside import safe_rmtree


@dataclass(frozen=True, slots=True)
class Way:
    """The values that are the same for every task of a batch.

    They are options of `agent` as typed, the environment of the processes, the folder of the copies with a descriptor
    that holds it, and the folder of the results, which no task may see.
    """

    options: tuple[str, ...]
    environ: Mapping[str, str]
    copies: str
    keep: int
    out: str


def words(task: Task, cwd: str, patch: Path, way: Way) -> tuple[str, ...]:
    """Return the arguments for `agent`. The prompt is not one of them: other users can read the arguments of a
    process.
    """
    budget = task.budget
    said: tuple[tuple[str, object], ...] = (
        ("--model", task.model),
        ("--mode", task.mode),
        ("--max-turns", budget.turns),
        ("--max-tokens", budget.tokens),
        ("--max-cost", budget.cost),  # as it is: rounded, a little would be nothing, which is no amount
        ("--timeout", f"{max(budget.seconds, 0.001):.3f}s" if budget.seconds is not None else None),
        ("--max-output", budget.output),
        ("--max-denials", budget.denials),
    )
    named = tuple(f"{name}={value}" for name, value in said if value is not None)
    return ("ci", "--json", "--review", f"--patch={patch}", f"--cwd={cwd}", *named, *way.options)


async def attempt(
    task: Task, number: int, cwd: str, way: Way, events: Path, patch: Path, hurry: asyncio.Event
) -> Result:
    """Work on a task in a copy of the workspace around `cwd`; answers its result. Cancelled, nothing of it runs on.
    `events` and `patch` are written."""
    started = now()
    own = tempfile.mkdtemp(dir=way.copies)  # so that a copy whose owner was killed goes when the attempt is over
    try:
        gone = await process.run(
            words(task, cwd, patch, way),
            prompt=task.prompt,
            events=events,
            environ={**way.environ, "TMPDIR": own, BATCH: way.out},
            keep=(way.keep,),
            hurry=hurry,
        )
    finally:
        safe_rmtree.remove(own)
    return result_of(task, number, gone, (started, now()))


def now() -> str:
    """Return the current time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
