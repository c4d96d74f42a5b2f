"""`agent audit merge`: several logs in one file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.audit_filters import log_path
from runner.cli.gate import JSON
from runner.problems import Exit
from runner.text.counts import many
from runner.text.sanitize import visible


def merge(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="Files, or addresses of databases.")],
    into: Annotated[Path, typer.Option("--into", metavar="FILE", help="The new file.")],
    json: JSON = False,
) -> int:
    """Put several logs into one new file, to list, count and verify them together.

    Each log keeps its own chain, and `verify` names the first record that does not hold in any of them. Records are
    listed in the order of their times, under new numbers. Of two copies of one log the longer counts; copies that went
    on differently are refused. Nothing can be added to the new file, but it can be merged again.

    **Examples**

        agent audit merge a.db b.db --into all.db
        agent audit list --denied --file all.db
        agent audit verify --file all.db
    """
    from contextlib import ExitStack

    from runner.audit.log import AuditLog
    from runner.audit.merge import merge as merged
    from runner.cli.audit_verify import progress

    with ExitStack() as stack:
        opened = [stack.enter_context(AuditLog.open_to_read(log_path(each))) for each in logs]
        done = merged([log.store for log in opened], into, progress if sys.stderr.isatty() else None)
    if json:
        from json import dumps

        chains = [
            {"log": head.log, "count": head.number, "hash": head.hash, "from": name} for head, name in done.chains
        ]
        print(dumps({"into": str(into), "chains": chains, "left_out": list(done.left_out)}))
        return Exit.DONE
    lines = [f"left out: {text}" for text in done.left_out]
    lines += [f"log {head.log}: {head.number:,} records, from {name}" for head, name in done.chains]
    for line in (*lines, f"{many(len(done.chains), 'log')} in {into}"):
        print(visible(line, lines=False))
    return Exit.DONE
