"""The fast start of plain `agent`: keys are accepted before slow imports, and options are parsed without typer."""

import contextlib
import os
import signal
from collections.abc import Iterator

from runner.frontends.terminal.probe import at_terminal
from runner.problems import ending_signals

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from typing import NoReturn

    from runner.agent.startup import RunArgs


def fits(words: list[str]) -> bool:
    """Return True for plain `agent` with known options, at a terminal that supports drawing."""
    if not at_terminal():
        return False
    from runner.agent.options import options_of

    known = options_of("terminal")  # everything else goes through typer: other options, help, and mistakes
    takes = ""  # the option whose value comes next
    for word in words:
        name, sign, _ = word.partition("=")
        if takes:
            if takes == "--resume" and not (4 <= len(word) <= 16 and set(word) <= set("0123456789abcdef")):
                return False  # not the id of a session: leave it to typer
            takes = ""
        elif name not in known or (sign and not known[name].metavar):
            return False
        elif known[name].metavar and not sign:
            takes = name
    return not takes


def start(words: list[str], prompt: str | None = None) -> int:
    """Run plain `agent` with these options and a first prompt, and return the exit code. Raise CommandChosen."""
    import gc

    with hushed() as early:
        gc.disable()  # imports create no garbage
        from runner.frontends.tui.start import start_terminal

        return start_terminal(lambda: _parsed(words), early, prompt)


@contextlib.contextmanager
def hushed() -> Iterator[str]:
    """Switch the terminal's echo and line editing off, and yield the text that was typed before.

    The terminal has already shown that text, so it is erased there. The terminal's settings are restored at the end.
    """
    import termios

    before = termios.tcgetattr(0)
    quiet = termios.tcgetattr(0)
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    quiet[6][termios.VMIN], quiet[6][termios.VTIME] = 0, 0  # read without waiting for a key

    def leave(number: int, frame: object) -> "NoReturn":  # there is no event loop yet that could handle the signal
        raise SystemExit(128 + number)

    taken = {number: signal.signal(number, leave) for number in ending_signals()}
    try:
        termios.tcsetattr(0, termios.TCSANOW, quiet)
        early = os.read(0, 4096)
        quiet[6][termios.VMIN] = 1
        termios.tcsetattr(0, termios.TCSANOW, quiet)
        if early and before[3] & termios.ECHO:
            os.write(1, b"\r\x1b[2K" + b"\x1b[A\x1b[2K" * early.count(b"\n"))
        if before[0] & termios.ICRNL:  # the terminal had converted Enter to a newline
            early = early.replace(b"\n", b"\r")
        yield early.decode("utf-8", "replace")
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        for number, handler in taken.items():
            signal.signal(number, handler)


def _parsed(words: list[str]) -> "RunArgs":
    from runner.agent.options import Given, options_of
    from runner.agent.startup import run_args
    from runner.sessions.selection import with_value

    known, values = options_of("terminal"), list[tuple[str, str]]()
    queue = with_value(words)
    while queue:
        name, sign, value = queue.pop(0).partition("=")
        values.append((name, value if sign or not known[name].metavar else queue.pop(0)))
    return run_args(Given.of_words("terminal", values))
