"""`agent audit export`: the record as JSON Lines, CSV, SARIF, one HTML file, or sent to a collector."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runner.audit.deeds import Deed, deeds
from runner.audit.flags import FILE, log_path
from runner.audit.query import Query
from runner.cli_gate import FLAG
from runner.problems import Exit, usage


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    SARIF = "sarif"


FORMAT = Annotated[
    Format, typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(Format)}.", show_default=False)
]
OUT = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write this file (0600, whole or not at all), not to stdout."),
]
LIMIT = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The newest N decisions, not all.")]
QUESTIONS = Annotated[
    bool, typer.Option("--questions", metavar=FLAG, help="SARIF: also what was asked and then allowed.")
]


def export(
    format: FORMAT,
    query: Query,
    out: OUT = None,
    limit: LIMIT = None,
    questions: QUESTIONS = False,
    file: FILE = None,
) -> int:
    """Write the record for other programs and people: JSON Lines, CSV or SARIF.

    The filters are those of `agent audit list`. Everything in the record was written by a model: CSV cells are no
    formulas, SARIF messages no links.

    **Examples**

        agent audit export --format jsonl | jq 'select(.verdict == "deny") | .id'
        agent audit export --format csv --since 7d --out week.csv
        agent audit export --format sarif --workspace . --out denied.sarif
    """
    from runner.audit.export.out import counted, write
    from runner.audit.log import AuditLog

    if questions and format is not Format.SARIF:
        raise usage("`--questions` is about SARIF", "every other format has the questions", "leave it out")
    with (
        AuditLog.open_to_read(log_path(file)) as log,
        closing(counted(deeds(log, query, limit=limit), "read")) as found,
    ):
        write(_lines(format, found, query, questions), out)
    return Exit.DONE


def _lines(format: Format, found: Iterable[Deed], query: Query, questions: bool) -> Iterator[str]:
    match format:
        case Format.JSONL:
            from runner.audit.export import jsonl

            yield from jsonl.lines(found)
        case Format.CSV:
            from runner.audit.export import table

            yield from table.lines(found)
        case Format.SARIF:
            from runner.audit.export import sarif

            # One folder asked for is the root of all paths; without, the one we stand in, which is a repository's.
            root = query.workspaces[0] if len(query.workspaces) == 1 else os.getcwd()
            yield json.dumps(sarif.document(found, root, questions=questions), indent=1)
