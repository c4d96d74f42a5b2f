"""`agent mcp call`: one call of a tool of a server by the user, through the same gate as a call of a model."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from policy.model.action import CallServerTool
from policy.model.frozen import dataclass
from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.agent.open_session import SessionOptions, open_session
from runner.agent.options import not_known
from runner.config import load
from runner.config.trust.cached import remembered
from runner.engine.execute import execute_call
from runner.engine.judge import evaluate_action
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, Judgement, ModelCall, Planned
from runner.events import Denied, Event, Notice
from runner.frontends.launch import approver_for
from runner.frontends.servers.trial import TrialArgs, configured
from runner.frontends.signals import end_by_signals
from runner.gate.gate import folder, is_unattended
from runner.mcp.server_config import ServerConfig
from runner.mcp.server_tool import ServerTool
from runner.mcp.servers import SessionServers
from runner.messages import ToolCall, joined_text
from runner.problems import Exit, Stopped, usage
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from runner.stderr import print_problem, say_notice
from runner.text.json_line import json_line
from runner.text.sanitize import visible
from tools.arguments import parse


@dataclass(frozen=True, slots=True)
class ServerCallArgs:
    """The options of one call.

    Attributes:
        trial: The server, the folder, the configuration file, and the form of the output.
        tool: The name of the tool at the server.
        arguments: The arguments as JSON text.
        mode: The mode, or None for that of the configuration.
        unattended: True if no user answers questions.
    """

    trial: TrialArgs
    tool: str
    arguments: str = "{}"
    mode: Mode | None = None
    unattended: bool = False


def run_call(args: ServerCallArgs) -> int:
    """Start the server, make the call if the gate allows it, print the result, and return the exit code."""
    config = configured(args.trial)
    try:
        given = json.loads(args.arguments)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        why = "the arguments of a tool are one JSON object"
        raise usage("the arguments cannot be read", why, """write them as '{"name": "value"}'""")
    return asyncio.run(_called(replace(config, enabled=True), args, given))


async def _called(config: ServerConfig, args: ServerCallArgs, given: dict[str, object]) -> int:
    end_by_signals()
    unattended = is_unattended(args.unattended)
    cwd = folder(args.trial.cwd)
    trusted = None if unattended else remembered(str(cwd), os.environ)
    named = Path(args.trial.config) if args.trial.config else None
    settings = load(cwd, os.environ, config=named, unattended=unattended, trusted=trusted)
    denials: list[Denied] = []

    def emit(event: Event) -> None:
        if isinstance(event, Notice):
            say_notice(visible(event.text, lines=False))
        elif isinstance(event, Denied):
            denials.append(event)

    options = SessionOptions(cwd, unattended, args.mode, argv=("agent", *sys.argv[1:]), servers=(config,))
    model = OpenModel(ScriptedProvider(()), "none")
    approver = approver_for(unattended, emit, model=False)
    async with open_session(options, settings, os.environ, model=model, approver=approver, emit=emit) as ctx:
        servers = ctx.servers
        assert isinstance(servers, SessionServers)
        await servers.ready()
        if (problem := servers.problem(config.name)) is not None:
            raise Stopped(problem, Exit.FAILED)
        result = await _execute(config, args.tool, given, ctx, servers)
    if denials:
        print_problem(denials[0].problem)
        return Exit.DENIED
    text = joined_text(result.result.content)
    if args.trial.json:
        print(json_line({"server": config.name, "tool": args.tool, "failed": result.result.is_error, "text": text}))
    else:
        print(visible(text, prose=True))
    return Exit.FAILED if result.result.is_error else Exit.DONE


async def _execute(
    config: ServerConfig, tool: str, given: dict[str, object], ctx: RunContext, servers: SessionServers
) -> CallResult:
    """Judge and make the call, and return its result. Raise Stopped for a call that cannot be judged."""
    offer = servers.offer(config.name)
    offered = {each.name: each for each in offer.tools} if offer is not None else {}
    if tool not in offered:
        why = f"the tools of `{config.name}` are {', '.join(offered) or 'none'}"
        fix = f"see `agent mcp test {config.name}`"
        raise not_known(
            visible(f"there is no tool `{tool}`", lines=False), visible(why, lines=False), tool, offered, fix
        )
    called = ServerTool(config, offered[tool])
    arguments = parse(called, given)
    if isinstance(arguments, Problem):
        raise Stopped(arguments, Exit.USAGE)
    assert isinstance(arguments, Mapping)  # the tool has the schema of the server
    action = called.plan(arguments, ctx.cwd, ctx.seen)
    if not isinstance(action, CallServerTool):
        raise Stopped(action, Exit.USAGE)
    call = ModelCall("call", ToolCall("call", called.name, given), own=True)
    judgement = Judgement(Planned(call, called, action), evaluate_action(action, ctx), ctx.live.named)
    return await execute_call(judgement, ctx, lambda stopped: None)
