"""`agent audit stats`: what a log says as a whole."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from runner.audit.location import is_there
from runner.audit.query import Query
from runner.cli.audit_filters import FILE, filtered, log_path, terminal_width
from runner.cli.gate import CONFIG, JSON
from runner.problems import Exit
from runner.stderr import coloured

if TYPE_CHECKING:
    from runner.audit.decisions import Deed
    from runner.audit.log import AuditLog
    from runner.audit.reports.stats_text import Known

TOP = Annotated[int, typer.Option("--top", metavar="N", min=1, help="The N that count most of each.")]
_EVERY = 500  # decisions between two looks at the progress


@filtered
def stats(query: Query, top: TOP = 10, json: JSON = False, config: CONFIG = None, file: FILE = None) -> int:
    """Count decisions by verdict, tier, rule, host, command and mode.

    Also what was asked most and how it was answered, what was denied most, what took longest, and which rules never
    spoke: those of your configuration as it holds in this folder, and those that the program came with.

    **Examples**

        agent audit stats
        agent audit stats --since 7d --workspace .
        agent audit stats --denied --top 20
        agent audit stats --json | jq '.never.own'
    """
    from runner.audit.list_view import nothing
    from runner.audit.log import AuditLog
    from runner.audit.reports.stats import Stats
    from runner.audit.reports.stats_text import stats_json, stats_text

    path = log_path(file)
    found = Stats(top)
    if is_there(path):
        with AuditLog.open_to_read(path) as log:
            for deed in _told(log, query):
                found.add(deed)
    if json:
        from json import dumps

        print(dumps(stats_json(found, _known(config))))
    elif not found.whole.all:
        print(nothing(query))
    else:
        print(stats_text(found, _known(config), colour=coloured(sys.stdout), width=terminal_width()))
    return Exit.DONE


def _told(log: "AuditLog", query: Query) -> "Iterator[Deed]":
    """The decisions, with the progress on stderr where somebody is there to see it."""
    from runner.audit.decisions import deeds

    newest = next(log.rows(limit=1), None)
    if newest is None or not sys.stderr.isatty():
        yield from deeds(log, query)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=newest.id)
        for count, deed in enumerate(deeds(log, query)):
            if count % _EVERY == 0:  # newest first: what is left is the number of the record
                progress.update(task, completed=newest.id - deed.record.id)
            yield deed


def _known(config: str | None) -> "Known":
    """The rules that hold in this folder, and those of the program."""
    from policy.rules.rule_file import chunks
    from runner.audit.reports.stats_text import Known
    from runner.gate.gate import open_gate
    from runner.gate.request import GateArgs

    gate, _ = open_gate(GateArgs(script="", argv=None, config=config), os.environ)
    rules = gate.settings.rules
    shipped = {
        f"command:{name.removesuffix('.toml')}": tuple(
            str(chunk.ref) for chunk in chunks(text, name) if chunk.words != ("sets",)
        )
        for name, text in rules.files.items()
    }
    return Known(tuple(str(rule.ref) for rule in gate.settings.profile.permissions), shipped)
