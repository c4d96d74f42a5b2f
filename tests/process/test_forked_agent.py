"""Comparison of `forked_agent` with execve(2): the same output and exit status for every command."""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.cli.command_table import COMMANDS
from tests.support import forked_agent
from tests.support.forked_agent import AGENT
from tests.support.places import ROOT
from tests.support.terminal import Terminal
from tests.support.terminal_screen import ScreenTerminal

SCRIPT = '[[turn]]\ncalls = [{ name = "bash", arguments = { command = "ls; echo $?" } }]\n[[turn]]\ntext = "Done."\n'
# fmt: off
ROWS: list[tuple[tuple[str, ...], str, int]] = [
    (("--version",),                                          "",                    0),
    (("--help",),                                             "",                    0),
    (("nonsense",),                                           "",                    2),
    (("exec", "--mode", "trust-project", "cat; exit 7"),      "from the input\n",    7),
    (("exec", "--unattended", "cat ~/.ssh/id_rsa"),           "",                    3),
    (("why", "cat /etc/shadow"),                              "",                    0),
    (("run", "--model", "scripted:../script.toml", "hi"),          "",                    0),
    (("ci", "--model", "scripted:../script.toml", "hi"),           "",                    0),
    (("web", ""),                                             "",                    2),
    (("repo", "ext::sh", "hi"),                               "",                    2),
    (("batch", "check", "-"),                                 '{"prompt": "hi"}\n',  0),
    (("sandbox", "show"),                                     "",                    0),
    (("policy", "matrix"),                                    "",                    0),
    (("profile", "learn", "--", "true"),                      "",                    0),
    (("apply", "missing.patch"),                              "",                    2),
    (("audit", "list"),                                       "",                    0),
    (("sessions", "list"),                                    "",                    0),
    (("auth", "login", "openai"),                             "two\nlines\n",        1),
    (("config", "show"),                                      "",                    0),
    (("init",),                                               "",                    0),
    (("trust", "show"),                                       "",                    0),
    (("agents", "list"),                                      "",                    0),
    (("agents", "show", "explore"),                           "",                    0),
    (("grants", "list"),                                      "",                    0),
    (("bundle", "list"),                                      "",                    0),
    (("jobs", "list"),                                        "",                    0),
    (("memory", "list"),                                      "",                    0),
    (("guard", "claude", "--no-canary"),                      "",                    1),
    (("mcp", "list"),                                         "",                    0),
    (("hooks", "list"),                                       "",                    0),
    (("mcp", "logout", "--all"),                              "",                    0),
    (("approve",),                                            "",                    2),
    (("attach", "nothex"),                                    "",                    2),
    (("ps",),                                                 "",                    0),
    (("logs", "3f2a"),                                        "",                    2),
    (("stop", "--all"),                                       "",                    0),
    (("detach", "3f2a"),                                      "",                    2),
    (("processes", "list"),                                   "",                    0),
    (("serve", "--stop"),                                     "",                    0),
    (("ports", "close", "8080"),                              "",                    1),
    (("undo",),                                               "",                    1),
    (("acp", "--model", "scripted:../script.toml"),           "",                    0),
    (("doctor", "--json"),                                    "",                    0),
    (("demo", "--help"),                                      "",                    0),
]
# fmt: on


@pytest.mark.parametrize(("words", "given", "code"), ROWS, ids=[" ".join(row[0]) for row in ROWS])
def test_both_answer_alike(tmp_path: Path, words: tuple[str, ...], given: str, code: int) -> None:
    home, work = tmp_path / "home", tmp_path / "home" / "work"
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_COLOR": "1"}
    answers, left = [], []
    for run in (subprocess.run, forked_agent.run):
        shutil.rmtree(home, ignore_errors=True)
        work.mkdir(parents=True)
        (home / "script.toml").write_text(SCRIPT)
        done = run([AGENT, *words], cwd=work, env=environ, input=given, capture_output=True, text=True)
        answers.append((done.returncode, masked(done.stdout), masked(done.stderr)))
        left.append(folders(home))
    assert answers[0] == answers[1]
    assert left[0] == left[1]
    assert answers[0][0] == code, answers[0]


def folders(home: Path) -> list[str]:
    """Return the folders that a command left, without those for a helper that is prepared while the model answers: they
    are made only if the answer takes long enough.
    """
    found = (path.relative_to(home) for path in home.rglob("*") if path.is_dir())
    return sorted(str(path) for path in found if not {"workspaces", "transactions"} & {*path.parts})


