"""`agent acp` as a program: the protocol on standard input and output, signals, and the exit code."""

import asyncio
import logging
import os
from importlib.util import find_spec

from policy.model.verdict import Problem
from runner.agent.startup import RunArgs
from runner.frontends.wire_lines import stderr_has_room
from runner.problems import Exit, Stopped
from runner.stderr import say, say_notice
from runner.text.sanitize import one_line

_LONGEST_LOG = 500  # characters of one message of the protocol library
_GOODBYE = 2.0  # seconds for the last messages


def start_acp(args: RunArgs) -> int:
    """Serve one editor until it closes the connection or a signal arrives, and return the exit code.

    Raise Stopped if the library of the protocol is not installed.
    """
    if find_spec("acp") is None:
        what, why = "`agent acp` cannot start", "the library of the protocol is not installed"
        raise Stopped(Problem(what, why, "install `ringfence[editor]`"), Exit.FAILED)
    try:
        return asyncio.run(_serve(args))
    except asyncio.CancelledError:  # by a signal
        return Exit.INTERRUPTED


async def _serve(args: RunArgs) -> int:
    from acp.connection import Connection

    from runner.frontends.acp.server import AcpServer
    from runner.frontends.acp.transport import AcpTransport
    from runner.frontends.signals import end_by_signals
    from runner.frontends.wire_lines import WireLines, moved_streams

    end_by_signals()
    logging.getLogger().handlers = [_LibraryLog(logging.ERROR)]
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


class _LibraryLog(logging.Handler):
    """The errors of the protocol library as notices, without the messages of the client that caused them."""

    def emit(self, record: logging.LogRecord) -> None:
        if stderr_has_room():
            say_notice(one_line(f"the protocol library reports: {record.getMessage()}", _LONGEST_LOG))
