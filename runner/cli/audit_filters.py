"""The filters of the commands that read the log (`--verdict`, `--since` and others), and the parser of times."""

import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from policy.model.tier import Mode, Tier
from runner.agent.options import not_known
from runner.audit.chain import AuditError
from runner.audit.log import AuditLog, Place, own_log_place
from runner.audit.query import Query
from runner.cli.gate import FLAG, completing, valued, with_parameters
from runner.problems import usage
from runner.state.paths import PlaceError, private

VERDICTS = ("allow", "deny")
TIERS = tuple(tier.label for tier in Tier)
MODES = tuple(mode.value for mode in Mode)
_PANEL = "Filters"  # the heading in help pages
_RECENT = 200  # sessions that completion reads


def _tools() -> Iterable[str]:
    from tools import TOOLS

    return ("exec", *(tool.name for tool in TOOLS))


def sessions(incomplete: str) -> list[str]:
    """Return the newest session ids for completion. Never raises; the list is empty without a readable log."""

    try:
        with AuditLog.open_to_read(Path(private(os.environ)[0]) / "audit.db") as log:
            names = [str(record.body.get("session", "")) for record in log.rows(kind="session", limit=_RECENT)]
    except (AuditError, PlaceError):
        return []
    return [name for name in names if name.startswith(incomplete)]


FILE = Annotated[str | None, valued("--file", "FILE|URL", "The log to read: a file or a database (default: your log).")]

# option: metavar, help, completion
# fmt: off
_TEXTS: dict[str, tuple[str, str, Callable[[str], list[str]] | None]] = {
    "verdict":   ("allow|deny",  "The final verdict.", completing(lambda: VERDICTS)),
    "denied":    (FLAG,          "Only denied actions.", None),
    "asked":     (FLAG,          "Only actions that needed a question, with any answer.", None),
    "tier":      ("TIER",        f"A tier of the action: {', '.join(TIERS)}.", completing(lambda: TIERS)),
    "rule":      ("RULE",        "A rule that matched: its name in the list, or the beginning of the name.", None),
    "mode":      ("MODE",        f"The mode of the decision: {', '.join(MODES)}.", completing(lambda: MODES)),
    "tool":      ("NAME",        "The tool: exec, or a tool of the model.", completing(_tools)),
    "agent":     ("NAME",        "The acting agent: main, or a sub-agent such as explore-1.", None),
    "command":   ("NAME",        "The first word of the command.", None),
    "path":      ("GLOB",        "A file that is read or written, or a folder of such files.", None),
    "host":      ("GLOB",        "A host that was requested or reached: example.com, example.com:443, '*.org'.", None),
    "session":   ("NAME",        "A session: its name, or the beginning of the name.", sessions),
    "job":       ("ID",          "A scheduled job: its id (`agent jobs list`).", None),
    "workspace": ("FOLDER",      "The working folder of the action, or a folder above it.", None),
    "since":     ("TIME",        "Not before: 2h, 7d, today, yesterday, 2026-03-04, 2026-03-04T05:06 (UTC).", None),
    "until":     ("TIME",        "Before, in the same formats.", None),
}
# fmt: on
_FLAGS, _ONCE = ("denied", "asked"), ("since", "until")


def _parameter(name: str, flag: str = "") -> inspect.Parameter:
    metavar, text, known = _TEXTS[name]
    shape: object = bool if name in _FLAGS else str | None if name in _ONCE else list[str] | None
    option = typer.Option(flag or f"--{name}", metavar=metavar, help=text, autocompletion=known, rich_help_panel=_PANEL)
    default = False if name in _FLAGS else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[shape, option])


FILTERS = tuple(_parameter(name) for name in _TEXTS)


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


def filtered(command: Callable[..., int], *, mode: str = "") -> Callable[..., int]:
    """Return a typer command that takes every filter in place of the parameter `query: Query`, and passes the query on.

    The filters are in the order of `FILTERS`. `mode` is the flag of the filter by mode, if `--mode` has another
    meaning.
    """
    filters = [_parameter(each.name, mode) if mode and each.name == "mode" else each for each in FILTERS]
    return with_parameters(command, "query", filters, lambda values: query_of(**values))


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
