"""`agent audit tail`: decisions as they are made."""

import sys
from typing import Annotated

import typer

from runner.audit.query import Query
from runner.cli.audit_filters import FILE, filtered, log_path, terminal_width
from runner.cli.gate import FLAG, JSON
from runner.problems import Exit
from runner.stderr import coloured

FOLLOW = Annotated[bool, typer.Option("--follow", "-f", metavar=FLAG, help="Go on with what comes, until Ctrl-C.")]
LINES = Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="Begin with the newest N.")]


@filtered
def tail(query: Query, follow: FOLLOW = False, lines: LINES = 10, json: JSON = False, file: FILE = None) -> int:
    """Print the newest decisions, oldest first, and with -f those that come.

    A decision is printed as soon as it is in the log, and its outcome below others when it has ended. It goes on when
    the log is pruned, and begins anew when it is moved away. With --json each is a record of its own: `decided`,
    `refused`, and later `finished` with the number that it is the outcome of.

    **Examples**

        agent audit tail
        agent audit tail -f --denied
        agent audit tail -f -n 0 --json | jq -r .kind
    """
    from json import dumps

    from runner.audit.decisions import Deed
    from runner.audit.list_view import entry, entry_lines, finished_line, json_line
    from runner.audit.tail import Event, Follower
    from runner.audit.tail import follow as events

    colour, width = coloured(sys.stdout), terminal_width()

    def tell(event: Event) -> None:
        if isinstance(event, Deed):
            told = [json_line(event)] if json else entry_lines(entry(event), colour=colour, width=width)
        else:
            record = {"id": event.id, "hash": event.hash, **event.body}
            told = [dumps(record)] if json else finished_line(event, colour=colour, width=width)
        for line in told:
            print(line)
        sys.stdout.flush()

    path = log_path(file)
    follower = Follower(path, query)
    for deed in follower.start(lines):
        tell(deed)
    if follow:
        for event in events(follower):
            tell(event)
    return Exit.DONE
