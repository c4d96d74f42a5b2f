"""`agent audit`: what was decided, and the proof that nobody changed the record of it."""

import sys
from typing import Annotated

import typer

from runner.audit.location import is_there
from runner.audit.query import Query
from runner.cli.audit_export import export
from runner.cli.audit_filters import FILE, filtered, log_path, terminal_width
from runner.cli.audit_key import key_app
from runner.cli.audit_merge import merge
from runner.cli.audit_prune import prune
from runner.cli.audit_replay import replay
from runner.cli.audit_seal import seal
from runner.cli.audit_show import show
from runner.cli.audit_stats import stats
from runner.cli.audit_suggest import suggest
from runner.cli.audit_tail import tail
from runner.cli.audit_verify import verify
from runner.cli.gate import JSON
from runner.problems import Exit, usage
from runner.stderr import coloured

audit_app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

audit_app.command("verify")(verify)
audit_app.command("seal")(seal)
audit_app.command("prune")(prune)
audit_app.command("merge")(merge)
audit_app.add_typer(key_app, name="key")

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
        agent audit list --rule command:network
        agent audit list --json | jq 'select(.outcome.status != 0) | .id'
    """
    return _list(query, json, limit, file)


def _list(query: Query, json: bool, limit: int, file: str | None) -> int:
    from runner.audit.list_view import json_lines, lines
    from runner.audit.log import AuditLog

    path = log_path(file)
    if not is_there(path):
        if not json:
            print("nothing was decided yet")
        return Exit.DONE
    with AuditLog.open_to_read(path) as log:
        colour = coloured(sys.stdout)
        shown = (
            json_lines(log, query, limit=limit)
            if json
            else lines(log, query, limit=limit, colour=colour, width=terminal_width())
        )
        for line in shown:
            print(line)
    return Exit.DONE


audit_app.command("show")(show)
audit_app.command("stats")(stats)
audit_app.command("suggest")(suggest)
audit_app.command("tail")(tail)
audit_app.command("export")(filtered(export))
audit_app.command("replay")(filtered(replay, mode="--recorded-mode"))
