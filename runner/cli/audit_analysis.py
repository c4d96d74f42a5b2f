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

from policy.flow.state import FlowMode
from policy.model.tier import MATRIX as STANDING
from policy.model.tier import Matrix, Mode, Ruling, Tier
from policy.model.verdict import Problem
from runner import VERSION
from runner.agent.options import not_known
from runner.audit.decisions import DecisionTrail, deeds
from runner.audit.log import AuditLog, Place, log_exists
from runner.audit.query import Query
from runner.cli.audit_filters import FILE
from runner.cli.audit_query import log_path, terminal_width
from runner.cli.gate import JSON, completing, switch, valued
from runner.problems import Exit, Stopped, usage
from runner.stderr import coloured, say
from runner.text.json_line import json_line
from runner.text.phrases import os_reason


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    SARIF = "sarif"
    HTML = "html"
    OTLP = "otlp"


_SUFFIXES = {
    ".jsonl": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".sarif": Format.SARIF,
    ".html": Format.HTML,
    ".htm": Format.HTML,
}
FORMAT = Annotated[
    str | None,
    valued(
        "--format",
        "FORMAT",
        f"The format: {', '.join(Format)} (default: by the name of --out).",
        complete=completing(lambda: Format),
    ),
]
OUT = Annotated[Path | None, valued("--out", "FILE", "Write to this file, with mode 0600 (default: stdout).")]
LIMIT = Annotated[int | None, valued("--limit", "N", "Only the newest N decisions (default: all).", least=1)]
QUESTIONS = Annotated[bool, switch("--questions", help="SARIF: include questions that were then allowed.")]


ENDPOINT = Annotated[str | None, valued("--endpoint", "URL", "OTLP: the collector (default: OTEL_EXPORTER_OTLP_*).")]


def _format_of(named: str | None, out: Path | None) -> Format:
    """Return the format of an export: the named one, else the one of the file name. Raise a usage error."""
    formats = f"the formats are {', '.join(Format)}"
    if named is not None:
        if named not in list(Format):
            raise not_known(f"there is no format `{named}`", formats, named, Format, "write `--format jsonl`")
        return Format(named)
    if out is None or out == Path("-"):
        raise usage("no format is named", formats, "add for example --out report.html, or --format jsonl")
    name = out.name.lower()
    suffix = ".sarif" if name.endswith(".sarif.json") else out.suffix.lower()
    if suffix not in _SUFFIXES:
        fix = f"add --format, or name a file with one of {', '.join(_SUFFIXES)}"
        raise usage(f"the name of `{out}` tells no format", formats, fix)
    return _SUFFIXES[suffix]


def export(
    query: Query,
    format: FORMAT = None,
    out: OUT = None,
    limit: LIMIT = None,
    questions: QUESTIONS = False,
    endpoint: ENDPOINT = None,
    file: FILE = None,
) -> int:
    """Export the log as JSON Lines, CSV, SARIF or a report for a browser, or send it to a collector.

    The filters are those of `agent audit list`. The recorded texts may be hostile, because a model wrote them:
    therefore CSV cells contain no formulas, SARIF messages contain no links, and the report runs only its own scripts.
    The report is one file, loads nothing from the network, and contains at most 10,000 decisions without --limit.

    `otlp` sends each decision as a log record to an OpenTelemetry collector (needs the extra `fleet`). Headers with
    credentials, and all other settings of the connection, are taken from OTEL_EXPORTER_OTLP_*.

    **Examples**

        agent audit export --format jsonl | jq 'select(.verdict == "deny") | .id'
        agent audit export --since 7d --out week.csv
        agent audit export --workspace . --out denied.sarif
        agent audit export --out report.html
        agent audit export --format otlp --since 1d --endpoint http://127.0.0.1:4318
    """
    from runner.audit.export.out import counted, write

    form = _format_of(format, out)
    if questions and form is not Format.SARIF:
        raise usage("`--questions` is only for SARIF", "the other formats contain all questions", "omit the option")
    if form is Format.SARIF and not questions:
        if query.verdicts == ("allow",):
            raise usage("SARIF has no allowed actions", "it contains denials", "add --questions, or use jsonl")
        query = replace(query, verdicts=("deny",))  # the store filters by verdict without reading other records
    out = None if out == Path("-") else out
    if form is Format.OTLP:
        if out is not None:
            raise usage("`--out` cannot be used with OTLP", "OTLP is sent to a collector", "omit it, or use jsonl")
        return _send(log_path(file), query, limit, endpoint)
    if endpoint is not None:
        raise usage("`--endpoint` is only for OTLP", "other formats are not sent", "omit it, or use --format otlp")
    if form is Format.HTML and out is None and sys.stdout.isatty():
        raise usage("an HTML report needs a file", "it is a page for a browser", "add --out report.html")
    with AuditLog.open_to_read(log_path(file)) as log:
        if form is Format.HTML:
            lines = _page(log, query, limit)
        else:
            lines = _lines(form, log, counted(deeds(log, query, limit=limit), "decisions"), query, questions)
        with closing(lines):
            write(lines, out)
    return Exit.DONE


