"""The times of a job: once, in equal intervals, or by a cron expression.

A time is a number of seconds since 1970. Cron expressions have five fields (minute, hour, day of the month, month, day
of the week) and are read by `cronsim`, as Debian's cron does it with daylight saving time: a time of day that a change
of the clock leaves out runs right after the gap, and a time of day that occurs twice runs at its first occurrence.
Expressions whose minute or hour begins with `*` follow elapsed time.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.problems import Stopped, usage

if TYPE_CHECKING:
    from cronsim import CronSim

SHORTEST = 60  # seconds of an interval
LONGEST = 366 * 86400  # seconds of an interval, or until a one-shot
MOST_COUNTED = 10_000  # times of a cron expression that are counted
_LONGEST_TEXT = 200  # characters of a cron expression
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:min|[smhdw]))+")
_PART = re.compile(r"([0-9]{1,9})(min|[smhdw])")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# Windows in which the last of very many times is looked for, in seconds before the end.
_WINDOWS = (3600, 86400, 40 * 86400, 400 * 86400)


@dataclass(frozen=True, slots=True)
class OneShot:
    """A single time."""

    at: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Times at equal distances: the first is `seconds` after `start`."""

    seconds: int
    start: int


@dataclass(frozen=True, slots=True)
class CronTimes:
    """The times of a cron expression. `zone` is the name of a time zone, or empty for that of the machine."""

    expression: str
    zone: str = ""


Schedule = OneShot | Interval | CronTimes


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Several times of a schedule. `exact` is False if there were more than `count`."""

    count: int
    first: int
    last: int
    exact: bool = True

    def with_more(self, other: "TimeSpan | None") -> "TimeSpan":
        """Return the union of two groups of different times."""
        if other is None:
            return self
        first, last = min(self.first, other.first), max(self.last, other.last)
        return TimeSpan(self.count + other.count, first, last, self.exact and other.exact)


def next_time(schedule: Schedule, after: float) -> int | None:
    """Return the first time of `schedule` later than `after`, or None if there is none.

    Raise Stopped if the library of cron expressions or the time zone is missing.
    """
    match schedule:
        case OneShot(at):
            return at if at > after else None
        case Interval(seconds, start):
            return start + max(1, int((after - start) // seconds) + 1) * seconds
        case CronTimes():
            return next(_cron_times(schedule, after), None)


def times_between(schedule: Schedule, after: float, until: float) -> TimeSpan | None:
    """Return the times of `schedule` later than `after` and not later than `until`, or None if there are none.

    Times of a cron expression are counted up to `MOST_COUNTED`. Raise what `next_time` raises.
    """
    first = next_time(schedule, after)
    if first is None or first > until:
        return None
    if isinstance(schedule, OneShot):
        return TimeSpan(1, first, first)
    if isinstance(schedule, Interval):
        count = int((until - first) // schedule.seconds) + 1
        return TimeSpan(count, first, first + (count - 1) * schedule.seconds)
    found: list[int] = []
    for each in islice(_cron_times(schedule, after), MOST_COUNTED + 1):
        if each > until:
            return TimeSpan(len(found), first, found[-1])
        found.append(each)
    for window in _WINDOWS:
        late = list(_until(_cron_times(schedule, max(after, until - window)), until))
        if late:
            return TimeSpan(MOST_COUNTED, first, late[-1], exact=False)
    return TimeSpan(MOST_COUNTED, first, found[-1], exact=False)


def _until(times: Iterator[int], until: float) -> Iterator[int]:
    for each in times:
        if each > until:
            return
        yield each


def _cron_times(schedule: CronTimes, after: float) -> Iterator[int]:
    """Yield the times later than `after`, each once and in order."""
    latest = after
    for found in _simulated(schedule.expression, datetime.fromtimestamp(after, zone_named(schedule.zone))):
        moment = int(found.timestamp())
        # In the hour that occurs twice, the next time of day may be the first occurrence of one, which is over.
        if moment > latest:
            latest = moment
            yield moment


def _simulated(expression: str, start: datetime) -> "CronSim":
    """Return the iterator of the library. Raise Stopped if it is not installed or rejects the expression."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        why, fix = "the library `cronsim` is not installed", "install ringfence again, or use --every"
        raise usage("cron expressions cannot be read", why, fix) from None
    try:
        return CronSim(expression, start)
    except (CronSimError, AssertionError, ValueError) as error:
        words = str(error).lower() or "it has an invalid field"
        raise usage(f"`{expression}` is not a cron expression", words, CRON_FIX) from None


CRON_FIX = "write minute, hour, day of the month, month and day of the week, as in '0 3 * * 1-5'"


# ---- time zones


