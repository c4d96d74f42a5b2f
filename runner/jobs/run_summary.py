"""The summary of one run of a job, as a file of the state folder and `agent jobs show` have it."""

from dataclasses import fields
from enum import StrEnum

from policy.model.frozen import dataclass
from runner.jobs.job import JobProgress, OpenRun, StoredJob
from runner.jobs.schedule import TimeSpan, span_words

LONGEST_TEXT = 4000  # characters of the answer
MOST_DENIED = 20  # denials that are listed


class RunTrigger(StrEnum):
    """The reason why a run started."""

    SCHEDULE = "schedule"
    CATCH_UP = "catch-up"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of one run.

    Attributes:
        due: The time of the schedule, or None if the user started the run.
        ended: The end of the run, or None if it ended without a result.
        exit: The exit code, or None if the run ended without a result.
        reason: The reason for the end, in words.
        session: The session of the record, and the one to resume; empty if none began.
        cost: The cost, or None if it is unknown.
        tokens: The tokens, sent and received.
        denials: The number of denied actions.
        denied: The first of them, in words.
        reports: Reports about missed and skipped times and about the clock, in words.
        text: The beginning of the answer.
    """

    trigger: str
    started: float
    due: int | None
    ended: float | None
    exit: int | None
    reason: str
    session: str = ""
    turns: int = 0
    tokens: int = 0
    cost: float | None = None
    denials: int = 0
    denied: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    text: str = ""

    @property
    def first_line(self) -> str:
        """Return the first line of the answer that has text."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


def trigger_of(run: OpenRun) -> RunTrigger:
    """Return the reason why a run started."""
    if run.due is None:
        return RunTrigger.PERSON
    return RunTrigger.CATCH_UP if run.caught_up else RunTrigger.SCHEDULE


def report_words(progress: JobProgress) -> tuple[str, ...]:
    """Return what `progress` has to report, in words: missed times, skipped times, events of the clock."""
    return (
        *_span_report(progress.missed, "missed"),
        *_span_report(progress.skipped, "skipped, because the run before was still in progress"),
        *progress.notes,
    )


def _span_report(span: TimeSpan | None, what: str) -> tuple[str, ...]:
    return () if span is None else (f"{what}: {span_words(span)}",)


def lost_summary(stored: StoredJob) -> RunSummary:
    """Return the summary of a run that is entered as in progress, but has no process."""
    run = stored.progress.running
    assert run is not None, "called for a run"
    return RunSummary(
        trigger=trigger_of(run).value,
        started=run.started,
        due=run.due,
        ended=None,
        exit=None,
        reason="it ended without a result: its process was killed, or the machine stopped",
        session=run.session,
        reports=report_words(stored.progress),
    )


def summary_json(summary: RunSummary) -> dict[str, object]:
    """Return the JSON object of a summary. Times are in seconds since 1970."""
    values = {each.name: getattr(summary, each.name) for each in fields(RunSummary)}
    return {**values, "denied": list(summary.denied), "reports": list(summary.reports)}


def summary_from(raw: object) -> RunSummary:
    """Return the summary of the object that `summary_json` returns. Raise ValueError or TypeError."""
    if not isinstance(raw, dict) or raw.keys() != {each.name for each in fields(RunSummary)}:
        raise ValueError("it is no summary of a run")
    kinds = {"trigger": str, "reason": str, "session": str, "text": str, "turns": int, "tokens": int, "denials": int}
    if not all(type(raw[name]) is kind for name, kind in kinds.items()):
        raise ValueError("a value in it has another type")
    for name in ("due", "ended", "exit", "cost"):
        if raw[name] is not None and not isinstance(raw[name], int | float):
            raise ValueError("a value in it has another type")
    if not isinstance(raw["started"], int | float):
        raise ValueError("a value in it has another type")
    texts = {name: tuple(map(str, raw[name])) for name in ("denied", "reports")}
    return RunSummary(**{**raw, **texts})
