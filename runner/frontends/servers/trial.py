"""`agent mcp test` and `agent mcp why`: one server, started in its sandbox or only judged."""

import asyncio
import os
import shlex
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.profile import Source
from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.approval.approver import Unattended
from runner.config import load
from runner.events import Event, Notice
from runner.gate.gate import GateArgs, folder, open_gate
from runner.gate.wording import terms_words
from runner.mcp.configured import names_of, servers_here
from runner.mcp.confined import JudgedStart, judge_start
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import ApprovedOffer, ServerRow, ServerState
from runner.problems import Exit, Stopped
from runner.secrets.redactor import masked
from runner.stderr import say, say_notice
from runner.text.json_line import json_line
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible
from tools.server_offer import OfferedTool, ServerOffer


@dataclass(frozen=True, slots=True)
class TrialArgs:
    """The options of a trial: the server, the folder, the configuration file, and the form of the output."""

    name: str
    cwd: str | None = None
    config: str | None = None
    json: bool = False
    least: bool = False


class NoShelf:
    """A shelf without a model: the tools are only looked at."""

    def put(self, server: ServerConfig, offer: ServerOffer, tools: object) -> None:
        """Offer nothing."""


def configured(args: TrialArgs) -> ServerConfig:
    """Return the settings of the server that `args` names. Raise Stopped if there is none, or if it has a fault."""
    found = servers_here(folder(args.cwd), os.environ, config=Path(args.config) if args.config else None)
    for notice in found.notices:
        say_notice(notice)
    for each in found.servers:
        if each.name == args.name:
            return each
    for fault in found.faults:
        if fault.name == args.name:
            raise Stopped(fault.problem, Exit.USAGE)
    names = ", ".join(f"`{name}`" for name in names_of(found)) or "none"
    fix = "see `agent mcp list`; `agent mcp add` configures a server"
    raise Stopped(Problem(f"there is no server `{args.name}`", f"the servers are {names}", fix), Exit.USAGE)


def run_test(args: TrialArgs) -> int:
    """Start the server, print what it offers and what its sandbox stopped, and return the exit code."""
    config = configured(args)
    if not config.enabled:
        say_notice(f"`{config.name}` is disabled; this trial starts it nevertheless")
        from dataclasses import replace

        config = replace(config, enabled=True)
    row, offer = asyncio.run(tried(config, args))
    ready = row.state is ServerState.READY
    if args.json:
        print(masked(json_line({**row.as_json(), "offered": [_tool_json(each) for each in offer.tools]})))
    else:
        for line in _told(row, offer):
            print(masked(visible(line, lines=False)))
    return Exit.DONE if ready else Exit.FAILED


def offer_of(config: ServerConfig, args: TrialArgs) -> ServerOffer:
    """Start the server with its rights, and return what it offers. Raise Stopped if it does not start."""
    row, offer = asyncio.run(tried(config, args))
    if row.state is ServerState.READY:
        return offer
    what, fix = f"the server `{config.name}` did not start", f"try it with `agent mcp test {config.name}`"
    raise Stopped(Problem(what, one_line(row.error, 600) or row.state.value, fix), Exit.FAILED)


async def tried(config: ServerConfig, args: TrialArgs) -> tuple[ServerRow, ServerOffer]:
    from runner.agent.server_session import open_server_session
    from runner.frontends.signals import end_by_signals

    end_by_signals()
    cwd = folder(args.cwd)
    settings = load(cwd, os.environ, config=Path(args.config) if args.config else None)
    say(f"starting `{config.name}` in its sandbox")

    def emit(event: Event) -> None:
        if isinstance(event, Notice):
            say_notice(visible(event.text, lines=False))

    async with open_server_session(
        cwd,
        settings,
        os.environ,
        (config,),
        check=lambda config, offer: ApprovedOffer(offer.tools),
        shelf=NoShelf(),
        approver=Unattended(emit),
        emit=emit,
        unattended=True,
        mode=Mode.DEFAULT,  # a start does not depend on the mode, except on `plan`
        least=args.least,
    ) as session:
        (row,) = session.servers.rows()
        return row, session.servers.offer(config.name) or ServerOffer()


def _told(row: ServerRow, offer: ServerOffer) -> list[str]:
    lines = []
    if row.state is ServerState.READY:
        lines.append(f"{row.name} is ready after {row.seconds:.2f} s: {row.title or 'a server without a name'}, "
                     f"protocol {row.protocol}")  # fmt: skip
        lines.append(f"it offers {many(len(offer.tools), 'tool')}, {many(len(offer.resources), 'resource')}, "
                     f"{many(len(offer.prompts), 'prompt')}")  # fmt: skip
        lines += [f"  {each.name}: {_first_line(each.description)}" for each in offer.tools]
    else:
        lines.append(f"{row.name} {row.state.value}: {row.error}")
    lines += [f"its sandbox stopped: {each}" for each in row.denials]
    if row.wants:
        lines.append(f"it seems to need: {', '.join(row.wants)}")
        lines.append(f"to grant this: agent mcp add {row.name} {' '.join(map(_flag, row.wants))}")
    return lines


def _flag(right: str) -> str:
    flag, _, value = right.partition(" ")
    return f"{flag} {shlex.quote(value)}"


def _first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= 100 else f"{line[:99]}…"


def _tool_json(tool: OfferedTool) -> dict[str, object]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "annotations": dict(tool.annotations),
    }


def run_why(args: TrialArgs) -> int:
    """Print the verdict on the start of the server and its rights, without a start, and return DONE."""
    config = configured(args)
    judged = _judged(config, args)
    explanation = _explained(judged)
    if args.json:
        print(masked(json_line(explanation)))
        return Exit.DONE
    for label, text in _rows(judged, config):
        print(masked(visible(f"{label:<10} {text}", lines=False)))
    return Exit.DONE


def _judged(config: ServerConfig, args: TrialArgs) -> JudgedStart:
    gate, _ = open_gate(GateArgs(None, ("true",), cwd=args.cwd, config=args.config), os.environ)
    return judge_start(config, gate.context(Source.PERSON, unattended=True), os.environ, least=args.least)


def _rows(judged: JudgedStart, config: ServerConfig) -> list[tuple[str, str]]:
    from policy.model.verdict import Allow, Deny

    verdict = judged.verdict
    rows = [("server", config.name), ("from", config.place or str(config.layer))]
    rows.append(("command", shlex.join(judged.action.argv)) if judged.action.argv else ("address", config.url))
    if isinstance(verdict, Allow):
        rows.append(("verdict", f"allowed: {verdict.reason.text}"))
        rows += list(terms_words(verdict.permit.terms, judged.action))
    elif isinstance(verdict, Deny):
        rows += [("verdict", f"denied: {verdict.problem.why}"), ("fix", verdict.problem.fix)]
    return rows


def _explained(judged: JudgedStart) -> dict[str, object]:
    from policy.model.verdict import Allow

    verdict = judged.verdict
    terms = verdict.permit.terms if isinstance(verdict, Allow) else None
    return {
        "server": judged.action.server,
        "command": list(judged.action.argv),
        "url": judged.action.url or None,
        "verdict": "allow" if terms is not None else "deny",
        "because": verdict.reason.text,
        "tiers": [tier.label for tier in judged.assessment.tiers],
        "rights": dict(terms_words(terms, judged.action)) if terms is not None else {},
        "hosts": list(terms.hosts) if terms is not None else [],
        "read": list(terms.read) if terms is not None else [],
        "write": list(terms.write) if terms is not None else [],
    }
