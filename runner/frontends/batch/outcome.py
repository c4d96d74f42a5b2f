"""The outcome of a task, as one word and as one JSON object."""

from enum import StrEnum

from runner.frontends.batch.process import Gone
from runner.frontends.batch.store import Result
from runner.frontends.batch.task import Task
from runner.problems import Exit


class Status(StrEnum):
    """The outcome of a task, better ones first. `denied`: the task was completed, but policy denied an action on the
    way.
    """

    DONE = "done"
    DENIED = "denied"
    LIMIT = "limit"
    FAILED = "failed"


_OF = {Exit.DONE: Status.DONE, Exit.DENIED: Status.DENIED, Exit.LIMIT: Status.LIMIT}
_CODES = {Status.DONE: Exit.DONE, Status.DENIED: Exit.DENIED, Status.LIMIT: Exit.LIMIT, Status.FAILED: Exit.FAILED}
_ORDER = (Exit.DONE, Exit.DENIED, Exit.LIMIT, Exit.FAILED, Exit.SANDBOX, Exit.INTERRUPTED)


def worst(codes: "list[Exit]") -> Exit:
    """Return the exit code of a batch: the most severe one of its tasks."""
    return max(codes, key=_ORDER.index, default=Exit.DONE)


def code_of(result: Result) -> Exit:
    return _CODES[status_of(result)]


def status_of(result: Result) -> Status:
    return Status(str(result.get("status")))


def result_of(task: Task, attempt: int, gone: Gone, times: tuple[str, str], **more: object) -> Result:
    """Return the line of `results.jsonl` for an attempt that came to an end by itself."""
    said = dict(gone.last or {})
    said.pop("type", None)
    code = gone.status
    status = _OF.get(Exit(code)) if gone.last and code in list(Exit) else None
    if gone.last is None or status is None:
        said.setdefault("reason", _reason(gone))
    if status is None or status is Status.FAILED:
        said["error"] = gone.stderr or None
    return {
        "type": "result",
        "id": task.id,
        "status": str(status or Status.FAILED),
        **said,
        "exit": code,
        "attempt": attempt,
        "started": times[0],
        "ended": times[1],
        "metadata": task.metadata,
        **more,
    }


def _reason(gone: Gone) -> str:
    if gone.status < 0:
        return f"its process was ended by signal {-gone.status}"
    if gone.status == Exit.INTERRUPTED:
        return "its process was stopped by somebody else"
    first = gone.stderr.splitlines()[0] if gone.stderr else ""
    return first.removeprefix("agent: ") or f"its process ended with {gone.status} and said nothing"
