"""A real terminal with a command in it, checked by the contents of the screen."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

from runner.frontends.tui.panel import CAREFUL, GUARD

_numbers = count()


class Tmux:
    """One window of a tmux server of its own, whose socket lies in `base`; `LEFT N` comes when the command has ended."""

    def __init__(
        self, base: Path, work: Path, environ: Mapping[str, str], *command: str, size: tuple[int, int] = (110, 50)
    ) -> None:
        # A socket of its own: a server that was told to end may still hold that of the window before.
        self._server = ["tmux", "-f", "/dev/null", "-S", str(base / f"tmux-{next(_numbers)}")]
        told = f"{shlex.join(command)}; echo LEFT $?; sleep 600"
        # Lines that have left the screen are kept, as many as a user would scroll.
        keep = ["start-server", ";", "set-option", "-g", "history-limit", "20000", ";"]
        words = [*self._server, *keep, "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), told]
        subprocess.run(words, check=True, cwd=work, env=environ)

    def _do(self, *words: str) -> str:
        return subprocess.run([*self._server, *words], check=True, capture_output=True, text=True).stdout

    def until(self, told: str) -> str:
        """The screen with what has left it, once it shows `told`."""
        end = time.monotonic() + 180
        while told not in (screen := self._do("capture-pane", "-p", "-S", "-")):
            assert time.monotonic() < end, f"waited for {told!r} and saw {screen}"
            time.sleep(0.05)
        return screen

    def screen(self) -> str:
        """Return the text on the screen."""
        return self._do("capture-pane", "-p")

    def gone(self, told: str) -> str:
        """All there is to see, once the screen does not show `told` any more."""
        end = time.monotonic() + 180
        while told in (screen := self.screen()):
            assert time.monotonic() < end, f"{told!r} is still on {screen}"
            time.sleep(0.05)
        return self.until("")

    def resize(self, columns: int, rows: int) -> None:
        """Returns when a program in it can know."""
        self._do("resize-window", "-x", str(columns), "-y", str(rows))
        end = time.monotonic() + 180
        with open(self._do("display-message", "-p", "#{pane_tty}").strip()) as terminal:
            while os.get_terminal_size(terminal.fileno()) != (columns, rows):  # tmux waits a moment before it tells
                assert time.monotonic() < end
                time.sleep(0.01)

    def paste(self, text: str) -> None:
        """Paste text as a terminal does, bracketed if the program requested it."""
        subprocess.run([*self._server, "load-buffer", "-"], check=True, input=text, text=True)
        self._do("paste-buffer", "-p", "-r")

    def pid(self) -> int:
        """Of the shell that runs the command."""
        return int(self._do("display-message", "-p", "#{pane_pid}"))

    def asked(self, number: int) -> tuple[str, str]:
        """When the question after `number` answers waits: the screen, and that with all that has left it."""
        end = time.monotonic() + 180
        while True:
            whole = self._do("capture-pane", "-p", "-J", "-S", "-")
            if whole.rstrip().endswith("say what to do instead:") and whole.count("you declined") >= number:
                return self._do("capture-pane", "-p", "-J"), whole
            assert time.monotonic() < end, whole[-3000:]
            time.sleep(0.05)

    def press(self, key: str, told: str) -> str:
        """Press a key until the screen shows `told`: at a card, one that comes too early counts for nothing. As soon as
        the input line is back in place of the card, the key has counted, and another one would be a part of a prompt.
        """
        end = time.monotonic() + 180
        time.sleep(GUARD + 0.1)  # the first counts mostly
        again = 0.0
        while told not in self.whole():
            assert time.monotonic() < end, f"waited for {told!r} and saw {self.whole()}"
            if time.monotonic() >= again and not self._has_input_line():
                self.type(key)
                again = time.monotonic() + CAREFUL + 0.5
            time.sleep(0.05)
        return self.until("")

    def _has_input_line(self) -> bool:
        """Return True if the rows at the end are that of a prompt and the status line."""
        rows = self.screen().rstrip().split("\n")[-2:]
        return len(rows) == 2 and rows[0].startswith(">") and "sandbox" in rows[1]

    def until_whole(self, holds: Callable[[str], bool]) -> str:
        """`whole`, once it is as wanted: while a program draws, a screen may be half of one and half of the next."""
        end = time.monotonic() + 60
        while not holds(screen := self.whole()):
            assert time.monotonic() < end, screen
            time.sleep(0.05)
        return screen

    def whole(self) -> str:
        """The screen with what has left it, rows that were wrapped joined again."""
        return self._do("capture-pane", "-p", "-J", "-S", "-")

    def driven(self) -> list[str]:
        """Return the changes that the output made to the terminal itself: its title, its clipboard."""
        title, buffers = self._do("display-message", "-p", "#{pane_title}").strip(), self._do("list-buffers").strip()
        return [f"the title is {title!r}"] * ("owned" in title) + [f"the clipboard holds {buffers!r}"] * bool(buffers)

    def type(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def leave(self) -> None:
        """End a conversation as a person does, at its prompt: while a turn runs, the key would be nobody's."""
        end = time.monotonic() + 180
        while self._do("capture-pane", "-p").rstrip().rpartition("\n")[2] != ">":
            assert time.monotonic() < end, self._do("capture-pane", "-p")
            time.sleep(0.05)
        self.type("C-d")
        self.until("LEFT 0")

    def close(self) -> None:
        self._do("kill-server")
