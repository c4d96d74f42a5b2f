"""A pseudo-terminal with a command in it, checked by the bytes written to it.

Every wait is a select(2) on the terminal and on the process: it ends when the condition holds, or when the program has
ended without it. A wait for something that never happens is ended by the time limit of pytest-timeout.
"""

import codecs
import contextlib
import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.support.forked_agent import AGENT, Process
from tests.support.sandbox_bench import NOBODY

Value = TypeVar("Value")
_PIECE = 1 << 16
_AGAIN = 0.02  # seconds between two looks at a condition that is not about the terminal
_LEAVING = 20.0  # seconds for a program to end after its terminal is gone, before it is killed


class PseudoTerminal:
    """A command that leads a session with a new pseudo-terminal. Subclasses say what happens to its output.

    Attributes:
        code: the exit code of the command, 128 and the signal if a signal ended it; None while it runs.
    """

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        environ: Mapping[str, str],
        *,
        size: tuple[int, int] = (0, 0),
        other: bool = False,
        execve: bool = False,
    ) -> None:
        """Start the command.

        Args:
            size: columns and rows of the terminal.
            other: whether the command runs as the user `nobody`.
            execve: whether `agent` is started as a shell does it, and not forked (`forked_agent`): for tests of the
                start-up, signals, job control, the state of the terminal itself, /proc and attacks.
        """
        self.code: int | None = None
        self._master, slave = pty.openpty()
        try:
            self.set_size(*size)
            os.set_blocking(self._master, False)
            who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if other else {}
            self._process = Process(
                argv, cwd=cwd, env=environ, stdin=slave, stdout=slave, stderr=slave, terminal=True,
                execve=execve or argv[0] != AGENT, **who,
            )  # fmt: skip
        finally:
            os.close(slave)
        self._ended = self._process.end()

    @property
    def pid(self) -> int:
        """Return the process of the command."""
        return self._process.pid

    def set_size(self, columns: int, rows: int) -> None:
        """Change the size of the terminal; the kernel sends SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(
        self, condition: Callable[[], Value], what: str | Callable[[], object] = "the event", *, outside: bool = False
    ) -> Value:
        """Wait until a condition holds, and return its first true value. Output is taken meanwhile.

        Args:
            condition: evaluated after each piece of output.
            what: names the event in the message of a failure; a function is called for it then.
            outside: whether something else than output of the terminal can make the condition true.
        """
        while not (value := condition()):
            if self.code is not None:
                self._drain()
                if value := condition():
                    return value
                raise AssertionError(f"{_name(what)} did not come before the end of the program:\n{self.shown()}")
            try:
                self._receive(_AGAIN if outside else None)
            except BaseException as error:  # the time limit of the test, say
                error.add_note(f"while waiting for {_name(what)}, the terminal showed:\n{self.shown()}")
                raise
        return value

    def send(self, text: str) -> None:
        """Write characters to the terminal, as a keyboard does. Output is taken meanwhile."""
        rest = memoryview(text.encode())
        while rest:
            reads, writes, _ = select.select([self._master], [self._master], [])
            if reads and not self._read():
                raise AssertionError(f"the program has ended and takes no input:\n{self.shown()}")
            if writes:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[os.write(self._master, rest) :]

    def shown(self) -> str:
        """Return what a failure shows of the terminal."""
        raise NotImplementedError

    def close(self) -> None:
        """Take the terminal away, which sends SIGHUP, and wait for the end of the command."""
        os.close(self._master)
        if self.code is None:
            if not select.select([self._ended], [], [], _LEAVING)[0]:
                self._process.kill()
            self._process.wait()
        os.close(self._ended)

    def _take(self, output: bytes) -> None:
        """Handle output of the program."""
        raise NotImplementedError

    def _receive(self, seconds: float | None) -> None:
        """Wait for output or for the end of the command, and handle it."""
        waiting = [self._master] if self.code is None else []
        reads, _, _ = select.select([*waiting, self._ended], [], [], seconds)
        alive = self._drain()
        if self._ended in reads or not alive:
            status = self._process.wait()
            self._drain()
            if self.code is None:
                self.code = status if status >= 0 else 128 - status

    def _drain(self) -> bool:
        """Handle all output that is there, and return True while a process has the terminal open."""
        with contextlib.suppress(BlockingIOError):
            while self._read():
                pass
            return False
        return True

    def _read(self) -> bool:
        try:
            piece = os.read(self._master, _PIECE)
        except BlockingIOError:
            raise
        except OSError:  # nobody has it open any more, pty(7)
            return False
        self._take(piece)
        return bool(piece)


class Terminal(PseudoTerminal):
    """A terminal whose output is kept as it is: `seen` is everything that it showed."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        environ: Mapping[str, str],
        *,
        size: tuple[int, int] = (0, 0),
        other: bool = False,
        execve: bool = False,
    ) -> None:
        self.seen = ""
        self._at = 0  # the end of the last text of `then`
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        super().__init__(argv, cwd, environ, size=size, other=other, execve=execve)

    def until(self, text: str, times: int = 1) -> None:
        """Wait until it has shown `text` so often."""
        self.wait_for(lambda: self.seen.count(text) >= times, f"{text!r} ({times})")

    def shows_or_ends(self, text: str, times: int = 1) -> bool:
        """Wait until it has shown `text` so often, and return True, or until the end of the program."""
        self.wait_for(lambda: self.seen.count(text) >= times or self.code is not None, f"{text!r} or the end")
        return self.seen.count(text) >= times

    def then(self, text: str) -> None:
        """Wait until it has shown `text` after the text of the previous call."""
        self.wait_for(lambda: text in self.seen[self._at :], f"{text!r} after {self._at} characters")
        self._at = self.seen.index(text, self._at) + len(text)

    def type(self, text: str) -> None:
        self.send(text)

    def end(self) -> int:
        """Wait for the end of the program and return its exit code."""
        self.wait_for(lambda: self.code is not None, "the end of the program")
        assert self.code is not None
        return self.code

    def shown(self) -> str:
        return repr(self.seen)

    def _take(self, output: bytes) -> None:
        self.seen += self._decoder.decode(output)


def _name(what: str | Callable[[], object]) -> str:
    return what if isinstance(what, str) else str(what())