def _send(path: "Place", query: Query, limit: int | None, given: str | None) -> int:
    from runner.audit.export import otlp
    from runner.audit.export.out import counted

    address = otlp.endpoint(given, os.environ)
    if otlp.in_clear(address):
        say(f"agent: the records are sent to {address} without encryption; use https")
    with AuditLog.open_to_read(path) as log, closing(counted(deeds(log, query, limit=limit), "decisions")) as decisions:
        try:
            sent = otlp.send(decisions, address)
        except otlp.Unsent as error:
            problem = error.problem
            before = f"{error.sent.records} decisions were already sent"
            again = f"{problem.fix}; then send the rest with --until {after(error.first)} ({before})"
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
    valued("--policy", "FILE", "The configuration to use instead of yours: a file, or a folder with a config.toml."),
]
TRY_MODE = Annotated[Mode | None, valued("--mode", "MODE", "The mode to judge in (default: the recorded mode).")]
MATRIX = Annotated[
    list[str] | None,
    valued(
        "--matrix",
        "TIER=RULING",
        "Another ruling of the matrix: network=deny, or write/plan=ask for one mode; or a JSON file in the format "
        "of `agent policy matrix --json`.",
    ),
]
FLOW = Annotated[
    str | None,
    valued("--flow", "MODE", "Another value of the setting `flow`: guard lists what it would have changed."),
]
ABOVE = Annotated[
    str | None, valued("--fail-above", "TIER", "Exit 1 if an action of a higher tier would be newly allowed.")
]
STRICT = Annotated[bool, switch("--strict", help="Exit 1 also if an action could not be judged.")]
LOOK = Annotated[bool, switch("--look", help="Read paths from the disk of today if the log has no facts about them.")]


