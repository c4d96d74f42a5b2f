"""The pipes of a confined tool server as a transport of the protocol library, with bounds on what the server sends.

SOURCE: MCP 2025-11-25 and 2026-07-28, transport `stdio`: one JSON-RPC message a line, in UTF-8, without line breaks.
"""

import asyncio
import contextlib
from types import TracebackType

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from sandbox.backend import Process

LONGEST = 16 << 20  # bytes of one message
_MOST_WAITING = 10_000  # messages that wait for the client
_MOST_INVALID = 1_000  # lines that are no messages; some servers print a greeting

_Received = SessionMessage | Exception


class PipeTransport:
    """A transport over the pipes of one process. `take` takes the standard output of the process.

    THREAT T176: a server may send a message without an end, or more messages than the client reads. Each is bounded,
    and the connection ends with a reason.

    Attributes:
        fault: Why the connection ended because of what the server sent; empty if it did not.
        broken: An event that is set together with `fault`.
    """

    def __init__(self) -> None:
        self.fault = ""
        self._process: Process | None = None
        self._line = bytearray()
        self._invalid = 0
        sender, receiver = anyio.create_memory_object_stream[_Received](_MOST_WAITING)
        self._sender: MemoryObjectSendStream[_Received] = sender
        self._receiver: MemoryObjectReceiveStream[_Received] = receiver
        self._outgoing, self._pending = anyio.create_memory_object_stream[SessionMessage](0)
        self._tasks: list[asyncio.Task[None]] = []
        self.broken = asyncio.Event()

    def attach(self, process: Process) -> None:
        """Write to `process`. Its output may have arrived before."""
        self._process = process

    # ---- what the server sends

    def take(self, chunk: bytes) -> None:
        """Take standard output of the server, in which each line is one message."""
        if self.fault:
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._line += line
            if len(self._line) <= LONGEST:
                self._message(bytes(self._line))
            self._check_length()
            self._line.clear()
        self._line += rest
        self._check_length()

    def _check_length(self) -> None:
        if len(self._line) > LONGEST:
            self._break(f"it sent a message of more than {LONGEST >> 20} MiB")

    def _message(self, line: bytes) -> None:
        if not line.strip() or self.fault:
            return
        found: _Received
        try:
            found = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except (ValidationError, ValueError, RecursionError) as error:
            self._invalid += 1
            if self._invalid > _MOST_INVALID:
                self._break(f"it sent more than {_MOST_INVALID:,} lines that are no messages")
                return
            found = ValueError(f"a line is no message: {type(error).__name__}")
        try:
            self._sender.send_nowait(found)
        except anyio.WouldBlock:
            self._break(f"it sent more than {_MOST_WAITING:,} messages at once")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session has ended

    def _break(self, why: str) -> None:
        """End the connection for this reason."""
        self.fault = self.fault or why
        self._line.clear()
        self._sender.close()
        self.broken.set()

    def ended(self) -> None:
        """End the stream of messages, because the process has ended."""
        self._sender.close()

    # ---- the transport of the protocol library

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[_Received], MemoryObjectSendStream[SessionMessage]]:
        self._tasks.append(asyncio.create_task(self._write()))
        return self._receiver, self._outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outgoing.close()
        self._receiver.close()
        self._sender.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None:
            self._process.close_input()

    async def _write(self) -> None:
        """Write each message of the client as one line, until the process reads no more."""
        assert self._process is not None
        with contextlib.suppress(BrokenPipeError, anyio.ClosedResourceError, anyio.EndOfStream):
            async for sent in self._pending:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._process.write(line.encode() + b"\n")
        self._sender.close()  # a request that waits for an answer ends
