"""Comparison of `forked_agent` with execve(2): the same output and exit status for every command."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.cli.command_table import COMMANDS
from tests.support import forked_agent
from tests.support.forked_agent import AGENT

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
        done = run([AGENT, *words], cwd=work, env=environ, input=given, capture_output=True, text=True, timeout=120)
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
    """Descriptors, environment, arguments, umask, signals and the modules' search path."""
    program = (
        "import os, signal, sys\n"
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


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked_agent.run([sys.executable, "-c", "import time; time.sleep(600)"], capture_output=True, timeout=0.5)
