"""A screen in tmux, a second terminal beside that of `tests.support.terminal_screen`, which few tests use.

It wraps rows again when the window changes, like most terminals, and it is the witness for the emulator of all others.
"""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

from tests.support.terminal import Value
from tests.support.terminal_screen import Screen
from tests.support.waiting import until

_numbers = count()
_LEFT = re.compile(r"^LEFT [0-9]+$", re.MULTILINE)


class Tmux(Screen):
    """One window of a tmux server of its own, whose socket lies in `base`."""

    def __init__(
        self, base: Path, work: Path, environ: Mapping[str, str], *command: str, size: tuple[int, int] = (110, 50)
    ) -> None:
        # A socket of its own: a server that was told to end may still hold that of the window before.
        self._server = ["tmux", "-f", "/dev/null", "-S", str(base / f"tmux-{next(_numbers)}")]
        script = f"{shlex.join(command)}; echo LEFT $?; sleep 600"
        # Lines that have left the screen are kept, as many as a user would scroll.
        keep = ["start-server", ";", "set-option", "-g", "history-limit", "20000", ";"]
        words = [*self._server, *keep, "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), script]
        subprocess.run(words, check=True, cwd=work, env=environ)

    def _do(self, *words: str) -> str:
        return subprocess.run([*self._server, *words], check=True, capture_output=True, text=True).stdout

    def look(self, *, joined: bool = False, history: bool = True) -> str:
        return self._do("capture-pane", "-p", *(["-J"] if joined else []), *(["-S", "-"] if history else []))

    def wait_for(self, condition: Callable[[], Value], what: str | Callable[[], object] = "the event") -> Value:
        return until(
            condition,
            of=lambda: _LEFT.search(self.look()) is not None,
            what=lambda: f"{what if isinstance(what, str) else what()} in\n{self.look()}",
        )

    def resize(self, columns: int, rows: int) -> None:
        self._do("resize-window", "-x", str(columns), "-y", str(rows))
        with open(self._do("display-message", "-p", "#{pane_tty}").strip()) as terminal:
            # tmux waits a moment before it changes the size of the terminal
            self.wait_for(lambda: os.get_terminal_size(terminal.fileno()) == (columns, rows), "the size")

    def paste(self, text: str) -> None:
        subprocess.run([*self._server, "load-buffer", "-"], check=True, input=text, text=True)
        self._do("paste-buffer", "-p", "-r")

    def driven(self) -> list[str]:
        title, buffers = self._do("display-message", "-p", "#{pane_title}").strip(), self._do("list-buffers").strip()
        return [f"the title is {title!r}"] * ("owned" in title) + [f"the clipboard holds {buffers!r}"] * bool(buffers)

    def type(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def within(self, seconds: float, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + seconds
        while not (holds := condition()) and time.monotonic() < end:
            time.sleep(0.02)
        return holds

    def close(self) -> None:
        self._do("kill-server")
