"""The protocol on standard input and output, one message on each line.

THREAT T199: a client may send endless lines, or never read. A message has a largest size, and while answers wait for
the client, no further message is read (`runner/frontends/wire_lines.py` disconnects a client that reads nothing).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from runner.frontends.wire_lines import LONGEST_MESSAGE, WireLines
from runner.problems import Stopped

_MOST_WAITING = 16  # answers that wait for the client before no further message is read

FromClient = MemoryObjectReceiveStream[SessionMessage | Exception]
ToClient = MemoryObjectSendStream[SessionMessage]


@contextlib.asynccontextmanager
async def line_transport(wire: WireLines) -> AsyncIterator[tuple[FromClient, ToClient]]:
    """Yield the streams of messages for the protocol library. Raise what `WireLines.write` raises."""
    to_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    room = asyncio.Event()
    room.set()

    async def read() -> None:
        async with to_server:
            while (line := await wire.line()) is not None:
                if line.strip():
                    await _deliver(line, to_server, sent)
                while sent.statistics().tasks_waiting_send > _MOST_WAITING:
                    room.clear()
                    await room.wait()

    failures: list[Exception] = []

    async def write() -> None:
        async with from_server:
            async for message in from_server:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await wire.write(text.encode() + b"\n")
                except (OSError, Stopped) as error:
                    failures.append(error)
                    group.cancel_scope.cancel()
                    return
                room.set()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        yield received, sent
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def _deliver(line: bytes, to_server: MemoryObjectSendStream[SessionMessage | Exception], sent: ToClient) -> None:
    """Parse a line and give the message to the server. A line that is no message is answered with an error."""
    try:
        if len(line) > LONGEST_MESSAGE:
            raise ValueError(f"the message is longer than {LONGEST_MESSAGE >> 20} MiB")
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError) as error:
        long = len(line) > LONGEST_MESSAGE
        text = str(error) if long else "the line is not a message of JSON-RPC"
        code = types.INVALID_REQUEST if long else types.PARSE_ERROR
        refusal = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=text))
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await sent.send(SessionMessage(refusal))
        return
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await to_server.send(SessionMessage(message))
