"""Comparison of `forked_agent` with execve(2): the same output and exit status for every command."""

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
        worker.stdin.write("import os; print(open(f'/proc/{os.getppid()}/stat').read().split()[3])\n")
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
