"""A confined process tree in a container of its own, which stays while later commands run."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from policy.model.verdict import Permit, Problem
from sandbox.backend import Connection, Listener, Outcome, SandboxUnavailable, TerminalSize, Violation
from sandbox.container.container import Box
from sandbox.container.exec_stream import Running
from sandbox.linux.command_watch import CommandWatch
from sandbox.linux.process_watch import LateFiles

_LOOK = 0.2  # seconds between two checks for files that appeared
_TAIL = 16 << 10  # bytes at the end of each stream, which tell why a process failed
_END_OF_FILE = b"\x04"  # VEOF, termios(3)


class StayingStreams(Running):
    """The streams of a process that stays: its standard input stays open, and only the end of its output is kept."""

    given = True

    def __init__(self, listen: Listener, terminal: TerminalSize | None) -> None:
        super().__init__(_TAIL, listen)
        self._heard, self.terminal = listen, terminal

    def take(self, stream: int, chunk: bytes) -> bool:
        """Pass a chunk of stream 1 or 2 to the listener, whose errors are raised. There is no limit."""
        tail = self.streams[stream - 1]
        tail += chunk
        del tail[:-_TAIL]
        self._heard(stream, chunk)
        return True


class ContainerProcess:
    """One process tree and its container. `begin` starts it, and a task supervises it until its end.

    Attributes:
        permit: The permit that it executes.
        enforcement: What its container enforces.
    """

    def __init__(
        self,
        permit: Permit,
        box: Box,
        watch: CommandWatch,
        late: LateFiles,
        listen: Listener,
        terminal: TerminalSize | None,
    ) -> None:
        """Prepare the process. `late` watches for files that the mounts of `box` do not cover."""
        self.permit, self.enforcement = permit, box.enforcement
        self._box, self._watch, self._late = box, watch, late
        self._streams = StayingStreams(listen, terminal)
        self._began = time.monotonic()
        self._why: str | None = None  # the reason for which the process was asked to end
        self._command: asyncio.Task[Outcome] | None = None  # it ends with the command
        self._task: asyncio.Task[Outcome] | None = None  # it ends when nothing of the process is left
        self._open = True  # False after the end of its standard input
        self._writing = asyncio.Lock()
        self._size: TerminalSize | None = None  # the size that the terminal does not have yet
        self._resizing: asyncio.Task[None] | None = None

    async def begin(
        self, converse: Callable[[Running], Coroutine[Any, Any, Outcome]], complete: Callable[[Outcome], Outcome]
    ) -> None:
        """Start the command, and the task that supervises it. Raises SandboxUnavailable; then nothing ran.

        Args:
            converse: Runs the command with the streams, and returns its outcome. Cancelling it kills the command.
            complete: Ends the container, and adds the violations to an outcome.
        """
        if self._box.egress is not None:
            self._box.egress.begin()
        self._command = asyncio.create_task(converse(self._streams))
        self._task = asyncio.create_task(self._supervise(self._command, complete))
        started = asyncio.create_task(self._streams.started.wait())
        try:
            await asyncio.wait({self._command, started}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._command.cancel()
            await asyncio.wait({self._task})
            raise
        finally:
            started.cancel()
        if not self._streams.started.is_set():
            await asyncio.wait({self._task})
            self._task.result()  # raises the error; a program that is missing has an outcome

    # ---- the Process protocol

    @property
    def outcome(self) -> Outcome | None:
        if self._task is None or not self._task.done():
            return None
        seconds = time.monotonic() - self._began
        if self._task.cancelled():
            return Outcome(137, seconds=seconds, ended_by="cancelled")
        if (error := self._task.exception()) is not None:
            problem = Problem("the process was ended", f"its supervision failed ({error})", "start it again")
            return Outcome(137, seconds=seconds, ended_by="failure", problem=problem)
        return self._task.result()

    @property
    def violations(self) -> tuple[Violation, ...]:
        if (outcome := self.outcome) is not None:
            return outcome.violations
        egress, live = self._box.egress, self._watch.live
        refused = egress.so_far()[1] if egress is not None else ()
        return (*refused, *(live.found if live is not None else ()), *self._late_found)

    @property
    def _late_found(self) -> tuple[Violation, ...]:
        return () if self._late.found is None else (self._late.found,)

    @property
    def connections(self) -> tuple[Connection, ...]:
        if (outcome := self.outcome) is not None:
            return outcome.connections
        return self._box.egress.so_far()[0] if self._box.egress is not None else ()

    async def write(self, data: bytes) -> None:
        async with self._writing:
            wire, command = self._streams.wire, self._command
            if wire is None or command is None or command.done() or not self._open:
                raise BrokenPipeError("the process reads no more input")
            sending = asyncio.create_task(wire.send(data))
            try:
                await asyncio.wait({sending, command}, return_when=asyncio.FIRST_COMPLETED)
                if not sending.done() or sending.exception() is not None:
                    raise BrokenPipeError("the process reads no more input")
            finally:
                sending.cancel()

    def close_input(self) -> None:
        wire = self._streams.wire
        if wire is None or not self._open:
            return
        if self._streams.terminal is not None:
            wire.post(_END_OF_FILE)
            return
        self._open = False
        with contextlib.suppress(OSError):  # the process has ended
            wire.end_input()

    def resize(self, size: TerminalSize) -> None:
        if self._streams.terminal is None or self._command is None or self._command.done():
            return
        self._size = size
        if self._resizing is None or self._resizing.done():
            self._resizing = asyncio.create_task(self._resize())

    async def _resize(self) -> None:
        while (size := self._size) is not None:
            self._size = None
            with contextlib.suppress(SandboxUnavailable):  # the supervision reports a daemon that does not answer
                await self._box.resize(self._streams.number, size)

    async def signal(self, number: int) -> None:
        if self._command is not None and not self._command.done():
            await self._box.signal(int(number))

    async def wait(self) -> Outcome:
        assert self._task is not None
        await asyncio.wait({self._task})
        outcome = self.outcome
        assert outcome is not None
        return outcome

    async def end(self, why: str = "cancelled") -> Outcome:
        self._kill(why)
        return await self.wait()

    def _kill(self, why: str) -> None:
        assert self._command is not None
        if self._why is None and not self._command.done():
            self._why = why
            self._command.cancel()  # kills all processes of the container

    def ports(self) -> tuple[int, ...]:
        return self._box.ports()

    async def connect(self, port: int) -> socket.socket:
        return await self._box.connect(port)

    # ---- the supervision

    async def _supervise(self, command: asyncio.Task[Outcome], complete: Callable[[Outcome], Outcome]) -> Outcome:
        """Return the outcome, without output, when the command has ended by itself, by a limit, by a watch or by `end`.

        The container has ended then, and all watches are closed.
        """
        egress = self._box.egress
        try:
            outcome = await self._ended(command)
            self._box.kill()
            await self._box.cleared()  # first, so that nothing can create files after the scan
            if egress is not None:
                connections, violations = await egress.end()
                outcome = replace(outcome, connections=connections, violations=violations)
            outcome = complete(outcome)
            violations = (*outcome.violations, *self._late_found)
            return replace(outcome, stdout=b"", stderr=b"", truncated=False, violations=violations)
        except BaseException:
            command.cancel()
            self._box.kill()
            self._watch.settle()
            raise
        finally:
            self._late.close()
            self._watch.close()
            if self._resizing is not None:
                self._resizing.cancel()

    async def _ended(self, command: asyncio.Task[Outcome]) -> Outcome:
        """Return the outcome of the command without that of the watches. Raises SandboxUnavailable if nothing ran."""
        self._late.attach(lambda: self._kill("exposed"))
        while not command.done():
            await asyncio.wait({command}, timeout=_LOOK)
            self._late.tick()
            if self._late.found is not None:
                self._kill("exposed")
        try:
            return command.result()
        except asyncio.CancelledError:
            if self._why is None:
                raise
            return Outcome(137, seconds=time.monotonic() - self._began, ended_by=self._why)
        except SandboxUnavailable as error:
            if not self._streams.started.is_set():
                raise
            seconds = time.monotonic() - self._began
            return Outcome(125, seconds=seconds, ended_by="container", problem=error.problem)
