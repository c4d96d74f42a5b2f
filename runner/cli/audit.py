"""`agent audit` and its commands `list`, `show`, `tail`, `stats` and `suggest`: the recorded decisions."""

import os
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from policy.rules.rule_file import chunks
from policy.rules.rulebook import parse_examples
from runner.audit.decisions import DecisionTrail, deeds, record_named, trail_of
from runner.audit.log import AuditLog, log_exists
from runner.audit.query import Query
from runner.cli.audit_analysis import export, replay
from runner.cli.audit_filters import FILE, filtered, sessions
from runner.cli.audit_integrity import key_app, merge, prune, seal, verify
from runner.cli.audit_query import log_path, terminal_width
from runner.cli.gate import CONFIG, JSON, argument, completing, option_before, switch, valued
from runner.cli.reading import LISTED, list_decisions
from runner.problems import Exit, usage
from runner.state.paths import config_file, home
from runner.state.session_id import ID_RULE
from runner.stderr import coloured
from runner.text.json_line import json_line

if TYPE_CHECKING:
    from runner.audit.reports.stats import Known

audit_app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

audit_app.command("verify")(verify)
audit_app.command("seal")(seal)
audit_app.command("prune")(prune)
audit_app.command("merge")(merge)
audit_app.add_typer(key_app, name="key")

LIMIT = Annotated[int, valued("--limit", "N", "The maximum number of decisions, newest first.", least=1)]


@audit_app.callback()
@filtered
def bare(context: typer.Context, query: Query, json: JSON = False, limit: LIMIT = LISTED, file: FILE = None) -> int:
    """List decisions, newest first: tier, verdict, action, reason, rule and outcome.

    The same as `agent audit list`; its help explains the filters. Times are UTC.

    **Examples**

        agent audit --denied
        agent audit --since 7d --tier network --host '*.example.com'
        agent audit --json --limit 1000 | jq 'select(.outcome.status != 0) | .id'
        agent audit show 12
        agent audit verify
    """
    name = context.invoked_subcommand
    if name is None:
        return list_decisions(query, json=json, limit=limit, file=file)
    if query != Query() or json or file or limit != LISTED:
        raise option_before(f"audit {name}", f"`{name}` has its own options")
    return Exit.DONE


@audit_app.command("list")
@filtered
def listing(query: Query, json: JSON = False, limit: LIMIT = LISTED, file: FILE = None) -> int:
    """List decisions, newest first: tier, verdict, action, reason, rule and outcome.

    Invalid calls of a model are listed as denials; nothing was run for them. Times are UTC. If a filter is given more
    than once, one of its values must match. Different filters must all match.

    **Examples**

        agent audit list --denied --since yesterday
        agent audit list --command git --command make --asked
        agent audit list --tier secret --tier dangerous --workspace .
        agent audit list --rule command:network
        agent audit list --json | jq 'select(.outcome.status != 0) | .id'
    """
    return list_decisions(query, json=json, limit=limit, file=file)


def _words(incomplete: str) -> list[str]:
    return [*completing(lambda: ["last"])(incomplete), *sessions(incomplete)]


def show(
    what: Annotated[str, argument("ID", "The number of a decision, `last`, or a session's name.", complete=_words)],
    json: Annotated[
        bool | None,
        typer.Option("--json/--text", help="JSON or text (default: text at a terminal).", show_default=False),
    ] = None,
    file: FILE = None,
) -> int:
    """Print everything that is recorded about one decision.

    Shows the action, each reason with the words of the action that it is about, the rule with file and line, the cell
    of the permission matrix, the granted rights, the answer of the user, what the sandbox enforced, and the outcome.
    For a session: its settings at the start.

    **Examples**

        agent audit show 12
        agent audit show last
        agent audit show 12 | jq .terms
        agent audit show 12 --text | less
    """
    from runner.audit.detail_view import deed_text, record_text
    from runner.audit.list_view import whole

    with AuditLog.open_to_read(log_path(file)) as log:
        record = record_named(log, what)
        if record is None:
            if what == "last":
                raise usage("there is no decision", "nothing was decided yet", "run something, such as `agent exec ls`")
            why = f"a record has a number, a session an ID; {ID_RULE}"
            fix = "`agent audit` lists the numbers, and `agent sessions list --all` the sessions"
            raise usage(f"there is no record or session `{what}`", why, fix)
        if not sys.stdout.isatty() if json is None else json:
            print(whole(log, record))
            return Exit.DONE
        colour = coloured(sys.stdout)
        if (deed := trail_of(log, record)) is not None:
            print(deed_text(deed, colour=colour))
        else:
            ended = log.named("ended", str(record.body.get("session", ""))) if record.kind == "session" else None
            print(record_text(record, ended=ended, colour=colour))
    return Exit.DONE


TOP = Annotated[int, valued("--top", "N", "The length of each list.", least=1)]
_EVERY = 500  # decisions between two updates of the progress


@filtered
def stats(query: Query, top: TOP = 10, json: JSON = False, config: CONFIG = None, file: FILE = None) -> int:
    """Count decisions by verdict, tier, rule, host, command and mode.

    Also lists the most frequent questions with their answers, the most frequent denials, the longest runs, and the
    rules that never matched: those of the configuration in this folder, and the packaged ones.

    **Examples**

        agent audit stats
        agent audit stats --since 7d --workspace .
        agent audit stats --denied --top 20
        agent audit stats --json | jq '.never.own'
    """
    from runner.audit.list_view import nothing
    from runner.audit.reports.stats import Stats, stats_json, stats_text

    path = log_path(file)
    counts = Stats(top)
    if log_exists(path):
        with AuditLog.open_to_read(path) as log:
            for deed in _with_progress(log, query):
                counts.add(deed)
    if json:
        print(json_line(stats_json(counts, _known(config))))
    elif not counts.whole.all:
        print(nothing(query))
    else:
        print(stats_text(counts, _known(config), colour=coloured(sys.stdout), width=terminal_width()))
    return Exit.DONE


