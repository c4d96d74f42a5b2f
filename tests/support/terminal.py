"""A pseudo-terminal with a command in it, checked by the bytes written to it."""

import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.sandbox_bench import NOBODY


class Terminal:
    """`seen` is everything that it showed. `other`: the command runs as another user than us."""

    def __init__(self, argv: Sequence[str], cwd: Path, environ: Mapping[str, str], *, other: bool = False) -> None:
        self.seen = ""
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            if other:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.execve(argv[0], argv, environ)

    @property
    def pid(self) -> int:
        """Return the process of the command; 0 after its end."""
        return self._pid

    def until(self, text: str, times: int = 1) -> None:
        """Wait until it has shown `text` so often."""
        end = time.monotonic() + 120
        while self.seen.count(text) < times:
            assert time.monotonic() < end, f"no `{text}` in {self.seen!r}"
            self._read()

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def end(self) -> int:
        """Wait for the end of the program and return its exit code."""
        end = time.monotonic() + 120
        while self._read():
            assert time.monotonic() < end, self.seen
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._descriptor)

    def _read(self) -> bool:
        """Read pending output and return True while a process has the terminal open."""
        if select.select([self._descriptor], [], [], 0.1)[0]:
            try:
                piece = os.read(self._descriptor, 4096)
            except OSError:  # nobody has it open any more, pty(7)
                return False
            self.seen += piece.decode("utf-8", "replace")
            return bool(piece)
        return True
