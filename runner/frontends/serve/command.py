"""`agent mcp serve` as a program: the settings, the session, the transport, signals, and the exit code.

All clients of one server share one session: its mode, its background processes, its limits and its record. A server on
standard input has one client.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.agent.startup import RunArgs, prepare_options
from runner.approval.approver import Unattended
from runner.approval.open_questions import OpenQuestions
from runner.events import ErrorRaised, Event, Notice, RunEnded
from runner.frontends.serve.questions import AskSettings
from runner.frontends.wire_lines import LibraryLog, run_protocol, stderr_has_room
from runner.messages import ProviderError, Request, StreamEvent, Usage
from runner.problems import Exit
from runner.providers import OpenModel
from runner.stderr import print_problem, say, say_notice
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.frontends.serve.server import ToolServer


class ClientModel:
    """The provider of a session whose model is at the other end of a client: it is never asked."""

    name = "mcp"

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        raise ProviderError(Problem("this session asks no model", "its model is at the client", "use `agent run`"))
        yield  # a generator, as the protocol of providers requires

    async def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ServeArgs:
    """The options of `agent mcp serve`.

    Attributes:
        run: The options that a run has as well.
        ask: The way of questions.
        http: The port of 127.0.0.1 for HTTP, 0 for a free one; None for standard input and output.
        token_file: The file with the token for HTTP, or None for a new token in the state folder.
    """

    run: RunArgs
    ask: AskSettings
    http: int | None = None
    token_file: str | None = None


class Transport(Protocol):
    """The way from the clients to the server."""

    async def run(self, server: "ToolServer") -> str:
        """Serve until no client can come any more, and return the reason in words."""
        ...


def start_server(args: ServeArgs) -> int:
    """Serve the tools until the client leaves or a signal arrives, and return the exit code.

    Raise Stopped if the settings or the library cannot be used.
    """
    return run_protocol("agent mcp serve", "mcp", "mcp", lambda: _serve(args))


async def _serve(args: ServeArgs) -> int:
    from runner.agent.open_session import open_session
    from runner.frontends.serve.calls import ServedCalls
    from runner.frontends.signals import end_by_signals

    end_by_signals()
    library = logging.getLogger("mcp")
    library.propagate = False
    library.handlers = [LibraryLog()]
    options, settings = prepare_options(args.run, args.run.unattended, asks=False)
    # The tools of other servers, agents, skills and language servers are the business of the client.
    context = replace(options.context, skills=())
    options = replace(options, servers=(), agents=(), web=False, code=False, context=context)
    questions = OpenQuestions()
    served: list[ServedCalls] = []

    def emit(event: Event) -> None:
        _tell(event)
        for calls in served:
            calls.heard(event)

    transport = _transport(args, str(options.cwd))  # before the session: a taken port is reported first
    async with open_session(
        options,
        settings,
        os.environ,
        model=OpenModel(ClientModel(), "client"),
        approver=Unattended(emit),
        emit=emit,
        questions=None if options.unattended else questions,
    ) as ctx:
        from runner.frontends.serve.server import ToolServer

        questions.mask = ctx.redactor.text
        calls = ServedCalls(ctx)
        served.append(calls)
        server = ToolServer(calls, questions, args.ask)
        exit, reason = Exit.FAILED, "ended by an error"
        try:
            async with asyncio.timeout(ctx.live.limits.seconds) as clock:
                reason = await transport.run(server)
            exit = Exit.DONE if calls.limit is None else Exit.LIMIT
        except TimeoutError:
            if not clock.expired():
                raise
            exit, reason = Exit.LIMIT, f"stopped after {ctx.live.limits.seconds:g} s, the time this server may take"
            say(f"agent mcp serve: {reason}")
        except asyncio.CancelledError:
            exit, reason = Exit.INTERRUPTED, "stopped by a signal"
            raise
        finally:
            await server.close()
            ctx.emit(RunEnded(int(exit), reason, 0, Usage(), (), calls.limit))
    return exit


def _transport(args: ServeArgs, cwd: str) -> Transport:
    if args.http is not None:
        from runner.frontends.serve.http import HttpTransport

        return HttpTransport(args.http, args.token_file, cwd, os.environ)
    return StdioTransport()


class StdioTransport:
    """The protocol on standard input and output."""

    async def run(self, server: "ToolServer") -> str:
        """Serve until the client closes standard input. Raise BrokenPipeError or Stopped if it does not read."""
        from runner.frontends.serve.stdio import line_transport
        from runner.frontends.wire_lines import WireLines, moved_streams

        if os.isatty(0):
            say("agent mcp serve: waits for a client on standard input; see `agent mcp serve --help`")
        with moved_streams() as (source, sink):
            async with line_transport(WireLines(source, sink, program="agent mcp serve")) as (received, sent):
                protocol = server.protocol
                await protocol.run(received, sent, protocol.create_initialization_options())
        return "the client closed the connection"


def _tell(event: Event) -> None:
    """Show a notice or an error on standard error. It is left out if nobody reads there, because the client may have
    connected standard error to a pipe that it never reads.
    """
    if not isinstance(event, Notice | ErrorRaised) or not stderr_has_room():
        return
    if isinstance(event, Notice):
        say_notice(visible(event.text, lines=False))
    else:
        print_problem(event.problem)
