"""Laws of due times: never early, never twice, never two at once, and every time is counted exactly once."""

from hypothesis import given
from hypothesis import strategies as st

from policy.model.frozen import replace
from policy.model.tier import Mode
from runner.jobs.due_plan import (
    LATE,
    SET_BACK,
    begin_by_user,
    finish_run,
    handle_times,
    lost_run,
    needs_handling,
    reported,
    skip_times,
)
from runner.jobs.job import Job, JobProgress, JobTrust, StoredJob
from runner.jobs.schedule import CronTimes, Interval, OneShot, times_between
from tests.support.law import examples

# The change from summer time is on 2026-10-25 at 01:00 UTC, that to summer time on 2027-03-28.
BEGIN = 1792879200  # 2026-10-24T22:00Z
SCHEDULES = st.one_of(
    st.builds(Interval, st.integers(60, 7200), st.just(BEGIN)),
    st.builds(OneShot, st.integers(BEGIN + 1, BEGIN + 20_000)),
    st.builds(
        CronTimes,
        st.sampled_from(["* * * * *", "*/7 * * * *", "15 * * * *", "30 2 * * *", "0,30 1-3 * * *", "10 */2 * * *"]),
        st.sampled_from(["Europe/Berlin", "UTC"]),
    ),
)
# What happens next: seconds until then, and the kind of event.
STEPS = st.lists(
    st.tuples(st.floats(0.5, 9000), st.sampled_from(["look", "look", "look", "user", "crash", "finish"])), max_size=40
)


def stored(schedule: object, catch_up: bool) -> StoredJob:
    job = Job(
        "j01234567", "", schedule, "p", "/w", "/w", Mode.PLAN, JobTrust("0" * 64, False), BEGIN, catch_up=catch_up
    )
    return StoredJob(job, JobProgress(float(BEGIN)))


@given(SCHEDULES, STEPS, st.booleans())
@examples(400, deadline=None)
def test_every_time_is_run_missed_or_skipped_exactly_once(schedule: object, steps: list, catch_up: bool) -> None:
    now, each, run = float(BEGIN), stored(schedule, catch_up), None
    ran: list[int] = []
    counted = 0
    for seconds, kind in steps:
        now += seconds
        if kind == "finish" and run is not None:
            after = StoredJob(each.job, skip_times(each.job, each.progress, now))
            counted += count(after.progress)
            done = finish_run(after, now)
            each, run = StoredJob(done.job, reported(done.progress)), None
        elif kind == "crash" and run is not None:
            each, run = lost_run(each), None
        elif kind in ("look", "user") and run is None:  # the lock keeps a second process out
            assert each.progress.running is None, "two runs at once"
            expected = needs_handling(each, now)
            plan = handle_times(each, now) if kind == "look" else begin_by_user(each, now)
            if kind == "look" and plan.run is not None:
                assert expected
                assert plan.run.due is not None
                assert plan.run.due <= now, "a run before its time"
                if plan.run.caught_up:
                    assert catch_up  # its time counts as missed
                else:
                    assert now - plan.run.due <= LATE, "a late time ran without --catch-up"
                    ran.append(plan.run.due)
            each, run = plan.stored, plan.run
            assert run is not None or not needs_handling(each, now)
    assert len(ran) == len(set(ran)), "a time ran twice"
    total = len(ran) + counted + count(each.progress)
    handled = times_between(schedule, BEGIN, each.progress.since)
    assert total == (handled.count if handled else 0), "a time was lost, or counted twice"


def count(progress: JobProgress) -> int:
    return sum(span.count for span in (progress.missed, progress.skipped) if span is not None)


@given(SCHEDULES, st.integers(SET_BACK + 1, 10**8), st.floats(0, 86400))
@examples(200, deadline=None)
def test_a_clock_that_was_wrong_does_not_stop_a_job(schedule: object, ahead: int, later: float) -> None:
    """The clock showed a time far ahead, then it was corrected: the job waits from then on, and runs nothing early."""
    if isinstance(schedule, OneShot):
        return
    if isinstance(schedule, Interval):
        schedule = replace(schedule, start=BEGIN + ahead)
    each = stored(schedule, False)
    each = replace(each, progress=replace(each.progress, since=float(BEGIN + ahead)))
    assert needs_handling(each, BEGIN)
    plan = handle_times(each, BEGIN)
    assert plan.run is None
    assert plan.stored.progress.since == BEGIN
    assert plan.stored.progress.notes
    after = handle_times(plan.stored, BEGIN + later)
    span = times_between(plan.stored.job.schedule, BEGIN, BEGIN + later)
    assert count(after.stored.progress) + (after.run is not None) == (span.count if span else 0)


@given(SCHEDULES, st.floats(0, SET_BACK))
@examples(100, deadline=None)
def test_a_clock_that_was_set_back_a_little_repeats_no_time(schedule: object, back: float) -> None:
    later = BEGIN + 20_000.0
    each = handle_times(stored(schedule, True), later).stored
    each = lost_run(each)
    plan = handle_times(each, later - back)
    assert plan.run is None
    assert count(plan.stored.progress) == count(each.progress)


@given(SCHEDULES, st.floats(1, 40_000), st.integers(1, 40_000))
@examples(200, deadline=None)
def test_nothing_runs_at_or_after_the_end(schedule: object, later: float, end: int) -> None:
    each = stored(schedule, True)
    each = replace(each, job=replace(each.job, expires=BEGIN + end))
    plan = handle_times(each, BEGIN + later)
    if plan.run is not None:
        assert plan.run.due < BEGIN + end
    if later >= end and plan.run is None:
        assert plan.stored.progress.ended
