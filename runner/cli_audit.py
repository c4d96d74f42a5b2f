"""`agent audit`: what was decided, and the proof that nobody changed the record of it."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.audit.flags import FILE, filtered, log_path
from runner.audit.query import Query
from runner.cli_audit_export import export
from runner.cli_audit_show import show
from runner.cli_gate import JSON
from runner.problems import Exit, Stopped, coloured, usage

audit_app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

LISTED = 50
LIMIT = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The newest N decisions.")]


@audit_app.callback()
@filtered
def bare(context: typer.Context, query: Query, json: JSON = False, limit: LIMIT = LISTED, file: FILE = None) -> int:
    """List decisions, newest first: tier, verdict, action, why, rule, and what became of it.

    The same as `agent audit list`, which says more about the filters. Times are UTC.

    **Examples**

        agent audit --denied
        agent audit --since 7d --tier network --host '*.example.com'
        agent audit --json --limit 1000 | jq 'select(.outcome.status != 0) | .id'
        agent audit show 12
        agent audit verify
    """
    name = context.invoked_subcommand
    if name is None:
        return _list(query, json, limit, file)
    if query != Query() or json or file or limit != LISTED:
        why = f"`{name}` has options of its own"
        raise usage("an option stands before the command", why, f"see `agent audit {name} --help`")
    return Exit.DONE


@audit_app.command("list")
@filtered
def listing(query: Query, json: JSON = False, limit: LIMIT = LISTED, file: FILE = None) -> int:
    """List decisions, newest first: tier, verdict, action, why, rule, and what became of it.

    Malformed calls of a model are listed as denials; they ran nothing. Times are UTC. A filter that is given twice
    takes either; different filters must all hold.

    **Examples**

        agent audit list --denied --since yesterday
        agent audit list --command git --command make --asked
        agent audit list --tier secret --tier dangerous --workspace .
        agent audit list --rule policy/commands/network.toml
        agent audit list --json | jq 'select(.outcome.status != 0) | .id'
    """
    return _list(query, json, limit, file)


def _list(query: Query, json: bool, limit: int, file: Path | None) -> int:
    from runner.audit.log import AuditLog
    from runner.audit.view import json_lines, lines

    path = log_path(file)
    if file is None and not path.exists():
        if not json:
            print("nothing was decided yet")
        return Exit.DONE
    with AuditLog.open_to_read(path) as log:
        colour = coloured(sys.stdout)
        shown = (
            json_lines(log, query, limit=limit)
            if json
            else lines(log, query, limit=limit, colour=colour, width=_width())
        )
        for line in shown:
            print(line)
    return Exit.DONE


audit_app.command("show")(show)


@audit_app.command("verify")
def verify(
    expect: Annotated[
        str | None,
        typer.Option(metavar="COUNT:HASH", help="A head printed earlier, which must still be part of the log."),
    ] = None,
    json: JSON = False,
    file: FILE = None,
) -> int:
    """Recompute the hash chain; exit 1 and name the first record that does not hold.

    The head that it prints proves later, with --expect, that nothing up to there was cut off or written anew. Keep it
    where the writer of the log cannot reach: in the CI log, for example.

    **Examples**

        agent audit verify
        agent audit verify --expect 12:56a0164898f859af...
        agent audit verify --json --file audit.db
    """
    from runner.audit.log import AuditLog, Broken, Sealed

    if expect is not None and not re.fullmatch(r"\d+:[0-9a-f]{64}", expect):
        raise usage(
            f"`{expect}` is no head of a log", "a head is COUNT:HASH", "copy one that `agent audit verify` printed"
        )
    path = log_path(file)
    with AuditLog.open_to_read(path) as log:
        result = log.verify(expect=expect)
    if json:
        from dataclasses import asdict
        from json import dumps

        print(dumps({"sealed": isinstance(result, Sealed), **asdict(result)}))
        return Exit.DONE if isinstance(result, Sealed) else Exit.FAILED
    match result:
        case Sealed(count=count):
            print(f"all {count} records hold\nhead {result.head}")
            return Exit.DONE
        case Broken(id=number, why=why):
            from policy.verdict import Problem

            what = f"the audit log does not hold from record {number} on"
            raise Stopped(
                Problem(what, why, f"keep `{path}` as evidence, and start a new log by moving it away"), Exit.FAILED
            )


def _width() -> int:
    import shutil

    from runner.audit.view import WIDE

    return shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else WIDE


audit_app.command("export")(filtered(export))
