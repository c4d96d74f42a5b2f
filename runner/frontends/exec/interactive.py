"""The connection of a confined command to the user's terminal: `agent exec bash` behaves as `bash` does."""

import asyncio
import contextlib
import os
import re
import signal
import termios
import tty
from collections.abc import Iterator
from dataclasses import replace

from policy.model.verdict import Limits, Permit
from sandbox.backend import (
    Backend,
    InterruptedCommand,
    Listener,
    Outcome,
    Process,
    SandboxUnavailable,
    TerminalSize,
)

_CHUNK = 1 << 16  # bytes
# Sets modes of a terminal that a command may leave switched on: colours, a hidden cursor, reports of the mouse, marks
# around pasted text, and the keys of the application mode (xterm control sequences).
_USUAL = b"\x1b[0m\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>"
_SCREEN = re.compile(rb"\x1b\[\?(?:47|1047|1049)([hl])")  # the alternate screen is switched on (h) or off (l)
_LONGEST = 16  # bytes of a sequence that may be divided between two pieces of output


async def run_interactively(backend: Backend, permit: Permit, listen: Listener) -> Outcome:
    """Run the permit in a terminal of the sandbox that is connected to the terminal of this process.

    Only a wall time that the user set is a limit. Where the sandbox has no terminal, the command has an empty input.
    Raises SandboxUnavailable; then nothing ran. The cause of another exception has the connections of the command.
    """
    screen = _Screen(listen)
    try:
        process = await backend.start(permit, listen=screen.take, terminal=_size())
    except SandboxUnavailable:
        return await backend.run(permit, listen=listen)
    given = 0
    try:
        with _raw(), _keys(process) as keys:
            outcome = await _until_end(process, permit.terms.limits.wall)
            given = keys.given
    except BaseException as end:
        ended = await process.end()
        raise end from InterruptedCommand(ended.connections, end.__cause__)
    finally:
        screen.leave()
    return replace(outcome, given=given)


async def _until_end(process: Process, wall: float) -> Outcome:
    try:
        async with asyncio.timeout(wall if wall != Limits().wall else None):
            return await process.wait()
    except TimeoutError:
        return await process.end("wall")


def _size() -> TerminalSize:
    with contextlib.suppress(OSError):
        columns, rows = os.get_terminal_size(0)
        return TerminalSize(max(rows, 1), max(columns, 1))
    return TerminalSize()


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Pass every key on, also Ctrl-C: the terminal of the sandbox handles it. Restore the modes at the end."""
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


class _Keys:
    """The transfer of keys and of the size of the window to a process. `given` counts bytes."""

    def __init__(self, process: Process) -> None:
        self.given = 0
        self.process = process
        self.writing: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(0, self.read)

    def read(self) -> None:
        self.loop.remove_reader(0)  # until the process has taken what was read
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        if data:
            self.writing = self.loop.create_task(self.write(data))
        else:
            self.process.close_input()

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            await self.process.write(data)
            self.given += len(data)
            self.loop.add_reader(0, self.read)

    def close(self) -> None:
        self.loop.remove_reader(0)
        if self.writing is not None:
            self.writing.cancel()


@contextlib.contextmanager
def _keys(process: Process) -> Iterator[_Keys]:
    keys = _Keys(process)
    keys.loop.add_signal_handler(signal.SIGWINCH, lambda: process.resize(_size()))
    try:
        yield keys
    finally:
        keys.loop.remove_signal_handler(signal.SIGWINCH)
        keys.close()


class _Screen:
    """The output of a process, and whether it left the alternate screen of the terminal switched on."""

    def __init__(self, listen: Listener) -> None:
        self._listen = listen
        self._alternate = False
        self._rest = b""
        self._used = False

    def take(self, stream: int, chunk: bytes) -> None:
        self._used = self._used or b"\x1b" in chunk
        if self._used:
            text = self._rest + chunk
            for switch in _SCREEN.finditer(text):
                self._alternate = switch[1] == b"h"
            self._rest = text[-_LONGEST:]
        self._listen(stream, chunk)

    def leave(self) -> None:
        """Set the modes of the terminal that a command may have changed to their usual values."""
        if self._used:
            with contextlib.suppress(OSError):  # nothing reads the terminal any more
                os.write(1, (b"\x1b[?1049l" if self._alternate else b"") + _USUAL)
