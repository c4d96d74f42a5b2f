"""`agent audit replay`: what another policy would have said of everything that is recorded."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policy.model.tier import Mode
from runner.audit.location import is_there
from runner.audit.query import Query
from runner.cli.audit_filters import FILE, log_path, terminal_width
from runner.cli.gate import FLAG, JSON
from runner.problems import Exit, usage
from runner.stderr import coloured

if TYPE_CHECKING:
    from policy.model.matrix import Matrix
    from policy.model.tier import Tier

POLICY = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="A configuration to try in place of yours, or the folder that holds its config.toml.",
    ),
]
TRY_MODE = Annotated[
    Mode | None,
    typer.Option("--mode", metavar="MODE", help="Judge everything in this mode, and not in the one it was."),
]
MATRIX = Annotated[
    list[str] | None,
    typer.Option(
        "--matrix",
        metavar="TIER=RULING",
        help="Another cell of the matrix: network=deny, or write/plan=ask for one mode. Or a JSON file as `agent "
        "policy matrix --json` prints it.",
    ),
]
ABOVE = Annotated[
    str | None,
    typer.Option("--fail-above", metavar="TIER", help="Exit 1 when something newly allowed is riskier than this."),
]
STRICT = Annotated[
    bool, typer.Option("--strict", metavar=FLAG, help="Exit 1 as well when something could not be judged.")
]
LOOK = Annotated[
    bool,
    typer.Option("--look", metavar=FLAG, help="Ask today's disk about paths that nobody asked about then."),
]
LIMIT = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The newest N decisions, not all.")]


def replay(
    query: Query,
    policy: POLICY = None,
    under: TRY_MODE = None,
    matrix: MATRIX = None,
    fail_above: ABOVE = None,
    strict: STRICT = False,
    look: LOOK = False,
    limit: LIMIT = None,
    json: JSON = False,
    file: FILE = None,
) -> int:
    """Judge what is recorded again, by another policy, and print what would differ. Runs nothing.

    Without --policy: by the configuration that is in force in each workspace now. What a person answered is no part of
    a policy: their question counts as `ask`. What cannot be told, since the text was cut or nobody asked the disk about
    it then, is counted as unknown, and never guessed.

    Exit 0, or 1 with --fail-above when something riskier than that is newly allowed; with --strict, also when something
    could not be judged.

    **Examples**

        agent audit replay --policy new.toml --since 30d
        agent audit replay --mode dont-ask --workspace .
        agent audit replay --matrix network=deny --json | jq .counts
        agent audit replay --policy new.toml --fail-above execute --strict
    """
    from policy.rules.fingerprint import fingerprint
    from runner.audit.decisions import deeds
    from runner.audit.export.out import counted
    from runner.audit.log import AuditLog
    from runner.audit.reports.replay import NotRecorded, Replay
    from runner.audit.reports.replay_policies import Policies, configuration
    from runner.audit.reports.replay_report import Replayed, document, lines
    from runner.facts.gather import look_at
    from runner.gate.gate import folder

    worst = _tier(fail_above) if fail_above is not None else None
    cells = _matrix(matrix or [])
    policies = Policies(os.environ, configuration(policy) if policy is not None else None, under, cells)
    here = policies.here(folder(None))
    found = Replayed()
    path = log_path(file)
    if is_there(path):
        with AuditLog.open_to_read(path) as log, closing(counted(deeds(log, query, limit=limit), "replayed")) as every:
            cases = Replay(log.facts, look_at if look else None)
            for deed in every:
                if deed.record.kind == "decided":  # a call that made no sense was never judged
                    judge = policies.of(deed)
                    found.add(deed, judge if isinstance(judge, NotRecorded) else cases.rejudge(deed, judge))
    above = found.above(worst) if worst is not None else []
    if json:
        from json import dumps

        print(dumps(document(found, fingerprint(here.profile, here.rules, cells), above)))
    else:
        for line in lines(found, colour=coloured(sys.stdout), width=terminal_width()):
            print(line)
        if above and worst is not None:
            named = ", ".join(str(each.deed.record.id) for each in above[:5])
            print(
                f"newly allowed above tier {worst.label}: {len(above)} (record {named}{', ...' if above[5:] else ''})"
            )
    return Exit.FAILED if above or (strict and found.unknown) else Exit.DONE


def _tier(name: str) -> "Tier":
    from policy.model.tier import Tier
    from runner.text.suggest import nearest

    known = {tier.label: tier for tier in Tier}
    if name not in known:
        fix = nearest(name, list(known)) or f"say one of {', '.join(known)}"
        raise usage(f"there is no tier `{name}`", "--fail-above takes one of the matrix's rows", fix)
    return known[name]


def _matrix(given: list[str]) -> "Matrix":
    """The matrix with these cells in it. No cell lifts a floor: `secret` and `denied` stay as they are."""
    from policy.model.matrix import MATRIX as STANDING
    from policy.model.matrix import Ruling
    from policy.model.tier import Tier

    rulings = {ruling.name.lower(): ruling for ruling in Ruling}
    made = {tier: dict(row) for tier, row in STANDING.items()}
    for text in given:
        for cell, wanted in _cells(text):
            row, _, name = cell.partition("/")
            modes = [mode for mode in Mode if name in ("", mode.value)]
            if wanted not in rulings or not modes:
                what = f"`{text}` is no cell of the matrix"
                raise usage(what, f"`{wanted if modes else name}` is not known", "write TIER=allow, or TIER/MODE=deny")
            tier = _tier(row)
            if tier >= Tier.SECRET and rulings[wanted] is not Ruling.DENY:
                raise usage(f"`{text}` lifts a floor", f"tier `{row}` is denied in every mode", "leave it out")
            made[tier] |= dict.fromkeys(modes, rulings[wanted])
    return made


def _cells(text: str) -> list[tuple[str, str]]:
    """(TIER or TIER/MODE, ruling) as typed, or of a file."""
    cell, sign, wanted = text.partition("=")
    if sign and not Path(text).is_file():
        return [(cell, wanted)]
    import json

    try:
        found = json.loads(Path(text).read_bytes())
        return [(f"{tier}/{mode}", str(wanted)) for tier, row in found.items() for mode, wanted in row.items()]
    except OSError as error:
        raise usage(
            f"`{text}` is neither a cell nor a file", (error.strerror or "").lower(), "write for example network=deny"
        ) from None
    except (ValueError, AttributeError):
        raise usage(
            f"`{text}` is no matrix", "it is not what `agent policy matrix --json` prints", "save that, and change it"
        ) from None
