"""The values of a scheduled job: what it does, when, with which rights, and how far its times are handled."""

import re
from dataclasses import field, fields
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from runner.jobs.schedule import CronTimes, Interval, OneShot, Schedule, TimeSpan
from runner.problems import usage

MOST_JOBS = 100
LONGEST_PROMPT = 64 << 10  # characters
_LONGEST_NAME = 40
_ID = re.compile("j[0-9a-f]{8}")
_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{_LONGEST_NAME - 2}}}[a-z0-9])?")
_HASH = re.compile("[0-9a-f]{64}")
_LATEST = 1 << 40  # seconds since 1970

# The modes of a job. `dangerously` is left out: no user sees what such a run does.
MODES = tuple(mode for mode in Mode if mode is not Mode.DANGEROUSLY)


class JobOrigin(StrEnum):
    """The author of a job's prompt."""

    PERSON = "person"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class JobBudget:
    """The limits of one run, as the options of `agent run` name them; None leaves a limit to the settings."""

    turns: int | None = None
    tokens: int | None = None
    cost: str | None = None
    timeout: str | None = None
    output: str | None = None
    denials: int | None = None

    @property
    def words(self) -> str:
        """Return the limits in words, or an empty text without any."""
        return ", ".join(f"{each.name} {value}" for each in fields(self) if (value := getattr(self, each.name)))


@dataclass(frozen=True, slots=True)
class JobTrust:
    """The content of the workspace that the user saw when the job was created.

    Attributes:
        sha256: The hash of the files that configure or instruct the agent (`agent trust show`).
        used: True if the user trusted them then, so that the runs use them.
    """

    sha256: str
    used: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was created.

    Attributes:
        cwd: The working folder, a real path.
        workspace: The workspace around it.
        model: The model as `provider:model`, or empty for that of the settings.
        account: The account whose key is used, or empty.
        tools: Patterns of the tools that the model may call; empty for all.
        no_tools: Patterns of the tools that it may not call.
        catch_up: True if one run replaces missed ones.
        created: The time of the creation.
        expires: The time from which on the job does not run, or None.
        session: The session whose model requested the job, or empty.
    """

    id: str
    name: str
    schedule: Schedule
    prompt: str
    cwd: str
    workspace: str
    mode: Mode
    trust: JobTrust
    created: int
    model: str = ""
    account: str = ""
    tools: tuple[str, ...] = ()
    no_tools: tuple[str, ...] = ()
    budget: JobBudget = field(default_factory=JobBudget)
    catch_up: bool = False
    origin: JobOrigin = JobOrigin.PERSON
    expires: int | None = None
    session: str = ""

    @property
    def label(self) -> str:
        """Return the id with the name, if the job has one."""
        return f"{self.id} ({self.name})" if self.name else self.id


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run in progress.

    Attributes:
        started: The start of the run.
        due: The time of the schedule that it is for, or None if the user started it.
        caught_up: True if it replaces missed runs.
        session: The session of the record, once it has begun.
    """

    started: float
    due: int | None
    caught_up: bool = False
    session: str = ""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The state of a job: which times are handled, the run in progress, and what is to be reported.

    Attributes:
        since: The times of the schedule up to this time are handled.
        paused: True if the user paused the job.
        ended: Why the job does not run any more, or empty.
        running: The run in progress, or one that ended without a result.
        missed: The missed times that no summary reports yet.
        skipped: The times, likewise, at which the run before was still in progress.
        notes: Other events for the next summary, such as a clock that was set back.
    """

    since: float
    paused: bool = False
    ended: str = ""
    running: OpenRun | None = None
    missed: TimeSpan | None = None
    skipped: TimeSpan | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with its progress."""

    job: Job
    progress: JobProgress


def is_job_id(text: str) -> bool:
    """Return True if `text` has the form of the id of a job."""
    return _ID.fullmatch(text) is not None


def checked_name(text: str) -> str:
    """Return `text` if it can be the name of a job. Raise a usage error."""
    if not _NAME.fullmatch(text) or is_job_id(text):
        why = f"a name has 1 to {_LONGEST_NAME} characters, a-z, 0-9 and -, and is no id of a job"
        raise usage(f"`{text[:60]}` cannot be the name of a job", why, "write it as in --name nightly-check")
    return text


