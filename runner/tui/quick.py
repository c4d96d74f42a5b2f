"""The shortest way from `agent` to a terminal that takes keys: without typer, and before anything heavy is imported."""

import contextlib
import os
import signal
from collections.abc import Iterator

from runner.ending_signals import ending_signals
from runner.tui.ground import at_terminal

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from typing import NoReturn

    from runner.run_options import RunArgs

# option: whether it takes a value. Everything else goes through typer, which knows all of them, help, and mistakes.
_OPTIONS = {
    "--mode": True,
    "--model": True,
    "--provider": True,
    "--fallback-model": True,
    "--cwd": True,
    "--limit": True,
    "--config": True,
    "--backend": True,
    "--accept-partial": False,
    "--require": True,
    "--continue": False,
    "-c": False,
    "--resume": True,
    "--fork": True,
    "--no-session": False,
    "--trust-config": True,
    "--no-instructions": False,
    "--account": True,
}


def fits(words: list[str]) -> bool:
    """Whether this is plain `agent` at a terminal that can be drawn on, with options that are read here."""
    if not at_terminal():
        return False
    takes = ""  # the option whose value comes next
    for word in words:
        name, sign, _ = word.partition("=")
        if takes:
            if takes == "--resume" and not (4 <= len(word) <= 16 and set(word) <= set("0123456789abcdef")):
                return False  # no id, as with_value of sessions.flags has it: another mistake, or another command
            takes = ""
        elif name not in _OPTIONS or (sign and not _OPTIONS[name]):
            return False
        elif _OPTIONS[name] and not sign:
            takes = name
    return not takes


def start(words: list[str]) -> int:
    """Plain `agent` with these options; answers the exit code."""
    import gc

    with hushed() as early:
        gc.disable()  # what is imported stays, and none of it is garbage
        from runner.tui.start import start_terminal

        return start_terminal(lambda: _parsed(words), early)


@contextlib.contextmanager
def hushed() -> Iterator[str]:
    """The terminal shows nothing by itself and keeps what is typed, as it is typed, for whoever reads it first.

    Gives what was typed before, which the terminal has shown already: that is wiped away.
    """
    import termios

    before = termios.tcgetattr(0)
    quiet = termios.tcgetattr(0)
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    quiet[6][termios.VMIN], quiet[6][termios.VTIME] = 0, 0  # a look, and no wait for a key
    taken = {number: signal.signal(number, _leave) for number in ending_signals()}
    try:
        termios.tcsetattr(0, termios.TCSANOW, quiet)
        early = os.read(0, 4096)
        quiet[6][termios.VMIN] = 1
        termios.tcsetattr(0, termios.TCSANOW, quiet)
        if early and before[3] & termios.ECHO:
            os.write(1, b"\r\x1b[2K" + b"\x1b[A\x1b[2K" * early.count(b"\n"))
        if before[0] & termios.ICRNL:  # what came as Enter
            early = early.replace(b"\n", b"\r")
        yield early.decode("utf-8", "replace")
    finally:
        with contextlib.suppress(termios.error):  # it is gone
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        for number, handler in taken.items():
            signal.signal(number, handler)


def _leave(number: int, frame: object) -> "NoReturn":
    """Take a signal while no event loop is there to take it."""
    raise SystemExit(128 + number)


def _parsed(words: list[str]) -> "RunArgs":
    from runner.gate_args import least, parse_backend, parse_mode
    from runner.key_flags import KeyFlags
    from runner.run_options import RunArgs
    from runner.sessions.flags import go_on, with_value

    given: dict[str, list[str]] = {}
    queue = with_value(words)
    while queue:
        name, sign, value = queue.pop(0).partition("=")
        given.setdefault(name, []).append(value if sign or not _OPTIONS[name] else queue.pop(0))

    def last(name: str) -> str | None:
        return given[name][-1] if name in given else None

    latest = "-c" in given or "--continue" in given
    return RunArgs(
        parse_mode(last("--mode")),
        last("--model"),
        last("--provider"),
        cwd=last("--cwd"),
        limits=tuple(given.get("--limit", ())),
        config=last("--config"),
        backend=parse_backend(last("--backend")),
        least=least("--accept-partial" in given, last("--require")),
        go_on=go_on(latest, last("--resume"), last("--fork"), "--no-session" in given),
        trust_config=last("--trust-config"),
        no_instructions="--no-instructions" in given,
        key=KeyFlags(last("--account")),
        fallback=last("--fallback-model"),
    )
