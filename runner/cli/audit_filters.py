"""The filters of the commands that read the log (`--verdict`, `--since` and others), as options for typer."""

import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from runner.audit.chain import AuditError
from runner.audit.log import AuditLog
from runner.cli.audit_query import MODES, ONCE, SWITCHES, TIERS, VERDICTS, query_of
from runner.cli.gate import FLAG, completing, valued, with_parameters
from runner.state.paths import PlaceError, private

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


def _parameter(name: str, flag: str = "") -> inspect.Parameter:
    metavar, text, known = _TEXTS[name]
    shape: object = bool if name in SWITCHES else str | None if name in ONCE else list[str] | None
    option = typer.Option(flag or f"--{name}", metavar=metavar, help=text, autocompletion=known, rich_help_panel=_PANEL)
    default = False if name in SWITCHES else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[shape, option])


FILTERS = tuple(_parameter(name) for name in _TEXTS)


def filtered(command: Callable[..., int], *, mode: str = "") -> Callable[..., int]:
    """Return a typer command that takes every filter in place of the parameter `query: Query`, and passes the query on.

    The filters are in the order of `FILTERS`. `mode` is the flag of the filter by mode, if `--mode` has another
    meaning.
    """
    filters = [_parameter(each.name, mode) if mode and each.name == "mode" else each for each in FILTERS]
    return with_parameters(command, "query", filters, lambda values: query_of(**values))