def checked_mode(mode: Mode) -> Mode:
    """Return `mode` if a job may have it. Raise a usage error."""
    if mode not in MODES:
        why = "a job runs without a user who could see what it does"
        raise usage(f"a job cannot have the mode `{mode.value}`", why, f"use one of {', '.join(MODES)}")
    return mode


# ---- JSON


def stored_json(stored: StoredJob) -> dict[str, object]:
    """Return the content of the file of a job."""
    job, progress = stored.job, stored.progress
    return {
        "job": {
            **{name: getattr(job, name) for name in _PLAIN},
            "schedule": schedule_json(job.schedule),
            "mode": job.mode.value,
            "trust": _fields_of(job.trust),
            "budget": _fields_of(job.budget),
            "tools": list(job.tools),
            "no_tools": list(job.no_tools),
            "origin": job.origin.value,
        },
        "progress": {
            "since": progress.since,
            "paused": progress.paused,
            "ended": progress.ended,
            "running": None if progress.running is None else _fields_of(progress.running),
            "missed": span_json(progress.missed),
            "skipped": span_json(progress.skipped),
            "notes": list(progress.notes),
        },
    }


_PLAIN = (
    "id", "name", "prompt", "cwd", "workspace", "created", "model", "account", "catch_up", "expires", "session",
)  # fmt: skip


def stored_from(content: dict[str, object], version: int) -> StoredJob:
    """Return the job of a file that `stored_json` wrote. Raise ValueError for any other content.

    THREAT T292: a file that was changed by hand is used only if every value in it is one that the commands could have
    stored; otherwise the job does not run.
    """
    entry, progress = _object(content.pop("job", None)), _object(content.pop("progress", None))
    if content:
        raise ValueError("it has unknown fields")
    trust, budget = _object(entry.get("trust")), _object(entry.get("budget"))
    expires = entry.get("expires")
    job = Job(
        id=_text(entry, "id"),
        name=_text(entry, "name"),
        schedule=schedule_from(_object(entry.get("schedule"))),
        prompt=_text(entry, "prompt"),
        cwd=_text(entry, "cwd"),
        workspace=_text(entry, "workspace"),
        mode=Mode(_text(entry, "mode")),
        trust=JobTrust(_text(trust, "sha256"), _switch(trust, "used")),
        created=_whole(entry, "created"),
        model=_text(entry, "model"),
        account=_text(entry, "account"),
        tools=_texts(entry, "tools"),
        no_tools=_texts(entry, "no_tools"),
        budget=_budget(budget),
        catch_up=_switch(entry, "catch_up"),
        origin=JobOrigin(_text(entry, "origin")),
        expires=None if expires is None else _whole(entry, "expires"),
        session=_text(entry, "session"),
    )
    _same_fields(entry, stored_json(StoredJob(job, JobProgress(0.0)))["job"])
    _check(job)
    running = progress.get("running")
    return StoredJob(
        job,
        JobProgress(
            since=_moment(progress, "since"),
            paused=_switch(progress, "paused"),
            ended=_text(progress, "ended"),
            running=None if running is None else _run(_object(running)),
            missed=_span(progress.get("missed")),
            skipped=_span(progress.get("skipped")),
            notes=_texts(progress, "notes"),
        ),
    )


def _check(job: Job) -> None:
    """Raise ValueError for values that no command stores."""
    if not is_job_id(job.id) or (job.name and (not _NAME.fullmatch(job.name) or is_job_id(job.name))):
        raise ValueError("its id or name is not valid")
    if job.mode not in MODES:
        raise ValueError(f"a job cannot have the mode {job.mode.value}")
    if not job.prompt.strip() or len(job.prompt) > LONGEST_PROMPT:
        raise ValueError("its prompt is empty or too long")
    if not all(path.startswith("/") and "\0" not in path for path in (job.cwd, job.workspace)):
        raise ValueError("its folder is not an absolute path")
    if not _HASH.fullmatch(job.trust.sha256):
        raise ValueError("its trust hash is not a hash")
    if job.origin is JobOrigin.MODEL and job.expires is None:
        raise ValueError("a job that a model requested has an end")


