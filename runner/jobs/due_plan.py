"""The handling of the times of a schedule that have come: one of them runs, others are missed or skipped.

Pure: the clock is an argument.

INVARIANT: no time of the schedule runs twice, none runs early, at most one runs at once, and every time is either run,
missed, skipped or left out by a pause.
"""

from policy.model.frozen import dataclass, replace
from runner.jobs.job import Job, JobProgress, OpenRun, StoredJob
from runner.jobs.schedule import Interval, OneShot, Schedule, TimeSpan, next_time, times_between

LATE = 300  # seconds: a time that is reached later than this counts as missed
SET_BACK = 3 * 3600  # seconds: a clock that was set back by more does not wait until it is there again
_MOST_NOTES = 20
EXPIRED = "its end has come"
DONE = "its only run is over"
MISSED = "its only time was missed"


@dataclass(frozen=True, slots=True)
class DuePlan:
    """The job after its times were handled. `run` is the run to start now, or None."""

    stored: StoredJob
    run: OpenRun | None


def next_due(stored: StoredJob) -> int | None:
    """Return the time of the next run that is not handled yet, which may have passed; None if there is none."""
    job, progress = stored.job, stored.progress
    if progress.paused or progress.ended:
        return None
    at = next_time(job.schedule, progress.since)
    return None if at is None or (job.expires is not None and at >= job.expires) else at


def needs_handling(stored: StoredJob, now: float) -> bool:
    """Return True if a time has come, the clock was set back far, or the job has reached its end."""
    if stored.progress.paused or stored.progress.ended:
        return False
    if stored.progress.since > now + SET_BACK:
        return True
    at = next_due(stored)
    return at is None or at <= now


def handle_times(stored: StoredJob, now: float) -> DuePlan:
    """Return the job with all times up to `now` handled, and the run to start, with the run entered as in progress."""
    job, progress = stored.job, stored.progress
    if progress.paused or progress.ended:
        return DuePlan(stored, None)
    if progress.since > now + SET_BACK:
        return DuePlan(_set_back(job, progress, now), None)
    limit = now if job.expires is None else min(now, job.expires - 1)
    span = times_between(job.schedule, progress.since, limit)
    run: OpenRun | None = None
    if span is not None:
        missed = _without_last(job.schedule, progress.since, span)
        if now - span.last <= LATE:
            run = OpenRun(now, span.last)
        else:
            missed = span
            run = OpenRun(now, span.last, caught_up=True) if job.catch_up else None
        progress = replace(
            progress,
            since=float(span.last),
            missed=missed.with_more(progress.missed) if missed is not None else progress.missed,
            running=run,
        )
    if run is None:
        if span is not None and isinstance(job.schedule, OneShot):
            progress = replace(progress, ended=MISSED)
        progress = _with_end(job, progress)
    return DuePlan(StoredJob(job, progress), run)


def _without_last(schedule: Schedule, since: float, span: TimeSpan) -> TimeSpan | None:
    """Return the times of `span`, which begins after `since`, without the last one."""
    return times_between(schedule, since, span.last - 1) if span.count > 1 else None


def begin_by_user(stored: StoredJob, now: float) -> DuePlan:
    """Return the job with a run that the user starts at the time `now`. Times that have come already are missed."""
    job, progress = stored.job, stored.progress
    run = OpenRun(now, None)
    if not progress.paused and not progress.ended and now >= progress.since:
        limit = now if job.expires is None else min(now, job.expires - 1)
        span = times_between(job.schedule, progress.since, limit)
        if span is not None:
            progress = replace(progress, since=float(span.last), missed=span.with_more(progress.missed))
            if isinstance(job.schedule, OneShot):
                progress = replace(progress, ended=MISSED)
    return DuePlan(StoredJob(job, replace(progress, running=run)), run)


def finish_run(stored: StoredJob, now: float) -> StoredJob:
    """Return the job after its run. The times that came meanwhile are skipped."""
    job, progress = stored.job, stored.progress
    progress = replace(skip_times(job, progress, now), running=None)
    return StoredJob(job, _with_end(job, progress))


def lost_run(stored: StoredJob) -> StoredJob:
    """Return the job after a run that ended without a result: its process was killed, or the machine stopped."""
    return StoredJob(stored.job, _with_end(stored.job, replace(stored.progress, running=None)))


def skip_times(job: Job, progress: JobProgress, now: float) -> JobProgress:
    """Return `progress` with the times up to `now` counted as skipped: a run was still in progress."""
    if progress.paused or progress.ended or now < progress.since:
        return progress
    limit = now if job.expires is None else min(now, job.expires - 1)
    span = times_between(job.schedule, progress.since, limit)
    if span is None:
        return progress
    return replace(progress, since=float(span.last), skipped=span.with_more(progress.skipped))


def reported(progress: JobProgress) -> JobProgress:
    """Return `progress` without what the summary of a run has just reported."""
    return replace(progress, missed=None, skipped=None, notes=())


def resumed(stored: StoredJob, now: float) -> StoredJob:
    """Return the job without its pause. The times of the pause are neither run nor missed."""
    progress = replace(stored.progress, paused=False, since=max(stored.progress.since, now))
    return StoredJob(stored.job, _with_end(stored.job, progress))


def _with_end(job: Job, progress: JobProgress) -> JobProgress:
    """Return `progress` with the reason if no further time can come."""
    if progress.ended or next_due(StoredJob(job, progress)) is not None or progress.paused:
        return progress
    only = isinstance(job.schedule, OneShot) and progress.since >= job.schedule.at
    return replace(progress, ended=DONE if only else EXPIRED)


def _set_back(job: Job, progress: JobProgress, now: float) -> StoredJob:
    """Return the job for a clock that was set back far: its times count from `now` on.

    Otherwise the job would not run until the clock shows the former time again.
    """
    hours = int((progress.since - now) // 3600)
    note = f"the clock was set back by {hours} hours; times are counted from then on"
    if isinstance(job.schedule, Interval) and job.schedule.start > now:
        job = replace(job, schedule=Interval(job.schedule.seconds, int(now)))
    return StoredJob(job, replace(progress, since=now, notes=(*progress.notes, note)[-_MOST_NOTES:]))
