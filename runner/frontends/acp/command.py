"""`agent acp` as a program: the protocol on standard input and output, signals, and the exit code."""

import asyncio
import logging
import os

from policy.model.deadline import deadline
from runner.agent.startup import RunArgs
from runner.frontends.wire_lines import LibraryLog, WireLines, moved_streams, run_protocol
from runner.problems import Exit
from runner.stderr import say

_GOODBYE = deadline(2.0)  # seconds for the last messages


def start_acp(args: RunArgs) -> int:
    """Serve one editor until it closes the connection or a signal arrives, and return the exit code.

    Raise Stopped if the library of the protocol is not installed.
    """
    return run_protocol("agent acp", "acp", "editor", lambda: _serve(args))


async def _serve(args: RunArgs) -> int:
    from acp.connection import Connection

    from runner.frontends.acp.server import AcpServer
    from runner.frontends.acp.transport import AcpTransport
    from runner.frontends.signals import end_by_signals

    end_by_signals()
    logging.getLogger().handlers = [LibraryLog()]
    if os.isatty(0):
        say("agent acp: waits for an editor on standard input; see `agent acp --help`")
    with moved_streams() as (source, sink):
        transport = AcpTransport(WireLines(source, sink, program="agent acp"))
        server = AcpServer(args, transport.post, transport.drained)
        connection = Connection(server.handle, transport, listening=False)
        server.connection = connection
        writing = asyncio.create_task(transport.write_all())
        try:
            await connection.main_loop()  # returns at a cancellation as well
        finally:
            await server.close()
            await transport.flush(_GOODBYE)
            await connection.close()
            writing.cancel()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return Exit.INTERRUPTED
    if transport.failure is not None and not isinstance(transport.failure, BrokenPipeError):
        raise transport.failure  # a client that leaves without reading the last messages is no failure
    return Exit.DONE