def zone_named(name: str) -> tzinfo:
    """Return the time zone `name`; for an empty name, that of the machine as of now. Raise a usage error."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if not name:
        try:
            with open("/etc/localtime", "rb") as file:
                return ZoneInfo.from_file(file)
        except (OSError, ValueError):
            return UTC  # SOURCE: localtime(5): without the file, the time zone is UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        why = "the time zones of this machine have no such name"
        raise usage(f"there is no time zone `{name[:60]}`", why, "write it as in --tz Europe/Berlin") from None


# ---- what the user writes


def parse_duration(text: str, option: str) -> int:
    """Return a duration such as `30m`, `2h` or `1h30m` in seconds. Raise a usage error that names `option`."""
    words = text.strip().lower()
    if not _DURATION.fullmatch(words):
        why = "a duration is a number with s, m, h, d or w"
        raise usage(f"`{text[:60]}` is not a duration for {option}", why, f"write it as in {option} 30m")
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(words))
    if not 1 <= seconds <= LONGEST:
        why = "a duration is at least 1 second and at most 366 days"
        raise usage(f"`{text[:60]}` is not a duration for {option}", why, f"write it as in {option} 30m")
    return seconds


def parse_interval(text: str, now: float) -> Interval:
    """Return the interval that `--every` names, which starts now. Raise a usage error."""
    seconds = parse_duration(text, "--every")
    if seconds < SHORTEST:
        raise usage(f"`--every {text[:60]}` is too short", "an interval has at least 1 minute", "write --every 1m")
    return Interval(seconds, int(now))


def parse_cron(text: str, zone: str = "") -> CronTimes:
    """Return the times of a cron expression in the time zone `zone`. Raise a usage error, also for an expression that
    no date fits.
    """
    words = " ".join(text.split())
    words = _NAMED.get(words.lower(), words)
    if len(words) > _LONGEST_TEXT or len(words.split()) != 5 or not words.isascii():
        raise usage(f"`{words[:60]}` is not a cron expression", "it does not have five fields", CRON_FIX)
    schedule = CronTimes(words, zone)
    if next_time(schedule, 0.0) is None:
        raise usage(f"`{words[:60]}` never happens", "no date fits the expression", CRON_FIX)
    return schedule


def parse_moment(text: str, now: float, zone: str = "") -> OneShot:
    """Return the time that `--at` names: `HH:MM`, the next time that the clock shows it, or a date with a time.

    Times without an offset are in the time zone `zone`. Raise a usage error for a time that has passed, that is more
    than 366 days away, or that a change of the clock leaves out.
    """
    here = zone_named(zone)
    words = text.strip()
    if clock := _CLOCK.fullmatch(words):
        today = datetime.fromtimestamp(now, here)
        wanted = today.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0, fold=0)
        if wanted.timestamp() <= now or _left_out(wanted):
            wanted = (wanted.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=here)
        found: datetime | None = wanted
    else:
        try:
            found = datetime.fromisoformat(words)
        except ValueError:
            found = None
    if found is None or (not clock and not re.search("[T ]", words)):
        why = "a time is HH:MM, or a date with a time"
        raise usage(f"`{text[:60]}` is not a time for --at", why, "write it as in --at 2026-03-04T05:06")
    found = found if found.tzinfo is not None else found.replace(tzinfo=here)
    if _left_out(found):
        why = "the clock is set forward at this time, so it does not exist"
        raise usage(f"`{text[:60]}` is not a time for --at", why, "choose another time, or write it with an offset")
    at = int(found.timestamp())
    if not now < at <= now + LONGEST:
        why = "it has passed" if at <= now else "it is more than 366 days away"
        raise usage(f"`--at {text[:60]}` cannot be used", why, "choose a later time" if at <= now else "use --cron")
    return OneShot(at)


def _left_out(moment: datetime) -> bool:
    """Return True if a change of the clock leaves out this time of day."""
    back = moment.astimezone(UTC).astimezone(moment.tzinfo)
    return back.replace(tzinfo=None, fold=0) != moment.replace(tzinfo=None, fold=0)


# ---- what the user reads


def schedule_words(schedule: Schedule) -> str:
    """Return the schedule in words."""
    match schedule:
        case OneShot(at):
            return f"once, {local_words(at)}"
        case Interval(seconds, _):
            return f"every {duration_words(seconds)}"
        case CronTimes(expression, zone):
            return f"cron {expression} ({zone or 'local time'})"


def duration_words(seconds: int) -> str:
    """Return a duration in the form of `parse_duration`."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def local_words(moment: float) -> str:
    """Return a time to the minute, in the time zone of the machine."""
    return datetime.fromtimestamp(moment, zone_named("")).strftime("%Y-%m-%d %H:%M")


def span_words(span: TimeSpan) -> str:
    """Return the number of times and their range in words: `3 runs between ... and ...`."""
    count = f"{span.count}" if span.exact else f"more than {span.count}"
    if span.count == 1:
        return f"1 run at {local_words(span.first)}"
    return f"{count} runs between {local_words(span.first)} and {local_words(span.last)}"


def parse_schedule(
    at: str | None, within: str | None, every: str | None, cron: str | None, zone: str | None, now: float
) -> Schedule:
    """Return the schedule that exactly one of the options `--at`, `--in`, `--every` and `--cron` names. `zone` is the
    value of `--tz`. Raise a usage error.
    """
    given = [name for name, value in (("--at", at), ("--in", within), ("--every", every), ("--cron", cron)) if value]
    if len(given) != 1:
        what = f"{' and '.join(given)} exclude each other" if given else "the job has no schedule"
        why = "a job has one schedule" if given else "none of --at, --in, --every and --cron was given"
        raise usage(what, why, "write one of --at TIME, --in 2h, --every 30m, --cron '0 3 * * 1-5'")
    if zone is not None:
        if not (at or cron):
            raise _no_zone(given[0])
        zone_named(zone)
    if at:
        return parse_moment(at, now, zone or "")
    if within:
        return OneShot(int(now) + parse_duration(within, "--in"))
    if every:
        return parse_interval(every, now)
    return parse_cron(cron or "", zone or "")


def _no_zone(name: str) -> Stopped:
    return usage(f"--tz has no meaning with {name}", "a duration is the same in every time zone", "leave --tz out")
