"""Forwards of ports: a port of this machine's loopback leads to a port on which a process of the session listens.

THREAT T157: a forward lets every program of this machine reach a confined server. Therefore only the user can open one,
by naming both ports; it listens on 127.0.0.1 alone; it is recorded before it is open; and it ends with its process and
with the session. No tool and no command in a sandbox can ask for one.
"""

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.audit.records import Forwarding
from runner.events import Emit, Notice
from runner.text.phrases import os_reason
from sandbox.backend import Outcome

if TYPE_CHECKING:
    from runner.audit.log import AuditLog
    from runner.engine.processes import SessionProcess, SessionProcesses

LOOPBACK = "127.0.0.1"
MOST = 16  # forwards of one session that are open at the same time
_MOST_CONNECTIONS = 100  # of one forward at the same time
_CHUNK = 1 << 16  # bytes


class ForwardRefused(ProblemError):
    """The error for a forward that was not opened."""


@dataclass(frozen=True, slots=True)
class Forward:
    """An open forward.

    Attributes:
        process: The name of the process.
        port: The port of the process.
        host_port: The port of this machine, on 127.0.0.1.
        record: The number of the record in the audit log.
    """

    process: str
    port: int
    host_port: int
    record: int


class PortForwards:
    """The forwards of one session. All methods are called in the thread of the event loop."""

    def __init__(self, processes: "SessionProcesses", audit: "AuditLog", session: str, emit: Emit) -> None:
        self._processes, self._audit, self._session, self._emit = processes, audit, session, emit
        self._open: dict[int, tuple[Forward, asyncio.Task[None]]] = {}  # by port of this machine
        self._closed = False

    @property
    def all(self) -> tuple[Forward, ...]:
        """Return the open forwards in the order in which they were opened."""
        return tuple(forward for forward, _ in self._open.values())

    async def open(self, port: int, host_port: int, by: str) -> Forward:
        """Open a forward that the user asked for, and return it.

        If `host_port` is 0, the kernel chooses a free port. `by` is the origin of the user's words: `terminal`, or
        `agent ports`. Raise ForwardRefused if nothing listens on `port` or if `host_port` cannot be opened, and
        AuditError if the forward cannot be recorded.
        """
        if self._closed:
            raise _refused("the session is being closed", "open it in the next session")
        if len(self._open) >= MOST:
            raise _refused(f"{MOST} forwards are open, the most of a session", "close one: `/ports close HOSTPORT`")
        if host_port in self._open:
            raise _refused(f"port {host_port} of this machine is forwarded already", "name another port")
        process = next((each for each in self._processes.alive if port in each.process.ports()), None)
        if process is None:
            why = f"no process of the session listens on port {port}"
            raise _refused(why, "start the server first; `/ports` lists the ports")
        with contextlib.ExitStack() as unless_recorded:
            chosen = None
            if not host_port:
                chosen = unless_recorded.enter_context(socket.socket())
                chosen.bind((LOOPBACK, 0))  # nobody can connect before the forward is recorded
                host_port = int(chosen.getsockname()[1])
            record = self._audit.forwarded(self._session, Forwarding(process.id, process.words, port, host_port, by))
            unless_recorded.pop_all()
        began = time.monotonic()
        relay = _Relay(process, port)
        try:
            if chosen is not None:
                server = await asyncio.start_server(relay.serve, sock=chosen)
            else:
                server = await asyncio.start_server(relay.serve, LOOPBACK, host_port)
        except OSError as error:
            fix = "name another port: `/ports forward PORT HOSTPORT`"
            problem = Problem(f"port {host_port} of this machine was not opened", os_reason(error), fix)
            self._audit.finished(record, Outcome(1, problem=problem))
            raise ForwardRefused(problem) from None
        forward = Forward(process.id, port, host_port, record)
        task = asyncio.create_task(self._hold(forward, process, server, relay, began))
        self._open[host_port] = forward, task
        if self._closed:  # while it was being opened
            await self.end(host_port)
        return forward

    async def end(self, host_port: int) -> bool:
        """Close a forward and its connections. Return False if there is none at that port of this machine."""
        found = self._open.get(host_port)
        if found is None:
            return False
        found[1].cancel()
        await asyncio.wait({found[1]})
        return True

    async def close(self) -> None:
        """Close all forwards. Call this before the processes are ended."""
        self._closed = True
        for host_port in tuple(self._open):
            await self.end(host_port)

    async def _hold(
        self, forward: Forward, process: "SessionProcess", server: asyncio.Server, relay: "_Relay", began: float
    ) -> None:
        """Keep a forward open until its process ends or this task is cancelled."""
        try:
            await process.process.wait()
        finally:
            server.close()
            relay.close()
            self._open.pop(forward.host_port, None)
            try:
                self._audit.finished(forward.record, Outcome(0, seconds=time.monotonic() - began))
            except ProblemError as error:  # the next action fails for the same reason, with its own message
                self._emit(Notice(f"{error.problem.what}: {error.problem.why}"))
            self._emit(Notice(f"{forward_words(forward)} is closed"))


class _Relay:
    """The connections of one forward."""

    def __init__(self, process: "SessionProcess", port: int) -> None:
        self._process, self._port = process, port
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client with the process, until one of both has ended the connection or the relay is closed."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if len(self._serving) <= _MOST_CONNECTIONS:
                await self._joined(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the connection ends; the server of the process, or the client, sees it as a reset
        finally:
            self._serving.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await self._process.process.connect(self._port)
        inner.setblocking(False)
        inner_reader, inner_writer = await asyncio.open_connection(sock=inner)
        try:
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        finally:
            inner_writer.transport.abort()

    def close(self) -> None:
        """End all connections."""
        for task in tuple(self._serving):
            task.cancel()


def forward_words(forward: Forward) -> str:
    """Return the two ends of a forward in words."""
    return f"{LOOPBACK}:{forward.host_port}, forwarded to port {forward.port} of {forward.process},"


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the end of `source`, and pass the end on."""
    while chunk := await source.read(_CHUNK):
        target.write(chunk)
        await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()


def _refused(why: str, fix: str) -> ForwardRefused:
    return ForwardRefused(Problem("the port was not forwarded", why, fix))
