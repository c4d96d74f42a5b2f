"""The queries for the terminal's background and identity. The terminal may answer late or never.

The queries are OSC 11 with `?` and DA2 (XTerm Control Sequences), followed by DA1, which every terminal answers and
which therefore marks the end of the replies. Nothing waits for a reply, and no part of a reply is taken for keys
(Intake).
"""

import io
import os
import re
import select
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.frontends.terminal.input import Intake

_COLOUR, _WHO = "\x1b]11;?\x1b\\", "\x1b[>c\x1b[c"
_CUTS = re.compile(r">(?:41;[0-9]+;0|1;10;0)c\Z")  # the replies of xterm and mosh; SOURCE: xterm 379, mosh 1.4.0
_LAST = 0.3  # seconds to wait for a reply when the program ends: a later reply would be typed into the shell
_FORGOTTEN = 3.0  # seconds after which no reply is expected any more
_ANSWER = r"11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})(?:/[0-9a-fA-F]{1,4})?"


class TerminalProbe:
    """The facts about the terminal that are learned from its replies.

    Attributes:
        light: True for a light background; None until the terminal has replied.
        cuts: True if the terminal cuts rows that no longer fit the window instead of wrapping them.
        question: The control sequences to write to the terminal, or empty.
    """

    def __init__(self, environ: Mapping[str, str], changed: Callable[[], None]) -> None:
        term = environ.get("TERM", "")
        # The Linux console and GNU screen print unknown sequences, or do not answer.
        silent = term in ("", "dumb", "linux") or (term.startswith("screen") and "TMUX" not in environ)
        self.question = "" if silent else _WHO if environ.get("NO_COLOR") else _COLOUR + _WHO
        self.cuts = False
        self.light: bool | None = None
        self._changed = changed
        self._awaited = bool(self.question)
        self._asked = time.monotonic()

    def heard(self, answer: str) -> None:
        """Store the facts of a reply that `Intake` received, and call `changed` if one of them became known."""
        if answer.startswith("?"):
            self._awaited = False
        elif _CUTS.match(answer):
            self.cuts = True
            self._changed()
        elif (light := is_light(answer)) is not None:
            self.light = light
            self._changed()

    def settle(self, input: "Intake") -> None:
        """Wait at most `_LAST` seconds for missing replies, and drop keys that are pressed meanwhile."""
        now = time.monotonic()
        if not self._awaited or now - self._asked > _FORGOTTEN:
            return
        end = now + _LAST
        with input.raw_mode():
            while self._awaited and not input.closed and (rest := end - time.monotonic()) > 0:
                if select.select([input.fileno()], [], [], rest)[0]:
                    input.read_keys()


def is_light(answer: str) -> bool | None:
    """Return True if the colour in a reply is bright (ITU-R BT.601); None if the text is not a reply with a colour."""
    match = re.fullmatch(_ANSWER, answer)
    if match is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in match.groups())
    return bool(0.299 * red + 0.587 * green + 0.114 * blue > 0.5)


def at_terminal() -> bool:
    """Return True if input and output are a terminal that can draw more than lines."""
    return os.environ.get("TERM", "dumb") != "dumb" and os.isatty(0) and os.isatty(1)


def spell_out() -> None:
    """Restrict standard output to ASCII, with escapes, if the locale is `LC_ALL=C` or `POSIX`.

    Python uses UTF-8 for these locales (PEP 540). The terminal would show question marks, or take parts of characters
    for control codes.
    """
    if os.environ.get("LC_ALL") in ("C", "POSIX") and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="ascii", errors="backslashreplace")
