"""`agent audit export` and `replay`: write the recorded decisions to files, and judge them by another policy."""

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from json import dumps, loads
from pathlib import Path
from typing import Annotated

import typer

from policy.model.tier import MATRIX as STANDING
from policy.model.tier import Matrix, Mode, Ruling, Tier
from policy.model.verdict import Problem
from runner import VERSION
from runner.agent.options import not_known
from runner.audit.decisions import DecisionTrail, deeds
from runner.audit.log import AuditLog, Place, log_exists
from runner.audit.query import Query
from runner.cli.audit_filters import FILE, log_path, terminal_width
from runner.cli.gate import JSON, switch, valued
from runner.problems import Exit, Stopped, usage
from runner.stderr import coloured, say


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    SARIF = "sarif"
    HTML = "html"
    OTLP = "otlp"


FORMAT = Annotated[
    Format, typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(Format)}.", show_default=False)
]
OUT = Annotated[Path | None, valued("--out", "FILE", "Write this file (0600, whole or not at all), not to stdout.")]
LIMIT = Annotated[int | None, valued("--limit", "N", "The newest N decisions, not all.", least=1)]
QUESTIONS = Annotated[bool, switch("--questions", help="SARIF: also what was asked and then allowed.")]


ENDPOINT = Annotated[
    str | None, valued("--endpoint", "URL", "OTLP: the collector, http://HOST:4318; else OTEL_EXPORTER_OTLP_*.")
]


def export(
    format: FORMAT,
    query: Query,
    out: OUT = None,
    limit: LIMIT = None,
    questions: QUESTIONS = False,
    endpoint: ENDPOINT = None,
    file: FILE = None,
) -> int:
    """Write the record for other programs and people: JSON Lines, CSV, SARIF, a report for a browser; or send it.

    The filters are those of `agent audit list`. Everything in the record was written by a model: CSV cells are no
    formulas, SARIF messages no links, and the report (one file, no network; the newest 10,000 decisions where no
    --limit is given) runs no script but its own.

    `otlp` sends each decision as a log record to a collector (needs the extra `fleet`). Headers with credentials, and
    everything else about the connection, are taken from OTEL_EXPORTER_OTLP_*.

    **Examples**

        agent audit export --format jsonl | jq 'select(.verdict == "deny") | .id'
        agent audit export --format csv --since 7d --out week.csv
        agent audit export --format sarif --workspace . --out denied.sarif
        agent audit export --format html --out report.html
        agent audit export --format otlp --since 1d --endpoint http://127.0.0.1:4318
    """
    from runner.audit.export.out import counted, write

    if questions and format is not Format.SARIF:
        raise usage("`--questions` is about SARIF", "every other format has the questions", "leave it out")
    if format is Format.SARIF and not questions:
        if query.verdicts == ("allow",):
            raise usage("nothing of that is in SARIF", "it shows what was denied", "add --questions, or take jsonl")
        query = replace(query, verdicts=("deny",))  # the store filters by verdict without reading other records
    out = None if out == Path("-") else out
    if format is Format.OTLP:
        if out is not None:
            raise usage("`--out` has no meaning here", "OTLP is sent to a collector", "leave it out, or use jsonl")
        return _send(log_path(file), query, limit, endpoint)
    if endpoint is not None:
        raise usage("`--endpoint` is about OTLP", "every other format is written", "leave it out, or say --format otlp")
    if format is Format.HTML and out is None and sys.stdout.isatty():
        raise usage("a report is not for a terminal", "it is a page for a browser", "name a file: --out report.html")
    with AuditLog.open_to_read(log_path(file)) as log:
        if format is Format.HTML:
            lines = _page(log, query, limit)
        else:
            lines = _lines(format, log, counted(deeds(log, query, limit=limit), "decisions"), query, questions)
        with closing(lines):
            write(lines, out)
    return Exit.DONE


def _send(path: "Place", query: Query, limit: int | None, given: str | None) -> int:
    from runner.audit.export import otlp
    from runner.audit.export.out import counted

    address = otlp.endpoint(given, os.environ)
    if otlp.in_clear(address):
        say(f"agent: the record travels to {address} in clear; https would hide it")
    with AuditLog.open_to_read(path) as log, closing(counted(deeds(log, query, limit=limit), "decisions")) as decisions:
        try:
            sent = otlp.send(decisions, address)
        except otlp.Unsent as error:
            problem = error.problem
            before = f"{error.sent.records} decisions were sent before"
            again = f"{problem.fix}; then send the rest with --until {after(error.first)}, {before}"
            raise Stopped(Problem(problem.what, problem.why, again), error.code) from None
    print(f"{sent.records} decisions sent to {address}")
    return Exit.DONE


