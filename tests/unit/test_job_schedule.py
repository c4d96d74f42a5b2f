"""Schedules of jobs: what the user may write, time zones and daylight saving time, and the files of jobs."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from policy.model.frozen import replace
from policy.model.tier import Mode
from runner.jobs.job import (
    Job,
    JobBudget,
    JobOrigin,
    JobProgress,
    JobTrust,
    OpenRun,
    StoredJob,
    stored_from,
    stored_json,
)
from runner.jobs.schedule import (
    MOST_COUNTED,
    CronTimes,
    Interval,
    OneShot,
    TimeSpan,
    next_time,
    parse_cron,
    parse_duration,
    parse_interval,
    parse_moment,
    parse_schedule,
    schedule_words,
    times_between,
)
from runner.problems import Stopped

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN) -> float:
    """Return a local time in `zone`; `fold` 1 for the second occurrence is marked by `*` at its end."""
    moment = datetime.fromisoformat(text.rstrip("*")).replace(tzinfo=ZoneInfo(zone), fold=int(text.endswith("*")))
    return moment.timestamp()


def local(moment: float | None, zone: str = BERLIN) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M%z")


# fmt: off
NEXT = [  # expression, zone, after (local), the next times (local), why
    ("0 3 * * 1-5",  BERLIN, "2026-11-27T03:00", ["2026-11-30T03:00+0100", "2026-12-01T03:00+0100"], "from Friday to Monday"),
    ("30 2 * * *",   BERLIN, "2026-03-28T12:00", ["2026-03-29T03:00+0200", "2026-03-30T02:30+0200"], "a time that is left out runs right after the gap"),
    ("15,45 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T03:00+0200", "2026-03-30T02:15+0200"], "two of them run once"),
    ("30 2 * * *",   BERLIN, "2026-10-24T12:00", ["2026-10-25T02:30+0200", "2026-10-26T02:30+0100"], "a time that occurs twice runs once"),
    ("45 2 * * *",   BERLIN, "2026-10-25T02:30*", ["2026-10-26T02:45+0100"], "in the second of the two hours, the first is over"),
    ("*/30 * * * *", BERLIN, "2026-03-29T01:30", ["2026-03-29T03:00+0200", "2026-03-29T03:30+0200"], "intervals follow elapsed time over the gap"),
    ("*/30 * * * *", BERLIN, "2026-10-25T02:30", ["2026-10-25T02:00+0100", "2026-10-25T02:30+0100"], "and through the hour that occurs twice"),
    ("0 0 31 * *",   BERLIN, "2026-01-31T00:00", ["2026-03-31T00:00+0200", "2026-05-31T00:00+0200"], "short months have no day 31"),
    ("0 0 29 2 *",   BERLIN, "2026-01-01T00:00", ["2028-02-29T00:00+0100", "2032-02-29T00:00+0100"], "leap years"),
    ("0 12 L * *",   BERLIN, "2026-02-01T00:00", ["2026-02-28T12:00+0100", "2026-03-31T12:00+0200"], "the last day of the month"),
    ("0 0 13 * 5",   BERLIN, "2026-11-01T00:00", ["2026-11-06T00:00+0100", "2026-11-13T00:00+0100"], "two day fields: either"),
    ("30 1 * * *",   "America/New_York", "2026-10-31T12:00", ["2026-11-01T01:30-0400", "2026-11-02T01:30-0500"], "another zone"),
    ("0 2 * * *",    "UTC", "2026-03-29T01:00", ["2026-03-29T02:00+0000", "2026-03-30T02:00+0000"], "no change in UTC"),
]
# fmt: on


@pytest.mark.parametrize(("expression", "zone", "after", "expected", "why"), NEXT, ids=[row[-1] for row in NEXT])
def test_the_next_times_of_an_expression(expression: str, zone: str, after: str, expected: list[str], why: str) -> None:
    schedule, moment, found = parse_cron(expression, zone), at(after, zone), []
    for _ in expected:
        moment = next_time(schedule, moment)
        found.append(local(moment, zone))
    assert found == expected, why


def test_the_times_of_an_interval_are_exact() -> None:
    every = Interval(1800, 1000)
    assert [next_time(every, after) for after in (0, 1000, 2799.5, 2800, 2800.5)] == [2800, 2800, 2800, 4600, 4600]
    assert times_between(every, 1000, 1000 + 1800 * 5) == TimeSpan(5, 2800, 10_000)
    assert times_between(every, 1000, 2799) is None
    assert times_between(OneShot(50), 49.9, 50) == TimeSpan(1, 50, 50)
    assert times_between(OneShot(50), 50, 60) is None


def test_very_many_times_are_not_counted_to_the_end() -> None:
    """A machine that was off for a year does not make its process count half a million times."""
    begin = at("2026-01-01T00:00")
    found = times_between(CronTimes("* * * * *", BERLIN), begin, begin + 365 * 86400)
    assert found == TimeSpan(MOST_COUNTED, int(begin) + 60, int(begin) + 365 * 86400, exact=False)


# fmt: off
WRONG = [
    (lambda: parse_cron("* * * *"),             "does not have five fields"),
    (lambda: parse_cron("* * * * * *"),         "does not have five fields"),
    (lambda: parse_cron("61 * * * *"),          "bad minute"),
    (lambda: parse_cron("5-1 * * * *"),         "bad minute"),
    (lambda: parse_cron("*/0 * * * *"),         "bad minute"),
    (lambda: parse_cron("0 0 30 2 *"),          "bad day-of-month"),
    (lambda: parse_cron("0 0 * * 1#9"),         "bad day-of-week"),
    (lambda: parse_cron("a b c d e"),           "bad minute"),
    (lambda: parse_cron(f"{'1,' * 200}1 * * * *"), "does not have five fields"),
    (lambda: parse_cron("０ 3 * * *"),          "does not have five fields"),
    (lambda: parse_cron("0 3 * * *", "Mars/Olympus"), "no such name"),
    (lambda: parse_cron("0 3 * * *", "../../etc/passwd"), "no such name"),
    (lambda: parse_cron("0 3 * * *", "/etc/passwd"), "no such name"),
    (lambda: parse_interval("59s", 0),          "at least 1 minute"),
    (lambda: parse_interval("1.5h", 0),         "a number with s, m, h, d or w"),
    (lambda: parse_interval("-5m", 0),          "a number with s, m, h, d or w"),
    (lambda: parse_interval("367d", 0),         "at most 366 days"),
    (lambda: parse_moment("2026-03-29T02:30", 0, BERLIN), "does not exist"),
    (lambda: parse_moment("2026-03-29", 0, BERLIN), "HH:MM, or a date with a time"),
    (lambda: parse_moment("24:00", 0, BERLIN),  "HH:MM, or a date with a time"),
    (lambda: parse_moment("1969-01-01T00:00", 0, BERLIN), "it has passed"),
    (lambda: parse_moment("2026-01-01T00:00", 0, BERLIN), "more than 366 days away"),
    (lambda: parse_schedule(None, None, None, None, None, 0), "none of"),
    (lambda: parse_schedule("05:00", None, "1h", None, None, 0), "one schedule"),
    (lambda: parse_schedule(None, "2h", None, None, BERLIN, 0), "the same in every time zone"),
]
# fmt: on


@pytest.mark.parametrize(("attempt", "why"), WRONG, ids=[f"{number} {why}" for number, (_, why) in enumerate(WRONG)])
def test_a_wrong_schedule_is_refused_with_a_reason(attempt: object, why: str) -> None:
    with pytest.raises(Stopped) as caught:
        attempt()
    assert why in caught.value.problem.why or why in caught.value.problem.what
    assert caught.value.problem.fix


# fmt: off
MOMENTS = [  # text, now (local), expected, why
    ("05:00", "2026-11-28T03:00", "2026-11-28T05:00+0100", "later today"),
    ("05:00", "2026-11-28T05:00", "2026-11-29T05:00+0100", "now is not later"),
    ("02:30", "2026-03-29T01:00", "2026-03-30T02:30+0200", "left out today"),
    ("02:30", "2026-10-25T01:00", "2026-10-25T02:30+0200", "the first of two"),
    ("2026-12-24T18:00", "2026-11-28T03:00", "2026-12-24T18:00+0100", "a date"),
    ("2026-12-24 18:00", "2026-11-28T03:00", "2026-12-24T18:00+0100", "with a blank"),
    ("2026-12-24T18:00+00:00", "2026-11-28T03:00", "2026-12-24T19:00+0100", "with an offset"),
]
# fmt: on


@pytest.mark.parametrize(("text", "now", "expected", "why"), MOMENTS, ids=[row[-1] for row in MOMENTS])
def test_a_moment_is_read(text: str, now: str, expected: str, why: str) -> None:
    assert local(parse_moment(text, at(now), BERLIN).at) == expected, why


def test_durations_and_words() -> None:
    assert parse_duration("1h30m", "--in") == 5400
    assert parse_duration("2min", "--in") == 120
    assert parse_duration("1w", "--in") == 604800
    assert schedule_words(parse_interval("90m", 0)) == "every 1h30m"
    assert schedule_words(parse_cron("@daily", BERLIN)) == f"cron 0 0 * * * ({BERLIN})"
    assert schedule_words(parse_cron("0  3 * * 1-5")) == "cron 0 3 * * 1-5 (local time)"


# ---- files

JOB = Job(
    id="j01234567",
    name="nightly",
    schedule=CronTimes("0 3 * * *", BERLIN),
    prompt="look",
    cwd="/home/u/w/src",
    workspace="/home/u/w",
    mode=Mode.DONT_ASK,
    trust=JobTrust("0" * 64, True),
    created=1000,
    budget=JobBudget(turns=3, cost="0.50"),
    tools=("read",),
)
STORED = StoredJob(JOB, JobProgress(1000.5, running=OpenRun(1001.5, 1001), missed=TimeSpan(3, 1, 9), notes=("a note",)))
MODEL = StoredJob(replace(JOB, origin=JobOrigin.MODEL, expires=9999, session="s"), JobProgress(0.0))


@pytest.mark.parametrize(
    "stored",
    [STORED, MODEL, StoredJob(replace(JOB, schedule=OneShot(5)), JobProgress(0.0)),
     StoredJob(replace(JOB, schedule=Interval(60, 5)), JobProgress(0.0, skipped=TimeSpan(1, 2, 2, False)))],
    ids=["cron", "of a model", "one-shot", "interval"],
)  # fmt: skip
def test_a_file_has_all_of_a_job(stored: StoredJob) -> None:
    assert stored_from(stored_json(stored), 1) == stored


# fmt: off
BY_HAND = [  # the place of a value, the value, why
    (("job", "mode"), "dangerously", "a mode that no job may have"),
    (("job", "mode"), "everything", "no mode"),
    (("job", "id"), "../../x", "an id that is a path"),
    (("job", "name"), "../x", "a name that is a path"),
    (("job", "cwd"), "relative", "a relative folder"),
    (("job", "cwd"), "/a\0b", "a NUL"),
    (("job", "prompt"), " ", "no prompt"),
    (("job", "prompt"), 5, "a number as prompt"),
    (("job", "trust"), {"sha256": "", "used": True}, "no hash"),
    (("job", "trust"), {"sha256": "0" * 64}, "a missing field"),
    (("job", "budget"), {}, "no limits"),
    (("job", "budget"), {**stored_json(STORED)["job"]["budget"], "turns": 0}, "a limit below 1"),
    (("job", "budget"), {**stored_json(STORED)["job"]["budget"], "turns": True}, "true as a number"),
    (("job", "schedule"), {"kind": "interval", "seconds": 1, "start": 0}, "an interval below a minute"),
    (("job", "schedule"), {"kind": "cron", "expression": "* * * * * *", "zone": ""}, "seconds"),
    (("job", "schedule"), {"kind": "always"}, "an unknown schedule"),
    (("job", "origin"), "root", "an unknown author"),
    (("job", "origin"), "model", "a model's job without an end"),
    (("job", "created"), -1, "a negative time"),
    (("job", "created"), 1 << 60, "a time that no calendar has"),
    (("job", "catch_up"), "no", "a text as a switch"),
    (("job", "unattended"), False, "an unknown field"),
    (("progress", "since"), "0", "a text as a time"),
    (("progress", "since"), float("nan"), "not a number"),
    (("progress", "running"), {"started": 1}, "half of a run"),
]
# fmt: on


@pytest.mark.threat("T292")
@pytest.mark.parametrize(("place", "value", "why"), BY_HAND, ids=[row[-1] for row in BY_HAND])
def test_a_file_that_no_command_wrote_is_refused(place: tuple[str, str], value: object, why: str) -> None:
    content = stored_json(STORED)
    content[place[0]][place[1]] = value
    with pytest.raises(ValueError, match=r".+"):
        stored_from(content, 1)


def test_times_are_those_of_utc_without_a_zone_of_the_machine() -> None:
    assert datetime.fromtimestamp(next_time(CronTimes("0 0 1 1 *", "UTC"), 0), UTC).isoformat().startswith("1971-01-01")
