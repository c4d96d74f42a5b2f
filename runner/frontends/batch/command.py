"""`agent batch`: read and check the list, leave out the tasks that are done, and run the rest."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.changes.review.workspace_copy import place
from runner.config import shipped
from runner.frontends.batch.attempt import BatchEnvironment, attempt
from runner.frontends.batch.pool import BatchLimits, Engine, TaskPool
from runner.frontends.batch.progress import Bar, Lines, row, sentence, summary
from runner.frontends.batch.scratch import CopiesFolder
from runner.frontends.batch.store import BatchFolder, Status, TaskResult, code_of, history, status_of, worst
from runner.frontends.batch.task import Budget, Task, within
from runner.frontends.batch.tasklist import LARGEST, Defaults, parse
from runner.gate.gate import refuse_folder
from runner.problems import Exit, Stopped, usage
from runner.text.json_line import json_line
from runner.text.phrases import many, os_reason
from runner.text.sanitize import visible


@dataclass(frozen=True, slots=True)
class BatchArgs:
    """The options of `agent batch`, as typed."""

    tasks: str
    out: Path | None
    bounds: BatchLimits
    model: str | None = None
    mode: str | None = None
    cwd: Path | None = None
    budget: Budget = field(default_factory=Budget)
    config: Path | None = None
    copies: Path | None = None
    engine: str | None = None
    account: str | None = None
    retry_failed: bool = False
    rerun_changed: bool = False
    check: bool = False
    json: bool = False


def listed(args: BatchArgs) -> tuple[Task, ...]:
    """Return the checked tasks of the list. Raise Stopped if the list has mistakes."""
    data, shown, base = _read(args.tasks)
    cwd = Path(os.path.realpath(args.cwd or "."))
    if not cwd.is_dir():
        raise usage(f"there is no folder `{args.cwd}`", "no such folder", "correct --cwd")
    tasks = parse(data, shown, Defaults(base, cwd, args.model, args.mode, args.budget))
    profile = shipped().profile
    for folder in dict.fromkeys(task.cwd for task in tasks):
        refuse_folder(folder, os.environ, profile)
    return tasks


def check(args: BatchArgs, tasks: tuple[Task, ...]) -> int:
    """Print that the list has no mistakes, without running anything, and return the exit code."""
    if args.json:
        for task in tasks:
            print(json_line({"id": task.id, "line": task.line, "workspace": task.cwd, "task": task.fingerprint}))
    else:
        folders = visible(", ".join(sorted({task.cwd for task in tasks})), lines=False)
        print(f"{many(len(tasks), 'task')} in {folders}; the list has no mistakes")
    return Exit.DONE


def start(args: BatchArgs) -> int:
    """Run or continue a batch, or only check its list with `args.check`, and return the exit code.

    Raise Stopped if the batch ended before its tasks did, unless an interrupt ended it.
    """
    tasks = listed(args)
    out = _out(args)
    if args.check:
        return check(args, tasks)
    with ExitStack() as stack:
        store = BatchFolder.open(out)
        stack.callback(store.close)
        todo = chosen(tasks, store, retry=args.retry_failed, changed=args.rerun_changed, out=out)
        before = len(tasks) - len(todo)
        bar = sys.stderr.isatty() and not args.json
        watch: Bar | Lines = Bar(len(todo)) if bar else Lines(len(todo), json=args.json)
        if before and not args.json:
            watch.notice(f"{before} of {len(tasks)} tasks are already done; see `agent batch show {out}`")
        ended, why = None, ""
        if todo:
            engine = _engine(args, store, todo, stack)
            with watch:
                pool = TaskPool(store, engine, args.bounds, watch)
                asyncio.run(pool.run(todo))
            ended, why = pool.ended_by, pool.why
    ended_well = (past for task in tasks if (past := store.past.get(task.id)) and not past.interrupted)
    results = [past.result for past in ended_well if past.result]
    return _close(args, out, len(tasks), results, ended, why)


def _close(args: BatchArgs, out: Path, total: int, results: Sequence[TaskResult], ended: Exit | None, why: str) -> int:
    counts = summary(list(results), total - len(results))
    code = worst([*([ended] if ended is not None else []), *(code_of(result) for result in results)])
    if args.json:
        print(json_line({"type": "batch", "exit": int(code), "ended_by": why or None, **counts, "out": str(out)}))
    else:
        print(f"{sentence(counts)}\nresults: {visible(str(out / 'results.jsonl'), lines=False)}")
    if why and ended is not Exit.INTERRUPTED:
        fix = "run the same command again to continue"
        raise Stopped(Problem(why, f"{counts['unfinished']} tasks are not done", fix), code)
    return code


def chosen(tasks: Sequence[Task], store: BatchFolder, *, retry: bool, changed: bool, out: Path) -> list[Task]:
    """Return the tasks to run: new and interrupted ones, with `retry` those that failed or hit a limit.

    Raise Stopped if the task of an id differs from the one that is done, unless `changed` is set.
    """
    todo: list[Task] = []
    other: list[Task] = []
    for task in tasks:
        past = store.past.get(task.id)
        if past is None or past.result is None:
            todo.append(task)
        elif past.interrupted and past.fingerprint == task.fingerprint:
            todo.append(task)  # that attempt was started with --rerun-changed
        elif past.result.get("task") != task.fingerprint:
            other.append(task)
            todo.append(task)
        elif past.interrupted or (retry and status_of(past.result) in (Status.FAILED, Status.LIMIT)):
            todo.append(task)
    if other and not changed:
        first = other[0]
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        raise usage(
            f"`{first.id}`{more} is another task than the one that was done",
            f"line {first.line} of the list or an option changed, and `{out}` has the old result",
            "run them again with --rerun-changed, give them other ids, or name another --out",
        )
    return todo


class Local:
    """The engine that makes attempts on this machine."""

    def __init__(self, store: BatchFolder, environment: BatchEnvironment) -> None:
        self._store = store
        self._environment = environment

    async def attempt(self, task: Task, number: int, left: float | None, hurry: asyncio.Event) -> TaskResult:
        task, events, patch = within(task, left), self._store.events(task), self._store.patch(task)
        return await attempt(task, number, task.cwd, self._environment, events, patch, hurry)


def _engine(args: BatchArgs, store: BatchFolder, todo: Sequence[Task], stack: ExitStack) -> Engine:
    """Return the engine that runs the tasks. Raise Stopped if no engine can."""
    if args.engine is not None:
        from runner.frontends.batch.ray_engine import OnRay

        far = OnRay(args.engine, store, todo, os.environ, _options(args))
        stack.callback(far.close)
        return far
    scratch = CopiesFolder(str(args.copies.resolve()) if args.copies else place())
    stack.callback(scratch.remove)
    return Local(store, BatchEnvironment(_options(args), os.environ, scratch.path, scratch.handle, str(store.folder)))


def _options(args: BatchArgs) -> tuple[str, ...]:
    config = (f"--config={args.config.resolve()}",) if args.config else ()
    return (*config, f"--account={args.account}") if args.account is not None else config


def _read(name: str) -> tuple[bytes, str, Path]:
    """Return the list, its name for messages, and the base folder of its relative paths."""
    shown = "standard input" if name == "-" else f"`{name}`"
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        fix = "name a file with one task per line, or - for standard input"
        raise usage(f"{shown} cannot be read", os_reason(error), fix) from None
    if len(data) > LARGEST:
        raise usage(f"{shown} is too long", f"a list has at most {LARGEST >> 20} MiB", "split the list")
    return data, shown, Path.cwd() if name == "-" else Path(name).resolve().parent


def _out(args: BatchArgs) -> Path:
    if args.out is not None:
        return args.out.absolute()
    if args.tasks == "-":
        raise usage("there is no folder for the results", "the list comes from standard input", "add --out FOLDER")
    real = Path(args.tasks).resolve()  # the folder of the file, also for a link or for /dev/stdin
    if not real.is_file():
        raise usage("there is no folder for the results", "the list is not a file", "add --out FOLDER")
    return real.with_name(f"{real.stem}.batch")


def show(out: Path, *, json_lines: bool, wanted: Sequence[str]) -> int:
    """Print the latest result of each task, and return the exit code.

    A task without a result has the status `interrupted`. If `wanted` is not empty, only these statuses are printed.
    Raise Stopped if `out` is not the folder of a batch.
    """
    if not out.is_dir():
        raise usage(f"there is no folder `{out}`", "no such folder", "name the folder of a batch (its --out)")
    past = history(out)
    ended: list[TaskResult] = []
    printed = 0
    for id, each in past.items():
        result: TaskResult = {"type": "result", "id": id, "status": "interrupted", "attempt": each.attempts}
        if each.result is not None and not each.interrupted:
            result = each.result
            ended.append(result)
        shown = {str(result.get("status"))} | ({"done"} if result.get("status") == Status.DENIED else set())
        if not wanted or shown & set(wanted):
            printed += 1
            print(json_line(result) if json_lines else row(result))
    if not json_lines:
        if wanted and not printed:
            print(f"no task has the status {' or '.join(wanted)}")
        print(sentence(summary(ended, len(past) - len(ended))))
    return Exit.DONE


def show_all(folder: Path, *, as_json: bool) -> int:
    """Print one line for each batch in `folder`, and return the exit code."""
    found = [each for each in sorted(folder.glob("*.batch")) if (each / "journal.jsonl").is_file()]
    for out in found:
        past = history(out)
        ended = [each.result for each in past.values() if each.result is not None and not each.interrupted]
        counts = summary(ended, len(past) - len(ended))
        if as_json:
            print(json_line({"out": str(out), **counts}))
        else:
            print(visible(f"{out.name}  {sentence(counts)}", lines=False))
    if not found and not as_json:
        print("there is no batch in this folder; to run a list of tasks: agent batch TASKS")
    return Exit.DONE


def cores() -> int:
    """Return the default number of parallel tasks: the number of usable processors."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
