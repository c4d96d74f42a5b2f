"""The values of the filters of the commands that read the log: the query that they mean, times, and the log itself.

The options are declared for typer in `runner/cli/audit_filters.py`.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from policy.model.tier import Mode, Tier
from runner.agent.options import not_known
from runner.audit.log import Place, own_log_place
from runner.audit.query import Query
from runner.problems import usage

VERDICTS = ("allow", "deny")
TIERS = tuple(tier.label for tier in Tier)
MODES = tuple(mode.value for mode in Mode)

# The names of the filters: switches, filters of which the last value counts, and filters that take several values.
SWITCHES, ONCE = ("denied", "asked"), ("since", "until")
MANY = ("verdict", "tier", "rule", "mode", "tool", "agent", "command", "path", "host", "session", "job", "workspace")


def log_path(file: str | None) -> Place:
    """Return the log to read: `file`, which may be a URL, or this user's own log for None. Raise a usage error if the
    file does not exist.
    """
    if file is None:
        return own_log_place(os.environ)
    if "://" in file:
        return file
    if not os.path.isfile(file):
        why = "it is not a plain file" if os.path.exists(file) else "no such file"
        raise usage(f"there is no log `{file}`", why, "check the path, or omit --file to read your own log")
    return Path(file)


def terminal_width() -> int:
    """Return the columns of the terminal at stdout; `WIDE` if stdout is not a terminal."""
    from runner.audit.list_view import WIDE

    return shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else WIDE


def query_of(*, now: datetime | None = None, **flags: Any) -> Query:
    """Return the query for the values of the filters in `FILTERS`, by name. Durations are subtracted from `now`.

    Raise a usage error for an invalid value.
    """
    verdicts = _known(flags, "verdict", VERDICTS, "questions are listed by --asked")
    if flags.get("denied") and "allow" in verdicts:
        raise usage("`--denied` and `--verdict allow` exclude each other", "no decision is both", "omit one of them")
    clock = now or datetime.now(UTC)
    first, last = (moment(flags[each], f"--{each}", clock) if flags.get(each) else "" for each in ("since", "until"))
    if first and last and last <= first:
        raise usage("--until is not after --since", f"--since is {first}, --until is {last}", "swap them")
    return Query(
        verdicts=("deny",) if flags.get("denied") else verdicts,
        tiers=_known(flags, "tier", TIERS, f"the tiers are {', '.join(TIERS)}"),
        rules=_values(flags, "rule"),
        modes=_known(flags, "mode", MODES, f"the modes are {', '.join(MODES)}"),
        tools=_values(flags, "tool"),
        agents=_values(flags, "agent"),
        commands=_values(flags, "command"),
        paths=tuple(each for given in _values(flags, "path") for each in _below(given)),
        hosts=tuple(each for given in _values(flags, "host") for each in _ports(given)),
        sessions=_values(flags, "session"),
        jobs=_values(flags, "job"),
        workspaces=tuple(_absolute(given) for given in _values(flags, "workspace")),
        since=first,
        until=last,
        asked=bool(flags.get("asked")),
    )


def _values(flags: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values: tuple[str, ...] = tuple(flags.get(name) or ())
    if not all(value.strip() for value in values):
        raise usage(f"`--{name}` has no value", "an empty value would match everything", "add one, or omit the option")
    return values


def _known(flags: Mapping[str, Any], name: str, names: Sequence[str], why: str) -> tuple[str, ...]:
    values = _values(flags, name)
    for value in values:
        if value not in names:
            fix = f"use one of {', '.join(names)}"
            raise not_known(f"there is no `--{name} {value}`", why, value, names, fix)
    return values


def _absolute(path: str) -> str:
    return os.path.normpath(os.path.join(os.getcwd(), os.path.expanduser(path)))


def _below(pattern: str) -> tuple[str, ...]:
    """Return absolute patterns for a path; a path without wildcards also matches everything below it."""
    if any(mark in pattern for mark in "*?["):
        return (pattern if pattern.startswith("*") else _absolute(pattern),)
    whole = _absolute(pattern)
    return (whole, f"{whole.rstrip('/')}/*")


def _ports(host: str) -> tuple[str, ...]:
    """Return patterns for a host; a host without a port matches every port."""
    name = host.lower()
    return (name,) if ":" in name else (name, f"{name}:*")


_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"([0-9]{1,9})\s*([a-z]+)")


def moment(text: str, option: str, now: datetime) -> str:
    """Return the time as `2026-03-04T05:06:07.089Z`, in UTC.

    A duration is subtracted from `now`. A date, `today` and `yesterday` mean the beginning of that day in UTC. A time
    with an offset (`+02:00`) is converted. Raise a usage error that names `option` for other text, and for a time that
    records cannot have.
    """
    word = text.strip().lower()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if word == "now":
            found = now
        elif word in ("today", "yesterday"):
            found = midnight - timedelta(days=word == "yesterday")
        elif (duration := _DURATION.fullmatch(word)) and duration[2] in _UNITS:
            found = now - timedelta(seconds=int(duration[1]) * _UNITS[duration[2]])
        else:
            found = datetime.fromisoformat(text.strip())
            found = found if found.tzinfo else found.replace(tzinfo=UTC)
        found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        why = "a time is 30s, 15m, 2h, 7d, 2w (ago), now, today, yesterday, or a date as in 2026-03-04T05:06 (UTC)"
        raise usage(f"`{text}` is not a time for {option}", why, f"try {option} 7d") from None
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03d}Z"
