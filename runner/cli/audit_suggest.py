"""`agent audit suggest`: rules that would have settled what was asked and denied."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.audit.query import Query
from runner.cli.audit_filters import FILE, filtered, log_path, terminal_width
from runner.cli.gate import JSON
from runner.problems import Exit
from runner.stderr import coloured

LEAST = Annotated[int, typer.Option("--min", metavar="N", min=1, help="Only rules that settle N records at least.")]
LIMIT = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Look at the newest N questions and denials.")]


@filtered
def suggest(query: Query, least: LEAST = 1, limit: LIMIT = 1000, json: JSON = False, file: FILE = None) -> int:
    """Suggest the smallest rules that would have settled the questions and denials of the log. Changes nothing.

    Each rule was tried on the recorded actions, as they were recorded, and comes with them, with how they were
    answered, and with what else it would let through. What is `dangerous`, `secret` or denied is never suggested.
    Whose questions nobody answered may have been asked by a model that wants them: read before you copy.

    **Examples**

        agent audit suggest
        agent audit suggest --asked --since 7d --workspace .
        agent audit suggest --min 3 --json | jq -r '.suggestions[].rule'
    """
    from policy.rules.rulebook import parse_examples
    from runner.audit.decisions import deeds
    from runner.audit.list_view import nothing
    from runner.audit.location import is_there
    from runner.audit.log import AuditLog
    from runner.audit.reports.replay_policies import Policies
    from runner.audit.reports.suggest import Search
    from runner.audit.reports.suggest_text import report_json, report_text
    from runner.gate.gate import open_gate
    from runner.gate.request import GateArgs
    from runner.state.paths import config_file

    path = log_path(file)
    if file is None and not is_there(path):
        print('{"looked": 0, "more": false, "suggestions": [], "left": []}' if json else nothing(None))
        return Exit.DONE
    gate, _ = open_gate(GateArgs(script="", argv=None), os.environ)
    rules = gate.settings.rules
    examples = [example.run for name, text in rules.files.items() for example in parse_examples(text, name)]
    context = gate.context(unattended=False)
    config = str(config_file(os.environ))
    with AuditLog.open_to_read(path) as log:
        search = Search(log.facts, Policies(os.environ, None).of, context, examples)
        report = search.report(deeds(log, query), limit=limit, least=least)
    if json:
        from json import dumps

        print(dumps(report_json(report, config=config)))
    else:
        print(report_text(report, config=_near(config), colour=coloured(sys.stdout), width=terminal_width()))
    return Exit.DONE


def _near(path: str) -> str:
    """Below the home with a tilde, as people write it."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path