def _with_progress(log: "AuditLog", query: Query) -> "Iterator[DecisionTrail]":
    """Yield the decisions, with progress on stderr if it is a terminal."""

    newest = next(log.rows(limit=1), None)
    if newest is None or not sys.stderr.isatty():
        yield from deeds(log, query)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=newest.id)
        for count, deed in enumerate(deeds(log, query)):
            if count % _EVERY == 0:  # newest first, so the number of the record is the number of records left
                progress.update(task, completed=newest.id - deed.record.id)
            yield deed


def _known(config: str | None) -> "Known":
    """Return the rules in effect in this folder, and the packaged rules."""
    from runner.audit.reports.stats import Known
    from runner.gate.gate import GateArgs, open_gate

    settings = open_gate(GateArgs(script="", argv=None, config=config), os.environ)[0].settings
    shipped = {}
    for name, text in settings.rules.files.items():
        rules = (str(chunk.ref) for chunk in chunks(text, name) if chunk.words != ("sets",))
        shipped[f"command:{name.removesuffix('.toml')}"] = tuple(rules)
    return Known(tuple(str(rule.ref) for rule in settings.profile.permissions), shipped)


FOLLOW = Annotated[bool, switch("--follow", "-f", help="Keep printing new decisions until Ctrl-C.")]
LINES = Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="The number of decisions to begin with.")]


@filtered
def tail(query: Query, follow: FOLLOW = False, lines: LINES = 10, json: JSON = False, file: FILE = None) -> int:
    """Print the newest decisions, oldest first. With -f, wait for new ones and print them too.

    With -f, a decision is printed as soon as it is in the log; its outcome is printed later, when the action has
    ended. Pruning the log does not stop the command. If the log is moved away, the command continues with the new log.
    With --json, each line is one record: `decided`, `refused`, or `finished` with the number of its decision.

    **Examples**

        agent audit tail
        agent audit tail -f --denied
        agent audit tail -f -n 0 --json | jq -r .kind
    """
    from runner.audit.list_view import decision_json, entry_lines, finished_line
    from runner.audit.tail import Follower, TailEvent
    from runner.audit.tail import follow as events

    colour, width = coloured(sys.stdout), terminal_width()

    def tell(event: TailEvent) -> None:
        if isinstance(event, DecisionTrail):
            rows = [decision_json(event)] if json else entry_lines(event, colour=colour, width=width)
        else:
            record = {"id": event.id, "hash": event.hash, **event.body}
            rows = [json_line(record)] if json else finished_line(event, colour=colour, width=width)
        for line in rows:
            print(line)
        sys.stdout.flush()

    follower = Follower(log_path(file), query)
    for event in chain(follower.start(lines), events(follower) if follow else ()):
        tell(event)
    return Exit.DONE


LEAST = Annotated[int, valued("--min", "N", "Only rules that would decide at least N of the records.", least=1)]
LOOKED_AT = Annotated[int, valued("--limit", "N", "The number of questions and denials to use, newest first.", least=1)]


@filtered
def suggest(query: Query, least: LEAST = 1, limit: LOOKED_AT = 1000, json: JSON = False, file: FILE = None) -> int:
    """Suggest the narrowest rules that would have decided the questions and denials of the log. Changes nothing.

    Each rule is tested on the recorded actions. It is printed with the records that it would have decided, the
    answers that you gave then, and other actions that it would also allow. Actions of the tiers `dangerous`, `secret`
    and `denied` get no rule. A model can provoke questions to get a rule: check each rule before you copy it,
    above all if no user ever approved its actions.

    **Examples**

        agent audit suggest
        agent audit suggest --asked --since 7d --workspace .
        agent audit suggest --min 3 --json | jq -r '.suggestions[].rule'
    """
    from runner.audit.list_view import nothing
    from runner.audit.reports.replay_policies import Policies
    from runner.audit.reports.suggest import Search
    from runner.audit.reports.suggest_text import report_json, report_text
    from runner.config.show import near
    from runner.gate.gate import GateArgs, open_gate

    path = log_path(file)
    if file is None and not log_exists(path):
        print('{"looked":0,"more":false,"suggestions":[],"left":[]}' if json else nothing(None))
        return Exit.DONE
    gate, _ = open_gate(GateArgs(script="", argv=None), os.environ)
    rules = gate.settings.rules
    examples = [example.run for name, text in rules.files.items() for example in parse_examples(text, name)]
    context = gate.context(unattended=False)
    config = str(config_file(os.environ))
    shown = near(config, {f"{home(os.environ)}/": "~/"})
    with AuditLog.open_to_read(path) as log:
        search = Search(log.facts, Policies(os.environ, None).of, context, examples)
        report = search.report(deeds(log, query), limit=limit, least=least)
    if json:
        print(json_line(report_json(report, config=config)))
    else:
        print(report_text(report, config=shown, colour=coloured(sys.stdout), width=terminal_width()))
    return Exit.DONE


audit_app.command("show")(show)
audit_app.command("stats")(stats)
audit_app.command("suggest")(suggest)
audit_app.command("tail")(tail)
audit_app.command("export")(filtered(export))
audit_app.command("replay")(filtered(replay, mode="--recorded-mode"))
