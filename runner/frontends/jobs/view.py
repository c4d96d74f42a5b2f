"""The rows, the description and the JSON objects of jobs, for `agent jobs`."""

from dataclasses import fields

from runner.jobs.due_plan import LATE, next_due
from runner.jobs.job import Job, JobOrigin, StoredJob, schedule_json, span_json
from runner.jobs.run_summary import RunSummary, report_words
from runner.jobs.schedule import TimeSpan, local_words, schedule_words, span_words, times_between
from runner.jobs.store import JobEntry, JobStore
from runner.text.json_line import utc_time
from runner.text.sanitize import one_line, visible

_WIDE = 80  # columns of a prompt in a list


class JobView:
    """One job with its state as of `now`, its reports and its last runs."""

    def __init__(self, store: JobStore, entry: JobEntry, now: float) -> None:
        self.entry = entry
        stored = store.settle(entry.id) if entry.stored is not None else None
        self.stored = stored
        self.running = stored is not None and store.is_running(entry.id)
        self.runs = store.summaries(entry.id)
        self._now = now

    @property
    def state(self) -> str:
        """Return the state in one word."""
        if self.stored is None:
            return "damaged"
        progress = self.stored.progress
        if self.running:
            return "running"
        return "ended" if progress.ended else "paused" if progress.paused else "waiting"

    @property
    def next(self) -> int | None:
        """Return the time of the next run, which has passed if no process started it yet."""
        return next_due(self.stored) if self.stored is not None else None

    @property
    def overdue(self) -> TimeSpan | None:
        """Return the times that have passed, and that no process has handled."""
        if self.stored is None or self.running or self.next is None:
            return None
        job = self.stored.job
        limit = self._now - LATE if job.expires is None else min(self._now - LATE, job.expires - 1)
        return times_between(job.schedule, self.stored.progress.since, limit)

    @property
    def reports(self) -> tuple[str, ...]:
        """Return what no summary of a run has reported yet, in words."""
        if self.stored is None:
            return ()
        words = report_words(self.stored.progress)
        if (overdue := self.overdue) is not None:
            words = (*words, f"not started: {span_words(overdue)}; scheduled runs need `agent serve`")
        return words

    def row(self) -> str:
        """Return the lines of `agent jobs list`."""
        if self.stored is None:
            return visible(f"{self.entry.id}  damaged: {self.entry.fault}", lines=False)
        job, progress = self.stored.job, self.stored.progress
        parts = [job.id, *([job.name] if job.name else []), schedule_words(job.schedule), self.state]
        if progress.ended:
            parts[-1] = f"ended: {progress.ended}"
        elif self.next is not None and not self.running:
            parts.append(f"next {local_words(self.next)}")
        if self.runs:
            parts.append(_result_words(self.runs[0]))
        lines = [visible("  ".join(parts), lines=False), f"    {visible(one_line(job.prompt, _WIDE), lines=False)}"]
        return "\n".join([*lines, *(f"    {visible(each, lines=False)}" for each in self.reports)])

    def description(self) -> str:
        """Return the text of `agent jobs show`."""
        if self.stored is None:
            return self.row()
        job, progress = self.stored.job, self.stored.progress
        next_words = local_words(self.next) if self.next is not None else "none"
        rows = [
            ("job", job.label),
            ("state", f"ended: {progress.ended}" if progress.ended else self.state),
            ("schedule", schedule_words(job.schedule)),
            ("next", next_words),
            ("folder", job.cwd),
            *job_rows(job),
            *(("report", each) for each in self.reports),
        ]
        text = "\n".join(f"{name:<9} {visible(value, lines=False)}" for name, value in rows if value)
        text += f"\n\n{visible(job.prompt)}"
        return "\n\n".join([text, *map(_run_text, self.runs)])

    def as_json(self, *, runs: bool = False) -> dict[str, object]:
        """Return the JSON object of the job, with the last runs if `runs` is set."""
        if self.stored is None:
            return {"id": self.entry.id, "state": "damaged", "fault": self.entry.fault}
        job, progress = self.stored.job, self.stored.progress
        found: dict[str, object] = {
            "id": job.id,
            "name": job.name or None,
            "state": self.state,
            "ended": progress.ended or None,
            "schedule": schedule_json(job.schedule),
            "next": utc_time(self.next),
            "prompt": job.prompt,
            "folder": job.cwd,
            "workspace": job.workspace,
            "mode": job.mode.value,
            "model": job.model or None,
            "budget": {each.name: getattr(job.budget, each.name) for each in fields(job.budget)},
            "trust": {"sha256": job.trust.sha256, "used": job.trust.used},
            "catch_up": job.catch_up,
            "origin": job.origin.value,
            "created": utc_time(job.created),
            "expires": utc_time(job.expires),
            "missed": span_json(progress.missed),
            "skipped": span_json(progress.skipped),
            "reports": list(self.reports),
            "last": run_json(self.runs[0]) if self.runs else None,
        }
        return {**found, "runs": [run_json(each) for each in self.runs]} if runs else found


