"""`agent audit show`: everything about one decision, for people at a terminal and as JSON for programs."""

import sys
from typing import Annotated

import typer

from runner.cli.audit_filters import FILE, log_path, sessions
from runner.problems import Exit, usage
from runner.stderr import coloured


def _words(incomplete: str) -> list[str]:
    return [*(["last"] if "last".startswith(incomplete) else []), *sessions(incomplete)]


def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A number that the list shows, `last`, or a session's name.", autocompletion=_words
        ),
    ],
    json: Annotated[
        bool | None,
        typer.Option("--json/--text", help="JSON or text. Text at a terminal, JSON in a pipe.", show_default=False),
    ] = None,
    file: FILE = None,
) -> int:
    """Print everything that is recorded about one decision.

    The action with the words that each reason points at, the rule with file and line, the cell of the matrix, the
    rights that were granted, the answer, what was enforced, and the outcome. For a session: how it began.

    **Examples**

        agent audit show 12
        agent audit show last
        agent audit show 12 | jq .terms
        agent audit show 12 --text | less
    """
    from runner.audit.detail_view import deed_text, record_text
    from runner.audit.list_view import whole
    from runner.audit.log import AuditLog
    from runner.audit.lookup import deed_of, record_named

    with AuditLog.open_to_read(log_path(file)) as log:
        record = record_named(log, what)
        if record is None:
            named = "record" if what.isdigit() or what == "last" else "session"
            why = "the log does not hold it" if what != "last" else "nothing was decided yet"
            raise usage(f"there is no {named} {what}", why, "see `agent audit` for the numbers")
        if not sys.stdout.isatty() if json is None else json:
            print(whole(log, record))
            return Exit.DONE
        deed = deed_of(log, record)
        colour = coloured(sys.stdout)
        if deed is None:
            name = str(record.body.get("session", ""))
            ended = log.named("ended", name) if record.kind == "session" else None
            print(record_text(record, ended=ended, colour=colour))
        else:
            print(deed_text(deed, colour=colour))
    return Exit.DONE