def replay(
    query: Query,
    policy: POLICY = None,
    under: TRY_MODE = None,
    matrix: MATRIX = None,
    flow: FLOW = None,
    fail_above: ABOVE = None,
    strict: STRICT = False,
    look: LOOK = False,
    limit: LIMIT = None,
    json: JSON = False,
    file: FILE = None,
) -> int:
    """Judge the recorded actions again under another policy, and print the verdicts that differ. Runs nothing.

    Without --policy: under the configuration that is in effect in each workspace now. An action that a user was asked
    about has the verdict `ask`, whatever the answer. An action is counted as unknown if the log does not contain all
    facts for a verdict, for example because a text was cut. The recorded changes of commands are judged as well: those
    that the policy would have kept from the workspace are listed, for example by a rule, a new pattern of auto-run
    files, or the limit of deleted files.

    Exit 0; with --fail-above, 1 if an action of a higher tier would be newly allowed; with --strict, 1 if an action
    could not be judged.

    **Examples**

        agent audit replay --policy new.toml --since 30d
        agent audit replay --mode dont-ask --workspace .
        agent audit replay --matrix network=deny --json | jq .counts
        agent audit replay --flow guard --since 7d
        agent audit replay --policy new.toml --fail-above execute --strict
    """
    from policy.evaluation import fingerprint
    from runner.audit.export.out import counted
    from runner.audit.reports.replay import NewVerdict, NotRecorded, Replay
    from runner.audit.reports.replay_changes import changes_under
    from runner.audit.reports.replay_policies import Policies, configuration
    from runner.audit.reports.replay_report import Replayed, document, lines
    from runner.facts.gather import look_at
    from runner.gate.gate import folder, ruling

    worst = _tier(fail_above) if fail_above is not None else None
    cells = _matrix(matrix or [])
    own = configuration(policy) if policy is not None else None
    policies = Policies(os.environ, own, under, cells, _flow(flow))
    here = policies.here(folder(None))
    found = Replayed()
    path = log_path(file)
    if log_exists(path):
        with AuditLog.open_to_read(path) as log, closing(counted(deeds(log, query, limit=limit), "replayed")) as every:
            cases = Replay(log.facts, look_at if look else None)
            for deed in every:
                if deed.malformed:
                    found.malformed += 1
                elif deed.record.kind != "decided":
                    found.by_user += 1
                else:
                    judge = policies.of(deed)
                    again = judge if isinstance(judge, NotRecorded) else cases.rejudge(deed, judge)
                    found.add(deed, again)
                    denied = isinstance(again, NewVerdict) and ruling(again.verdict) is Ruling.DENY
                    recorded = deed.outcome.get("transaction") or deed.outcome.get("changed")
                    if recorded and not isinstance(judge, NotRecorded) and not denied:
                        facts = cases.facts(deed)
                        changes = changes_under(deed, judge, facts) if facts is not None else None
                        found.changes += [changes] if changes is not None else []
    above = found.above(worst) if worst is not None else []
    if json:
        print(json_line(document(found, fingerprint(here.profile, here.rules, cells), above)))
    else:
        for line in lines(found, colour=coloured(sys.stdout), width=terminal_width()):
            print(line)
        if above and worst is not None:
            named = ", ".join(str(each.deed.record.id) for each in above[:5])
            print(
                f"newly allowed above tier {worst.label}: {len(above)} (record {named}{', ...' if above[5:] else ''})"
            )
    return Exit.FAILED if above or (strict and found.unknown) else Exit.DONE


def _flow(name: str | None) -> FlowMode | None:
    if name is None:
        return None
    known = [mode.value for mode in FlowMode]
    if name not in known:
        why, fix = "--flow needs a value of the setting `flow`", f"use one of {', '.join(known)}"
        raise not_known(f"there is no `{name}`", why, name, known, fix)
    return FlowMode(name)


def _tier(name: str) -> "Tier":

    known = {tier.label: tier for tier in Tier}
    if name not in known:
        why, fix = "--fail-above needs a tier of the matrix", f"use one of {', '.join(known)}"
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
                what = f"`{text}` is not a cell of the matrix"
                raise usage(what, f"`{wanted if modes else name}` is unknown", "write TIER=allow, or TIER/MODE=deny")
            tier = _tier(row)
            if tier >= Tier.SECRET and rulings[wanted] is not Ruling.DENY:
                raise usage(f"`{text}` is not possible", f"tier `{row}` is denied in every mode", "omit it")
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
        why = os_reason(error)
        raise usage(f"`{text}` is neither a cell nor a file", why, "write a cell such as network=deny") from None
    except (ValueError, AttributeError):
        why = "the file is not in the format of `agent policy matrix --json`"
        raise usage(f"`{text}` is not a matrix", why, "edit the output of that command") from None
