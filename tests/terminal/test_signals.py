"""Tests of signals that end the program: the terminal is restored and no command is left, on a real pseudo-terminal."""

import fcntl
import os
import pty
import select
import shlex
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.agent_program import AGENT, impatient
from tests.support.marked_processes import new_nap, processes
from tests.support.waiting import until

ENDING = [
    "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGABRT",
    "SIGIO", "SIGPWR", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX",
]  # fmt: skip
# Sequences that switch a mode of the terminal on, and those that switch it off again.
SWITCHES = [("\x1b[?2004h", "\x1b[?2004l"), ("\x1b[>1u", "\x1b[<u"), ("\x1b[>4;1m", "\x1b[>4;0m"), ("\x1b[?25l", "\x1b[?25h")]  # fmt: skip


def _take_all() -> None:
    """Undo what a shell does to a suite that runs in the background: SIGINT, SIGQUIT and SIGHUP may be ignored there."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _take_terminal() -> None:
    """Make standard input the terminal of this session, as a login does."""
    _take_all()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Window:
    """`agent` in a pseudo-terminal of its own session, which stays open behind it; `seen` is all that it wrote."""

    def __init__(
        self,
        base: Path,
        *words: str,
        command: str,
        editor: str = "",
        shell: bool = False,
        program: Sequence[str] = (AGENT,),
    ) -> None:
        self.seen = ""
        (base / "w").mkdir()
        (base / "home").mkdir()
        script = base / "s.toml"
        script.write_text(f"[[turn]]\ncalls = [{{ name = 'bash', arguments = {{ command = '{command}' }} }}]\n")
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        environ = {"HOME": str(base / "home"), "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        if editor:
            environ["EDITOR"] = str(base / "editor")
            (base / "editor").write_text(f"#!/bin/sh\n{editor}\n")
            (base / "editor").chmod(0o700)
        run = [*program, *(word.replace("SCRIPT", str(script)) for word in words)]
        self.run = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"] if shell else run,
            cwd=base / "w", env=environ, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            preexec_fn=_take_terminal if shell else _take_all,  # this process has no other threads
        )  # fmt: skip
        if shell:
            self.type(f"{shlex.join(run)}\n")

    def read(self) -> None:
        """Take the output that is there."""
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536).decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait(self, condition: Callable[[], object], *, after: bool = False) -> None:
        """Wait until a condition holds, as long as the program runs; with `after`, also after its end."""

        def holds() -> object:
            self.read()
            return condition()

        until(holds, of=None if after else self.run, what=lambda: f"the event: {self.seen[-3000:]!r}")

    def reads_keys(self) -> bool:
        """Return True if a program that a shell started has the terminal, and takes single keys from it."""
        canonical = termios.tcgetattr(self.slave)[3] & termios.ICANON
        return os.tcgetpgrp(self.master) != self.run.pid and not canonical

    def close(self) -> None:
        if self.run.poll() is None:
            self.run.kill()
            self.run.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def windows() -> Iterator[list[Window]]:
    made: list[Window] = []
    yield made
    for each in made:
        each.close()


def _as_before(window: Window) -> None:
    marker = "all that the program wrote has been read"
    os.write(window.slave, marker.encode())
    window.wait(lambda: marker in window.seen, after=True)
    assert termios.tcgetattr(window.slave) == window.before
    for on, off in SWITCHES:
        assert window.seen.rfind(on) <= window.seen.rfind(off), f"{on!r} stays"


@pytest.mark.threat("T28")
@pytest.mark.parametrize("name", ENDING)
def test_a_signal_leaves_the_terminal_as_it_was_and_no_command(
    name: str, tmp_path: Path, windows: list[Window]
) -> None:
    number = int(getattr(signal, name))
    nap = new_nap()
    window = Window(tmp_path, "--model", "scripted:SCRIPT", "--mode", "trust-project", command=f"sleep {nap}")
    windows.append(window)
    window.wait(lambda: "\x1b[>1u" in window.seen)
    window.type("go\r")
    window.wait(lambda: processes(nap))
    assert termios.tcgetattr(window.slave) != window.before
    os.kill(window.run.pid, number)
    window.wait(lambda: window.run.poll() is not None)
    assert window.run.returncode == 128 + number
    _as_before(window)
    window.wait(lambda: not processes(nap), after=True)


@pytest.mark.threat("T28")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGQUIT", "SIGUSR1", "SIGRTMIN"])
@pytest.mark.parametrize(
    "words", [("--plain", "--model", "scripted:SCRIPT", "--mode", "default"), ("run", "go", "--model", "scripted:SCRIPT")],
    ids=["plain", "run"],
)  # fmt: skip
def test_a_signal_in_a_question_does_too(
    words: tuple[str, ...], name: str, tmp_path: Path, windows: list[Window]
) -> None:
    window = Window(tmp_path, *words, command="curl https://example.test/")
    windows.append(window)
    if words[0] == "--plain":
        window.wait(lambda: termios.tcgetattr(window.slave) != window.before)
        window.type("go\r")
    window.wait(lambda: "example.test" in window.seen and termios.tcgetattr(window.slave) != window.before)
    os.kill(window.run.pid, int(getattr(signal, name)))
    window.wait(lambda: window.run.poll() is not None)
    assert window.run.returncode == 130
    _as_before(window)


@pytest.mark.thorough
@pytest.mark.threat("T28")
def test_a_signal_at_any_moment_of_the_start_leaves_the_terminal_as_it_was(
    tmp_path: Path, windows: list[Window]
) -> None:
    for number in range(12):
        base = tmp_path / str(number)
        base.mkdir()
        window = Window(base, "--model", "scripted:SCRIPT", command="true")
        windows.append(window)
        if number:
            window.wait(lambda window=window: termios.tcgetattr(window.slave) != window.before)
            time.sleep(number * 0.03)  # anywhere in what follows
        os.kill(window.run.pid, signal.SIGUSR1)
        window.wait(lambda window=window: window.run.poll() is not None)
        _as_before(window)


@pytest.mark.threat("T28")
def test_a_stop_gives_the_terminal_back_first(tmp_path: Path, windows: list[Window]) -> None:
    """The group of this process is orphaned, so SIGTSTP does not stop it (POSIX, 2.4.3): it goes on at once."""
    window = Window(tmp_path, "--model", "scripted:SCRIPT", command="true")
    windows.append(window)
    window.wait(lambda: "\x1b[>1u" in window.seen)
    os.kill(window.run.pid, signal.SIGTSTP)
    window.wait(
        lambda: "\x1b[?2004l" in window.seen and window.seen.rfind("\x1b[>1u") > window.seen.rfind("\x1b[<u") > 0
    )
    os.kill(window.run.pid, signal.SIGTERM)
    window.wait(lambda: window.run.poll() is not None)
    _as_before(window)


RAW = "stty raw -echo < /dev/stdin; printf '\\033[?1049h\\033[?25l'; echo EDITING"
STAYS = "trap '' TERM; sleep {0}"
# fmt: off
EDITORS: list[tuple[str, str, str]] = [
    ("SIGTERM",  "sleep {0}",                                                "an editor that goes at once and leaves its screen"),
    ("SIGHUP",   "trap \"printf '\\033[?1049l\\033[?25h'; exit 1\" TERM; while :; do sleep 0.1; done", "one that gives the terminal back"),
    ("SIGQUIT",  STAYS,                                                      "one that does not want to go"),
    ("SIGUSR1",  "sleep {0} & wait",                                         "a script that calls another program"),
    ("SIGXCPU",  "kill -STOP $$",                                            "one that is stopped"),
]
# fmt: on


@pytest.mark.threat("T28")
@pytest.mark.parametrize(("name", "editor", "why"), EDITORS, ids=[row[2] for row in EDITORS])
def test_a_signal_ends_the_editor_that_has_the_terminal(
    name: str, editor: str, why: str, tmp_path: Path, windows: list[Window]
) -> None:
    nap = new_nap()
    # Nothing but the end of the time for leaving makes this editor go, when it is killed.
    program = impatient("runner.frontends.tui.external_editor", "_PATIENCE", 0.3) if editor == STAYS else [AGENT]
    editor = f"{RAW}; {editor.format(nap)}"
    window = Window(tmp_path, "--model", "scripted:SCRIPT", command="true", editor=editor, program=program)
    windows.append(window)
    window.wait(lambda: "sandbox" in window.seen)
    window.type("hello\x07")
    window.wait(lambda: "EDITING" in window.seen)
    os.kill(window.run.pid, int(getattr(signal, name)))
    window.wait(lambda: window.run.poll() is not None)
    assert window.run.returncode == 128 + int(getattr(signal, name)), why
    _as_before(window)
    assert window.seen.rfind("\x1b[?1049h") < window.seen.rfind("\x1b[?1049l")
    window.wait(lambda: not processes(nap), after=True)


@pytest.mark.threat("T28")
@pytest.mark.parametrize("plain", [False, True])
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back(
    plain: bool, tmp_path: Path, windows: list[Window]
) -> None:
    """The signal comes from an editor, which stops its whole group, or from the question of `--plain`."""
    editor = f'{RAW}; stty sane < /dev/stdin; kill -TSTP 0; echo RESUMED; echo from there >> "$1"'
    words = ("--model", "scripted:SCRIPT", *(("--plain",) if plain else ()))
    window = Window(tmp_path, *words, command="echo did it", editor=editor, shell=True)
    windows.append(window)
    window.wait(lambda: ("/quit to leave" if plain else "sandbox") in window.seen and window.reads_keys())
    window.type("\x1a" if plain else "hello \x07")
    window.wait(lambda: "Stopped" in window.seen)
    window.type("echo $((6*7))nd\n")
    window.wait(lambda: "42nd" in window.seen)
    window.type("fg\n")
    if plain:
        window.wait(window.reads_keys)
        window.type("go\r")
        window.wait(lambda: "did it" in window.seen)
    else:
        window.wait(lambda: "from there" in window.seen)
