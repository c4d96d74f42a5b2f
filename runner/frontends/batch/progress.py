"""The progress of a batch: a bar at a terminal, else one line for each task that ended."""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runner.frontends.batch.store import Status, TaskResult, status_of
from runner.frontends.batch.task import Task
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_STYLES = {Status.DONE: "green", Status.DENIED: "yellow", Status.LIMIT: "yellow", Status.FAILED: "red"}
_REASON = 100  # characters


class Lines:
    """A line on stdout for each task that ended, as text or, with `json`, its result. Notices go to stderr."""

    def __init__(self, total: int, *, json: bool = False) -> None:
        self._total = total
        self._json = json
        self._ended = 0

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begun(self, task: Task) -> None:
        return None

    def ended(self, task: Task, result: TaskResult) -> None:
        self._ended += 1
        text = json.dumps(result, separators=(",", ":")) if self._json else f"{self._ended}/{self._total} {row(result)}"
        print(text, flush=True)

    def notice(self, text: str) -> None:
        print(visible(f"agent batch: {text}", lines=False), file=sys.stderr, flush=True)


class Bar:
    """A progress bar on stderr. Each task that ended with another status than `done` has a line above the bar."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._seen: Counter[Status] = Counter()
        self._running = 0
        self._cost: float | None = None
        self._bar: Progress | None = None
        self._line: TaskID | None = None

    def __enter__(self) -> "Bar":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Left

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), Left())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._line = self._bar.add_task(self._words(), total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begun(self, task: Task) -> None:
        self._running += 1
        self._show(0)

    def ended(self, task: Task, result: TaskResult) -> None:
        self._running -= 1
        self._seen[status_of(result)] += 1
        if isinstance(cost := result.get("cost"), int | float):
            self._cost = (self._cost or 0.0) + cost
        if status_of(result) is not Status.DONE:
            self._say(row(result), _STYLES[status_of(result)])
        self._show(1)

    def notice(self, text: str) -> None:
        self._say(text, "bold")

    def _say(self, text: str, style: str) -> None:
        from rich.console import Console
        from rich.text import Text

        console = self._bar.console if self._bar is not None else Console(stderr=True)
        console.print(Text(visible(text, lines=False), style))

    def _show(self, step: int) -> None:
        if self._bar is not None and self._line is not None:
            self._bar.update(self._line, advance=step, description=self._words())

    def _words(self) -> str:
        counts = _status_counts(self._seen)
        costs = [f"{self._cost:.2f}"] if self._cost is not None else []
        return " · ".join([f"{self._running} running", *counts, *costs])


def _status_counts(counts: Mapping[Status, int]) -> list[str]:
    """Return the counts in words. A task with a denied call is done, too."""
    denied = counts.get(Status.DENIED, 0)
    done = denied + counts.get(Status.DONE, 0)
    parts = [f"{done} done" + (f" ({denied} with denied calls)" if denied else "")] if done else []
    return parts + [f"{counts[each]} {each}" for each in (Status.LIMIT, Status.FAILED) if counts.get(each)]


def row(result: TaskResult) -> str:
    """Return one line about a result, without control characters."""
    status, denied = result.get("status"), result.get("denied")
    count = len(denied) if isinstance(denied, list) else 0
    calls = f", {many(count, 'call')} denied" if count and status in (Status.DONE, Status.DENIED) else ""
    parts = [f"{'done' if status == Status.DENIED else status}{calls}", one_line(str(result.get("id")), 60)]
    if isinstance(turns := result.get("turns"), int):
        parts.append(many(turns, "request"))
    if isinstance(seconds := result.get("seconds"), int | float):
        parts.append(f"{seconds:.1f} s")
    if isinstance(cost := result.get("cost"), int | float):
        parts.append(f"cost {cost:.4f}")
    if isinstance(changed := result.get("changed"), list) and changed:
        parts.append(f"{len(changed)} changed")
    if status not in (Status.DONE, Status.DENIED):
        said = one_line(str(result.get("reason") or ""), _REASON)
        parts.append(", ".join(part for part in (f"{many(count, 'call')} denied" if count else "", said) if part))
    return "  ".join(part for part in parts if part)


def summary(results: "list[TaskResult]", unfinished: int) -> dict[str, object]:
    """Return the counts of a batch by status, the number of unfinished tasks, and the cost (None if it is unknown)."""
    counts = Counter(str(result.get("status")) for result in results)
    costs = [cost for result in results if isinstance(cost := result.get("cost"), int | float)]
    known = {str(each): counts[str(each)] for each in Status}
    return {**known, "unfinished": unfinished, "cost": sum(costs) if costs else None}


def sentence(counts: dict[str, object]) -> str:
    """Return the counts of `summary` as one line."""
    parts = _status_counts({each: int(str(counts[str(each)])) for each in Status})
    if counts["unfinished"]:
        parts.append(f"{counts['unfinished']} unfinished")
    text = ", ".join(parts) or "no tasks were done"
    return f"{text}; cost {counts['cost']:.4f}" if isinstance(counts["cost"], float) else text
