"""The folder of one batch: its attempts, their results, and the lock that lets one batch at a time use the folder.

    results.jsonl   one line for each completed attempt, in the order of completion; append-only
    journal.jsonl   the version of the format, then one line for each attempt, written before the attempt starts
    patches/        NAME.patch: the changes of the task
    events/         NAME.jsonl: the events of the latest attempt, as `agent run --json` prints them

An attempt without a result was interrupted: by a signal, a limit of the batch, a power failure or a full disk. Every
line is written by one write(2) and is on the disk before the next step; an incomplete line does not count.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.frontends.batch.task import Task
from runner.problems import Exit, Stopped, usage
from runner.text.phrases import os_reason

_VERSION = 1
_LARGEST = 1 << 30  # bytes of a journal or of results

TaskResult = dict[str, object]


class Status(StrEnum):
    """The outcome of a task, best first. `denied`: the task was completed, but the policy denied an action."""

    DONE = "done"
    DENIED = "denied"
    LIMIT = "limit"
    FAILED = "failed"


_CODES = {Status.DONE: Exit.DONE, Status.DENIED: Exit.DENIED, Status.LIMIT: Exit.LIMIT, Status.FAILED: Exit.FAILED}
STATUSES: dict[int, Status] = {code: status for status, code in _CODES.items() if status is not Status.FAILED}
_ORDER = (Exit.DONE, Exit.DENIED, Exit.LIMIT, Exit.FAILED, Exit.SANDBOX, Exit.INTERRUPTED)


def worst(codes: "list[Exit]") -> Exit:
    """Return the most severe of the exit codes; DONE if there is none."""
    return max(codes, key=_ORDER.index, default=Exit.DONE)


def code_of(result: TaskResult) -> Exit:
    return _CODES[status_of(result)]


def status_of(result: TaskResult) -> Status:
    return Status(str(result.get("status")))


@dataclass(frozen=True, slots=True)
class Past:
    """The history of one task.

    Attributes:
        attempts: The number of attempts that began.
        result: The latest result, or None if no attempt was completed.
        fingerprint: The fingerprint of the task at its latest attempt.
        cost: The known cost of all completed attempts, in the currency of the prices.
    """

    attempts: int = 0
    result: TaskResult | None = None
    fingerprint: str = ""
    cost: float = 0.0

    @property
    def interrupted(self) -> bool:
        """Return True if the latest attempt has no result."""
        return self.attempts > 0 and (self.result is None or self.result.get("attempt") != self.attempts)

    def ended(self, result: TaskResult) -> "Past":
        """Return the history with the result of one more attempt."""
        cost = result.get("cost")
        return replace(self, result=result, cost=self.cost + (cost if isinstance(cost, int | float) else 0.0))


class BatchFolder:
    """An open results folder. Its lock keeps other batches from writing there."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock
        self.past: dict[str, Past] = {}

    @classmethod
    def open(cls, folder: Path) -> "BatchFolder":
        """Create the folder, or continue in it. Raise Stopped if it is in use, belongs to another program, or cannot
        be written.
        """
        try:
            with contextlib.ExitStack() as undo:
                _create_folder(folder)
                lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                undo.callback(os.close, lock)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    what, fix = f"another batch uses `{folder}`", "wait until it is done, or name another --out"
                    raise Stopped(Problem(what, "its lock is held", fix), Exit.FAILED) from None
                store = cls(folder, lock)
                for name in ("journal.jsonl", "results.jsonl"):
                    _remove_partial_line(folder / name)
                if not (folder / "journal.jsonl").exists() or (folder / "journal.jsonl").stat().st_size == 0:
                    store._append("journal.jsonl", {"type": "batch", "version": _VERSION})
                store.past = history(folder)
                for name in ("patches", "events"):
                    (folder / name).mkdir(mode=0o700, exist_ok=True)
                for part in (folder / "patches").glob(".*.part"):
                    part.unlink(missing_ok=True)  # a killed task was writing it
                undo.pop_all()
        except OSError as error:
            raise _refused(folder, os_reason(error)) from None
        return store

    def close(self) -> None:
        os.close(self._lock)  # which releases the lock, flock(2)

    def begin(self, task: Task, time: str) -> int:
        """Record the start of an attempt, and return its number, counted from 1. `time` is UTC in ISO format.

        The record is on the disk before this function returns. The files of an earlier attempt are removed. Raise
        Stopped if the record cannot be written or a file cannot be removed.
        """
        before = self.past.get(task.id, Past())
        number = before.attempts + 1
        said = {"type": "begin", "id": task.id, "attempt": number, "task": task.fingerprint, "time": time}
        self._append("journal.jsonl", said)
        for path in (self.patch(task), self.events(task)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                fix = "remove it, and run the same command again"
                raise Stopped(Problem(f"`{path}` could not be removed", os_reason(error), fix), Exit.FAILED) from None
        self.past[task.id] = replace(before, attempts=number, fingerprint=task.fingerprint)
        return number

    def end(self, result: TaskResult) -> None:
        """Add the result of an attempt. It is on the disk before this function returns. Raise Stopped on failure."""
        self._append("results.jsonl", result)
        id = str(result["id"])
        self.past[id] = self.past.get(id, Past()).ended(result)

    def patch(self, task: Task) -> Path:
        return self.folder / "patches" / f"{task.name}.patch"

    def events(self, task: Task) -> Path:
        return self.folder / "events" / f"{task.name}.jsonl"

    def files(self, task: Task) -> dict[str, str | None]:
        """Return the paths of the task's `patch` and `events` below the folder; None for an empty or missing file."""
        paths = {"patch": self.patch(task), "events": self.events(task)}
        return {
            name: str(path.relative_to(self.folder)) if path.exists() and path.stat().st_size else None
            for name, path in paths.items()
        }

    def _append(self, name: str, line: dict[str, object]) -> None:
        data = (json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n").encode("ascii")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        path = self.folder / name
        try:
            with contextlib.ExitStack() as opened:
                handle = os.open(path, flags, 0o600)
                opened.callback(os.close, handle)
                before = os.fstat(handle).st_size
                try:
                    if os.write(handle, data) != len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(handle)
                except OSError:
                    with contextlib.suppress(OSError):  # an incomplete line is removed when the folder is opened again
                        os.ftruncate(handle, before)
                    raise
                if before == 0:
                    folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    opened.callback(os.close, folder)
                    os.fsync(folder)
        except OSError as error:
            fix = "free some disk space, and run the same command again: finished tasks are kept"
            raise Stopped(Problem(f"`{path}` could not be written", os_reason(error), fix), Exit.FAILED) from None


def history(folder: Path) -> dict[str, Past]:
    """Return the history of each task, by id. Raise Stopped if the folder is not that of a batch, or has a newer
    format.
    """
    past: dict[str, Past] = {}
    first = next(_lines(folder / "journal.jsonl"), None)
    if first is None or first.get("type") != "batch":
        raise usage(f"`{folder}` is not a batch folder", "it has no valid `journal.jsonl`", "name the --out of a batch")
    if first.get("version") != _VERSION:
        why = f"another version of ringfence wrote it (its format is {first.get('version')}, this one uses {_VERSION})"
        raise usage(f"`{folder}` cannot be used", why, "name another --out, or update ringfence")
    for line in _lines(folder / "journal.jsonl"):
        if line.get("type") == "begin" and isinstance(number := line.get("attempt"), int):
            past[str(line.get("id"))] = Past(number, None, str(line.get("task")))
    for result in _lines(folder / "results.jsonl"):
        id = str(result.get("id"))
        past[id] = past.get(id, Past()).ended(result)
    return past


def _lines(path: Path) -> Iterator[TaskResult]:
    """Yield the complete lines of a file as objects, none if there is no file.

    Raise Stopped for a file longer than _LARGEST, and for a line that is not a JSON object, with the line's number.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise usage(f"`{path}` cannot be read", os_reason(error), "check who owns it") from None
    if len(data) > _LARGEST:  # without its end, tasks that are done would run again
        why = f"it has more than {_LARGEST >> 20} MiB"
        raise usage(f"`{path}` cannot be used", why, "name another --out, for a list of the tasks that are not done")
    for number, raw in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            found = json.loads(raw)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            why = f"line {number} was not written by ringfence"
            raise usage(f"`{path}` cannot be used", why, "correct or remove the line, or name another --out")
        yield found


def _remove_partial_line(path: Path) -> None:
    """Remove an incomplete last line from the file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = at = os.fstat(handle).st_size
        while at > 0:
            start = max(0, at - 65536)
            found = os.pread(handle, at - start, start).rfind(b"\n")
            if found >= 0:
                at = start + found + 1
                break
            at = start
        if at != size:
            os.ftruncate(handle, at)
            os.fsync(handle)
    finally:
        os.close(handle)


def _create_folder(folder: Path) -> None:
    """Create the folder, or check that it belongs to a batch of this user. Raise Stopped if it does not.

    A `.gitignore` makes Git ignore the folder, because it may be in a workspace.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode):
            raise _refused(folder, "it is not a folder") from None
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise _refused(folder, "other users may write to it, or it belongs to another user") from None
        names = set(os.listdir(folder))
        if "journal.jsonl" in names:
            return
        if names - {"lock", ".gitignore"}:
            raise _refused(folder, "it contains other files and no batch") from None
    (folder / ".gitignore").write_text("*\n")


def _refused(folder: Path, why: str) -> Stopped:
    return usage(f"`{folder}` cannot hold the results", why, "name another --out")
