"""A confined process tree in a container of its own, which stays while later commands run."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

from policy.model.verdict import Permit
from sandbox.backend import Listener, Outcome, SandboxUnavailable, TerminalSize
from sandbox.container.container import Box
from sandbox.container.exec_stream import Running
from sandbox.linux.command_watch import CommandWatch
from sandbox.linux.process_watch import LateFiles
from sandbox.linux.supervised_process import END_OF_FILE, LOOK, TAIL, FinishOutcome, SupervisedProcess


class StayingStreams(Running):
    """The streams of a process that stays: its standard input stays open, and only the end of its output is kept."""

    given = True

    def __init__(self, listen: Listener, terminal: TerminalSize | None) -> None:
        super().__init__(TAIL, listen)
        self._heard, self.terminal = listen, terminal

    def take(self, stream: int, chunk: bytes) -> bool:
        """Pass a chunk of stream 1 or 2 to the listener, whose errors are raised. There is no limit."""
        tail = self.streams[stream - 1]
        tail += chunk
        del tail[:-TAIL]
        self._heard(stream, chunk)
        return True


class ContainerProcess(SupervisedProcess):
    """One process tree and its container. `begin` starts it, and a task supervises it until its end."""

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
        super().__init__(permit, box.enforcement, box.egress, watch, late)
        self._box, self._late_files = box, late
        self._streams = StayingStreams(listen, terminal)
        self._why: str | None = None  # the reason for which the process was asked to end
        self._command: asyncio.Task[Outcome] | None = None  # it ends with the command
        self._open = True  # False after the end of its standard input
        self._writing = asyncio.Lock()
        self._size: TerminalSize | None = None  # the size that the terminal does not have yet
        self._resizing: asyncio.Task[None] | None = None

    async def begin(self, converse: Callable[[Running], Coroutine[Any, Any, Outcome]], complete: FinishOutcome) -> None:
        """Start the command, and the task that supervises it. Raises SandboxUnavailable; then nothing ran.

        Args:
            converse: Runs the command with the streams, and returns its outcome. Cancelling it kills the command.
            complete: Ends the container, and adds the violations to an outcome.
        """
        if self._egress is not None:
            self._egress.begin()
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
            wire.post(END_OF_FILE)
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

    async def _supervise(self, command: asyncio.Task[Outcome], complete: FinishOutcome) -> Outcome:
        """Return the outcome, without output, when the command has ended by itself, by a limit, by a watch or by `end`.

        The container has ended then, and all watches are closed.
        """
        try:
            outcome = await self._ended(command)
            self._box.kill()
            await self._box.cleared()  # first, so that nothing can create files after the scan
            return await self._completed(outcome, complete)
        except BaseException:
            command.cancel()
            self._box.kill()
            self._watch.settle()
            raise
        finally:
            self._late_files.close()
            self._watch.close()
            if self._resizing is not None:
                self._resizing.cancel()

    async def _ended(self, command: asyncio.Task[Outcome]) -> Outcome:
        """Return the outcome of the command without that of the watches. Raises SandboxUnavailable if nothing ran."""
        self._late_files.attach(lambda: self._kill("exposed"))
        while not command.done():
            await asyncio.wait({command}, timeout=LOOK)
            self._late_files.tick()
            if self._late_files.found is not None:
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