def job_rows(job: Job) -> list[tuple[str, str]]:
    """Return what a run of the job may do, as names and texts."""
    trust = "the files of the repository are used as long as they do not change"
    if not job.trust.used:
        trust = "the files of the repository that configure or instruct the agent are not used"
    origin = "" if job.origin is JobOrigin.PERSON else f"requested by a model in the session {job.session}"
    return [
        ("mode", job.mode.value),
        ("model", job.model or "that of the settings"),
        ("budget", job.budget.words or "that of the settings"),
        ("tools", ", ".join(job.tools)),
        ("no tools", ", ".join(job.no_tools)),
        ("trust", trust),
        ("missed", "one run replaces missed ones" if job.catch_up else ""),
        ("origin", origin),
        ("until", local_words(job.expires) if job.expires is not None else ""),
    ]


def run_json(summary: RunSummary) -> dict[str, object]:
    """Return the JSON object of one run."""
    return {
        "trigger": summary.trigger,
        "due": utc_time(summary.due),
        "started": utc_time(summary.started),
        "ended": utc_time(summary.ended),
        "exit": summary.exit,
        "reason": summary.reason,
        "session": summary.session or None,
        "turns": summary.turns,
        "tokens": summary.tokens,
        "cost": summary.cost,
        "denials": summary.denials,
        "denied": list(summary.denied),
        "reports": list(summary.reports),
        "text": summary.text,
    }


def _result_words(summary: RunSummary) -> str:
    result = "no result" if summary.exit is None else f"exit {summary.exit}"
    denials = f", {summary.denials} denied" if summary.denials else ""
    return f"last {local_words(summary.started)}: {result}{denials}"


def _run_text(summary: RunSummary) -> str:
    """Return the lines of one run."""
    head = f"run {local_words(summary.started)} ({summary.trigger})"
    if summary.exit is None:
        lines = [f"{head}: {summary.reason}"]
    else:
        cost = "" if summary.cost is None else f", cost {summary.cost:.4f}"
        seconds = (summary.ended or summary.started) - summary.started
        lines = [f"{head}: exit {summary.exit}, {summary.reason}"]
        lines.append(f"  {summary.turns} turns, {summary.tokens} tokens{cost}, {seconds:.0f} s")
    lines += [f"  {each}" for each in summary.reports]
    lines += [f"  denied: {each}" for each in summary.denied]
    if summary.denials > len(summary.denied):
        lines.append(f"  and {summary.denials - len(summary.denied)} more denials")
    if summary.first_line:
        lines.append(f"  answer: {one_line(summary.first_line, 200)}")
    if summary.session:
        more = f"; to continue it: agent --resume {summary.session}" if summary.turns else ""
        lines.append(f"  record: agent audit list --session {summary.session}{more}")
    return "\n".join(visible(line, lines=False) for line in lines)


def stored_words(stored: StoredJob) -> str:
    """Return the line about a job that was just stored."""
    at = next_due(stored)
    when = f"; the next run: {local_words(at)}" if at is not None else ""
    return f"{stored.job.label}: {schedule_words(stored.job.schedule)}{when}"