def masked(text: str) -> str:
    """Return `text` without times, and without the ids and hashes that are other ones in each run."""
    return re.sub(r'[0-9a-f]{8,}|"seconds":[0-9.]+|[0-9.]+ m?s\b|\d\d:\d\d(:\d\d)?', "#", text)


def test_every_command_has_a_row() -> None:
    assert set(COMMANDS) <= {words[0] for words, *_ in ROWS}


def test_a_program_is_given_the_same_process() -> None:
    """Descriptors, environment, arguments, umask, signals, limits, session and the modules' search path."""
    program = (
        "import os, resource, signal, sys\n"
        "print(os.getsid(0), os.nice(0), os.sched_getaffinity(0), [resource.getrlimit(each) for each in range(16)])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), open('/proc/self/oom_score_adj').read())\n"
        # without the controller that only counts: `make durations` counts each worker of the tests by itself
        "print([line for line in open('/proc/self/cgroup') if ':cpuacct:' not in line])\n"
        "print(sorted(os.environ.items()), sys.argv, os.getcwd(), sorted(os.listdir('/proc/self/fd'))[:-1], sys.path)\n"
        "print([each for each in signal.Signals if signal.getsignal(each) is signal.SIG_IGN], os.umask(0), os.getpgid(0))\n"
        "print([getattr(sys, each).encoding for each in ('stdin', 'stdout', 'stderr')], sys.stdin.errors, sys.stdout.errors)\n"
        "print(repr(sys.stdin.read()), file=sys.stderr); sys.exit('the end')"
    )
    for environ in ({"A": "ä"}, {"LC_ALL": "C.UTF-8"}, {"LANG": "en_US.UTF-8"}, {"PYTHONUTF8": "1"}):
        answers = []
        for run in (subprocess.run, forked_agent.run):
            done = run(
                [sys.executable, "-c", program, "a b"], env=environ, cwd="/", input=b"\xff\r\nx", capture_output=True
            )
            answers.append((done.returncode, done.stdout.decode(), done.stderr))
        assert answers[0] == answers[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_program_of_another_user_is_given_the_same_process() -> None:
    """User and groups, capabilities, and the owner of /proc/self, which allows a user namespace of one's own."""
    program = (
        "import os\n"
        "print(os.getresuid(), os.getresgid(), os.getgroups(), os.stat('/proc/self/stat').st_uid)\n"
        "print([line for line in open('/proc/self/status') if line.startswith(('Cap', 'NoNewPrivs', 'Seccomp', 'Groups'))])\n"
    )
    other: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": [65533]}
    for who in ({}, {"user": 65534}, other):
        answers = [
            run([sys.executable, "-c", program], env={}, cwd="/", capture_output=True, text=True, **who)
            for run in (subprocess.run, forked_agent.run)
        ]
        assert (answers[0].stdout, answers[0].stderr) == (answers[1].stdout, answers[1].stderr)
        assert answers[0].stdout


def test_a_process_is_like_any_other_for_its_parent() -> None:
    program = "import os; print(os.getsid(0) == os.getpid(), flush=True); print(input()); input()"
    for start in (subprocess.Popen, forked_agent.Process):
        words = [sys.executable, "-c", program]
        with start(words, env={}, stdin=-1, stdout=-1, text=True, start_new_session=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait() == -signal.SIGTERM
        assert start(words, env={}, stdin=-1, stdout=-1, stderr=-1, text=True).communicate("a\n")[0] == "False\na\n"


def test_a_program_is_given_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session, the controlling terminal and its modes, the groups of processes, signals and descriptors.

    A key that interrupts ends the process by the signal of the terminal.
    """
    program = (
        "import os, signal, subprocess, sys, termios\n"
        "print([os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.tcgetpgrp(0) == os.getpid()])\n"
        "here, device = os.ttyname(0), os.stat('/dev/tty').st_rdev\n"
        "print([os.ttyname(each) == here for each in (1, 2)], os.isatty(os.open('/dev/tty', os.O_RDWR)), device)\n"
        "print(subprocess.getoutput('tty') == here, os.get_terminal_size(), termios.tcgetattr(0))\n"
        "ps = subprocess.getoutput(f'ps -o sid=,pgid=,tpgid=,tty= -p {os.getpid()}').split()\n"
        "print([each == str(os.getpid()) for each in ps[:3]], f'/dev/{ps[3]}' == here)\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), [str(signal.getsignal(each)) for each in signal.Signals])\n"
        "print([line for line in open('/proc/self/status') if line.startswith(('Sig', 'Shd'))])\n"
        "print(sorted(os.listdir('/proc/self/fd'))[:-1], sorted(os.environ.items()), os.umask(0))\n"
        "each = (sys.stdin, sys.stdout, sys.stderr)\n"
        "print([(file.encoding, file.errors, file.line_buffering, file.isatty(), file.name, file.mode) for file in each])\n"
        "print('read', repr(input('a line? ')), sys.stdin.readline(), flush=True)\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL); print('waits'); signal.pause()"
    )
    monkeypatch.setattr("tests.support.terminal.AGENT", sys.executable)  # the command that a terminal forks
    words = [sys.executable, "-c", program]
    environ = {"TERM": "xterm", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
    for other in (False, True) if os.geteuid() == 0 else (False,):
        answers = []
        for execve in (True, False):
            terminal = Terminal(words, Path("/"), environ, size=(97, 31), other=other, execve=execve)
            with contextlib.closing(terminal):
                terminal.until("a line? ")
                terminal.type("one\rtwo\r")
                terminal.until("waits")
                assert os.getsid(terminal.pid) == terminal.pid
                terminal.type("\x03")
                answers.append((terminal.end(), terminal.seen))
        assert answers[0] == answers[1]
        assert answers[0][0] == 128 + signal.SIGINT


PROMPT = r"\n>\n\Z"
# fmt: off
AT_A_TERMINAL: list[tuple[tuple[str, ...], dict[str, str], list[tuple[str, str]], int]] = [
    (("exec", "touch new; stty size; tty"),           {},                      [(r"allow once\? \[", "y\r")], 0),
    (("exec", "touch new"),                           {},                      [(r"allow once\? \[", "\x03")], 130),
    (("--plain", "--model", "scripted:../script.toml"), {},                    [(PROMPT, "/cost\r"), (f"received.*{PROMPT}", "\x04")], 0),
    (("--model", "scripted:../script.toml"),          {},                      [(r"\? help", "/cost\r"), ("received", "\x04")], 0),
    (("--model", "scripted:../script.toml"),          {"NO_COLOR": "1"},       [(r"\? help", "\x04")], 0),
    (("why", "rm -rf /"),                             {"COLUMNS": "70"},       [], 0),
    (("nonsense",),                                   {"TERM": "dumb"},        [], 2),
]
# fmt: on


@pytest.mark.parametrize(
    ("words", "more", "keys", "code"),
    AT_A_TERMINAL,
    ids=[" ".join([*row[0], *row[1]]) + repr(row[2][-1:]) for row in AT_A_TERMINAL],
)
def test_both_show_the_same_at_a_terminal(
    tmp_path: Path, words: tuple[str, ...], more: dict[str, str], keys: list[tuple[str, str]], code: int
) -> None:
    home = tmp_path / "home"
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more}
    answers = []
    for execve in (True, False):
        shutil.rmtree(home, ignore_errors=True)
        (home / "work").mkdir(parents=True)
        (home / "script.toml").write_text(SCRIPT)
        screen = ScreenTerminal(home / "work", environ, AGENT, *words, size=(100, 40), execve=execve)
        with contextlib.closing(screen):
            for text, key in keys:
                screen.until_screen(lambda shown, text=text: re.search(text, f"{shown.rstrip()}\n", re.DOTALL))
                screen.type(key)
            screen.until(f"LEFT {code}")
            answers.append((masked(screen.whole()), screen.styles()))
    assert answers[0] == answers[1]


CLIENT = """
import sys
from tests.support import forked_agent
forked_agent.SERVER = forked_agent.SERVER.replace("\\nimported()\\n", "\\n")  # the imports take seconds
for line in sys.stdin:
    print(forked_agent.run([sys.executable, "-c", line], capture_output=True, text=True).stdout, end="", flush=True)
"""


def test_the_workers_of_a_run_share_a_server_that_ends_with_the_last_of_them(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "PYTEST_XDIST_TESTRUNUID": "a-run"}
    words = [sys.executable, "-c", CLIENT]
    workers = [subprocess.Popen(words, env=environ, cwd=ROOT, stdin=-1, stdout=-1, text=True) for _ in range(3)]

    def server_of(worker: "subprocess.Popen[str]") -> int:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("import os; print(os.getppid())\n")
        worker.stdin.flush()
        return int(worker.stdout.readline())

    (server,) = {server_of(each) for each in workers}
    end = os.pidfd_open(server)
    for each in workers[:2]:
        each.kill()
        each.communicate()
    assert server_of(workers[2]) == server
    workers[2].communicate()
    select.select([end], [], [])
    os.close(end)
    assert list(tmp_path.iterdir()) == []


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked_agent.run([sys.executable, "-c", "import time; time.sleep(600)"], capture_output=True, timeout=0.5)