def _lines(
    format: Format, log: "AuditLog", decisions: Iterable[DecisionTrail], query: Query, questions: bool
) -> Generator[str, None, None]:
    if format is Format.SARIF:
        from runner.audit.export import sarif

        # The root of all paths is the only folder of the filter, otherwise the current folder.
        root = query.workspaces[0] if len(query.workspaces) == 1 else os.getcwd()
        exits = {name: code for name, end in _ends(log).items() if isinstance(code := end.get("exit"), int)}
        yield dumps(sarif.document(decisions, root, questions=questions, exits=exits), indent=1)
    else:
        from runner.audit.export import table

        yield from (table.jsonl_lines if format is Format.JSONL else table.lines)(decisions)


def _page(log: "AuditLog", query: Query, limit: int | None) -> Generator[str, None, None]:
    from runner.audit.export.out import counted
    from runner.audit.export.page import MOST, About, document
    from runner.audit.verify import VerifiedLog, verify

    most = limit or MOST
    found = list(counted(deeds(log, query, limit=most + 1), "decisions"))
    proof = verify(log.store)
    sealed, broken = "", ""
    if isinstance(proof, VerifiedLog):
        sealed = ", ".join(chain.head for chain in proof.chains) or proof.head
    else:
        broken = f"{f'Record {proof.id}' if proof.id else 'The file'}: {proof.why}."
    chosen = {item.name: getattr(query, item.name) for item in fields(query)}
    about = About(
        program=f"ringfence {VERSION}",
        made=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        log=log.store.name,
        sealed=sealed,
        broken=broken,
        chosen="; ".join(f"{name} {_filter_words(value)}" for name, value in chosen.items() if value),
        left=limit is None and len(found) > most,
        ends=_ends(log),
    )
    yield document(found[:most], about)


def after(time: str) -> str:
    """Return `time` plus one millisecond, which --until needs to include a record of that time. A text that is no time
    is returned unchanged.
    """
    try:
        moment = datetime.fromisoformat(time) + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return time
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ends(log: "AuditLog") -> dict[str, dict[str, object]]:
    return {str(record.body.get("session", "")): record.body for record in log.rows(kind="ended")}


def _filter_words(value: object) -> str:
    if value is True:
        return "yes"
    return " or ".join(value) if isinstance(value, tuple) else str(value)


POLICY = Annotated[
    Path | None,
    valued("--policy", "FILE", "A configuration to try in place of yours, or the folder that holds its config.toml."),
]
TRY_MODE = Annotated[Mode | None, valued("--mode", "MODE", "Judge everything in this mode, and not in the one it was.")]
MATRIX = Annotated[
    list[str] | None,
    valued(
        "--matrix",
        "TIER=RULING",
        "Another cell of the matrix: network=deny, or write/plan=ask for one mode. Or a JSON file as `agent "
        "policy matrix --json` prints it.",
    ),
]
ABOVE = Annotated[
    str | None, valued("--fail-above", "TIER", "Exit 1 when something newly allowed is riskier than this.")
]
STRICT = Annotated[bool, switch("--strict", help="Exit 1 as well when something could not be judged.")]
LOOK = Annotated[bool, switch("--look", help="Ask today's disk about paths that nobody asked about then.")]


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
    from policy.evaluation import fingerprint
    from runner.audit.export.out import counted
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
    if log_exists(path):
        with AuditLog.open_to_read(path) as log, closing(counted(deeds(log, query, limit=limit), "replayed")) as every:
            cases = Replay(log.facts, look_at if look else None)
            for deed in every:
                if deed.record.kind == "decided":  # a malformed call was never judged
                    judge = policies.of(deed)
                    found.add(deed, judge if isinstance(judge, NotRecorded) else cases.rejudge(deed, judge))
    above = found.above(worst) if worst is not None else []
    if json:
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

    known = {tier.label: tier for tier in Tier}
    if name not in known:
        why, fix = "--fail-above takes one of the matrix's rows", f"say one of {', '.join(known)}"
        raise not_known(f"there is no tier `{name}`", why, name, known, fix)
    return known[name]


def _matrix(given: list[str]) -> "Matrix":
    """Return the matrix with these cells replaced. Raise a usage error for a cell that weakens `secret` or `denied`."""

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
    """Return the cells as (TIER or TIER/MODE, ruling): one typed cell, or all cells of a file."""
    cell, sign, wanted = text.partition("=")
    if sign and not Path(text).is_file():
        return [(cell, wanted)]
    try:
        matrix = loads(Path(text).read_bytes())
        return [(f"{tier}/{mode}", str(wanted)) for tier, row in matrix.items() for mode, wanted in row.items()]
    except OSError as error:
        why = (error.strerror or "").lower()
        raise usage(f"`{text}` is neither a cell nor a file", why, "write for example network=deny") from None
    except (ValueError, AttributeError):
        why = "it is not what `agent policy matrix --json` prints"
        raise usage(f"`{text}` is no matrix", why, "save that, and change it") from None
