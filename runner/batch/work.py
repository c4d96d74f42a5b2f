"""One attempt at one task, on this machine: on a copy of its workspace, by a process of its own."""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

from policy.record import dataclass
from policy.verdict import Problem
from runner.batch import child
from runner.batch.outcome import result_of
from runner.batch.store import Result
from runner.batch.task import Task
from runner.places import home
from runner.problems import Exit, Stopped
from runner.review.copy import copied
from runner.workspace import workspace_of
from sandbox import removal


@dataclass(frozen=True, slots=True)
class Base:
    """A snapshot of a workspace, taken before the first task runs: every task starts from the same."""

    original: str
    path: str

    def inside(self, cwd: str) -> str:
        """Where a folder of the original is in the snapshot."""
        return self.path + cwd[len(self.original) :]


def snapshot(workspace: str, where: str, environ: Mapping[str, str], without: str = "") -> Base:
    """Take the snapshot of a workspace, a real path, in `where`; `without` is a folder in it that stays out.

    Raises CopyError, or Stopped when `where` lies in a repository: a task would take that for its workspace.
    """
    made = copied(workspace, where).path
    if workspace_of(made, os.path.realpath(home(environ))) != made:
        why = f"`{where}` lies in a Git repository, which each task would take for its workspace"
        raise Stopped(Problem("no copy can be made there", why, "name a folder elsewhere with --copies"), Exit.USAGE)
    if without.startswith(f"{workspace}/"):
        removal.remove(made + without[len(workspace) :])
    return Base(workspace, made)


def root(cwd: str, environ: Mapping[str, str]) -> str:
    """The workspace that a folder is in."""
    return workspace_of(cwd, os.path.realpath(home(environ)))


@dataclass(frozen=True, slots=True)
class Way:
    """What holds for every task of a batch: options of `agent` as typed, and the environment of the process."""

    options: tuple[str, ...]
    environ: Mapping[str, str]
    keep: tuple[int, ...] = ()


def words(task: Task, cwd: str, way: Way) -> tuple[str, ...]:
    """What `agent` is started with. The prompt is not among it: other users may read the words of a process."""
    budget = task.budget
    said: tuple[tuple[str, object], ...] = (
        ("--model", task.model),
        ("--mode", task.mode),
        ("--max-turns", budget.turns),
        ("--timeout", f"{budget.seconds:.3f}s" if budget.seconds is not None else None),
    )
    named = tuple(f"{name}={value}" for name, value in said if value is not None)
    return ("run", "--unattended", "--json", "--no-session", f"--cwd={cwd}", *named, *way.options)


async def attempt(
    task: Task, number: int, base: Base, way: Way, where: str, events: Path, patch: Path, hurry: asyncio.Event
) -> Result:
    """Work on a task; answers its result. When it is cancelled, nothing of it runs on, and no copy is left."""
    started = now()
    making = asyncio.ensure_future(asyncio.to_thread(copied, base.path, where))
    try:
        copy = await asyncio.shield(making)
    except asyncio.CancelledError:
        (await making).remove()
        raise
    try:
        cwd = Base(base.original, copy.path).inside(task.cwd)
        gone = await child.run(
            words(task, cwd, way),
            prompt=task.prompt,
            events=events,
            environ=way.environ,
            keep=way.keep,
            hurry=hurry,
        )
    finally:
        await asyncio.to_thread(copy.remove)
    return result_of(task, number, gone, (started, now()))


def now() -> str:
    """This moment, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
