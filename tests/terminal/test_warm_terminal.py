"""Warm commands at a terminal: what a user sees and types is the same as without the resident process."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.resident_process import resident, served, short_place
from tests.support.terminal import Terminal


@pytest.fixture(scope="module")
def place() -> Iterator[CliHarness]:
    """Yield a user whose resident process runs."""
    with short_place() as made, resident(made):
        yield made


@pytest.fixture(scope="module")
def cold_place() -> Iterator[CliHarness]:
    """Yield a user without a resident process."""
    with short_place() as made:
        yield made


def shell(screen: Terminal) -> None:
    """Use a shell: its size, a key that interrupts, the alternate screen, and the end of input."""
    prompt = "\x1b[?2004hbash-"
    screen.until(prompt)
    screen.type("stty size; tty | sed 's/[0-9]*$//'; test -t 0 -a -t 1 && echo both\r")
    screen.until(prompt, 2)
    screen.type("echo be''gun; read x; until stty size | grep '31 97'; do sleep 0.1; done\r")
    screen.until("begun")
    screen.set_size(97, 31)
    screen.type("\r")
    screen.until(prompt, 3)
    screen.type("echo re''ady; cat\r")
    screen.until("ready")
    screen.type("here\r")
    screen.until("here\r\n", 2)  # the terminal shows what is typed, and the program what it read
    screen.type("\x03")
    screen.until(prompt, 4)
    screen.type("echo left $?\r")
    screen.until(prompt, 5)
    screen.type("exit 9\r")


def question(screen: Terminal) -> None:
    """Answer the question about a command with yes."""
    screen.until("allow once? [")
    screen.type("y\r")


def refusal(screen: Terminal) -> None:
    screen.until("allow once? [")
    screen.type("n\r")


def interrupt(screen: Terminal) -> None:
    screen.until("allow once? [")
    screen.type("\x03")


def nothing(screen: Terminal) -> None:
    return


ROWS: list[tuple[str, tuple[str, ...], Callable[[Terminal], None], int]] = [
    ("a shell", ("exec", "--mode", "trust-project", "bash --norc"), shell, 9),
    ("a command", ("exec", "ls; test -t 1 && echo here"), nothing, 0),
    ("yes to a question", ("exec", "touch new; ls"), question, 0),
    ("no to a question", ("exec", "touch new"), refusal, 3),
    ("Ctrl-C in a question", ("exec", "touch new"), interrupt, 130),
    ("an explanation in colour", ("why", "rm -rf /"), nothing, 0),
]


def seen(
    place: CliHarness, words: tuple[str, ...], play: Callable[[Terminal], None], *, execve: bool
) -> tuple[int, str, list[str]]:
    """Return the exit code, what the terminal showed, and the files of the workspace."""
    (place.work / "new").unlink(missing_ok=True)
    environ = {**place.environ, "TERM": "xterm-256color"}
    screen = Terminal([AGENT, *words], place.work, environ, size=(80, 24), execve=execve)
    with contextlib.closing(screen):
        play(screen)
        code = screen.end()
    text = re.sub(r"[0-9a-f]{8,}|rf-\w+|\d+(\.\d+)? m?s\b", "#", screen.seen)
    return code, text, sorted(os.listdir(place.work))


@pytest.mark.parametrize(("words", "play", "code"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_terminal_shows_and_takes_the_same(
    cold_place: CliHarness, place: CliHarness, words: tuple[str, ...], play: Callable[[Terminal], None], code: int
) -> None:
    cold = seen(cold_place, words, play, execve=False)
    before = served(place)
    warm = seen(place, words, play, execve=True)
    assert served(place) == before + 1
    assert cold == warm
    assert cold[0] == code, cold[1]


def test_a_job_in_the_background_of_a_terminal_runs_cold(place: CliHarness) -> None:
    """Only its own process can be stopped when it reads from the terminal."""
    script = f"set -m; '{AGENT}' exec 'echo back' & wait; '{AGENT}' exec 'echo front'; exit 0"
    before = served(place)
    screen = Terminal(["/bin/bash", "-c", script], Path(place.work), {**place.environ, "TERM": "xterm"})
    with contextlib.closing(screen):
        screen.until("front\r\n")
        assert screen.end() == 0
    assert "back\r\n" in screen.seen
    assert served(place) == before + 1