def schedule_json(schedule: Schedule) -> dict[str, object]:
    """Return the JSON object of a schedule, as `agent jobs --json` and the file of a job have it."""
    match schedule:
        case OneShot(at):
            return {"kind": "once", "at": at}
        case Interval(seconds, start):
            return {"kind": "interval", "seconds": seconds, "start": start}
        case CronTimes(expression, zone):
            return {"kind": "cron", "expression": expression, "zone": zone}


def schedule_from(raw: dict[str, object]) -> Schedule:
    """Return the schedule of the object that `schedule_json` returns. Raise ValueError."""
    kind, rest = raw.get("kind"), {key: value for key, value in raw.items() if key != "kind"}
    if kind == "once" and rest.keys() == {"at"}:
        return OneShot(_whole(rest, "at"))
    if kind == "interval" and rest.keys() == {"seconds", "start"}:
        found = Interval(_whole(rest, "seconds"), _whole(rest, "start"))
        if found.seconds < 60:
            raise ValueError("its interval is too short")
        return found
    if kind == "cron" and rest.keys() == {"expression", "zone"}:
        expression, zone = _text(rest, "expression"), _text(rest, "zone")
        if len(expression) > 200 or len(expression.split()) != 5 or not expression.isascii():
            raise ValueError("its cron expression is not valid")
        return CronTimes(expression, zone)
    raise ValueError("its schedule is not valid")


def span_json(span: TimeSpan | None) -> dict[str, object] | None:
    """Return the JSON object of several times, or None."""
    return None if span is None else _fields_of(span)


def _fields_of(value: object) -> dict[str, object]:
    return {each.name: getattr(value, each.name) for each in fields(value)}  # type: ignore[arg-type]  # a dataclass


def _budget(raw: dict[str, object]) -> JobBudget:
    values: dict[str, object] = {}
    for each in fields(JobBudget):
        value = raw.get(each.name)
        fits = isinstance(value, str)
        if each.name in ("turns", "tokens", "denials"):
            fits = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if value is not None and not fits:
            raise ValueError("its budget is not valid")
        values[each.name] = value
    _same_fields(raw, values)
    return JobBudget(**values)  # type: ignore[arg-type]  # the types were checked


def _run(raw: dict[str, object]) -> OpenRun:
    due = raw.get("due")
    found = OpenRun(
        _moment(raw, "started"),
        None if due is None else _whole(raw, "due"),
        _switch(raw, "caught_up"),
        _text(raw, "session"),
    )
    _same_fields(raw, _fields_of(found))
    return found


def _span(raw: object) -> TimeSpan | None:
    if raw is None:
        return None
    entry = _object(raw)
    return TimeSpan(_whole(entry, "count"), _whole(entry, "first"), _whole(entry, "last"), _switch(entry, "exact"))


def _same_fields(raw: dict[str, object], expected: object) -> None:
    if not isinstance(expected, dict) or raw.keys() != expected.keys():
        raise ValueError("it has unknown or missing fields")


def _object(raw: object) -> dict[str, object]:
    if not isinstance(raw, dict):
        raise ValueError("it has a value in place of an object")
    return raw


def _text(raw: dict[str, object], name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or len(value) > LONGEST_PROMPT:
        raise ValueError(f"`{name}` is not a text")
    return value


def _texts(raw: dict[str, object], name: str) -> tuple[str, ...]:
    value = raw.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"`{name}` is not a list of texts")
    return tuple(value)


def _switch(raw: dict[str, object], name: str) -> bool:
    value = raw.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` is neither true nor false")
    return value


def _whole(raw: dict[str, object], name: str) -> int:
    value = raw.get(name)
    if type(value) is not int or not 0 <= value < _LATEST:
        raise ValueError(f"`{name}` is not a number of the expected size")
    return value


def _moment(raw: dict[str, object], name: str) -> float:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise ValueError(f"`{name}` is not a time")
    return float(value)
