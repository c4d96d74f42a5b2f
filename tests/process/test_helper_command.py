"""Tests of a program that prints a key: one line is accepted; everything else is an error that quotes none of it."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.secrets.helper_command import Helper, HelperFailed, ask_helper
from tests.support.agent_program import AGENT
from tests.support.marked_processes import new_nap, processes
from tests.support.waiting import until

CANARY = "sk-canary-90c2e5d1b7fa"
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/"}


# In scripts the key is `$KEY`, so that their words, which are the user's own, do not hold it.
SPLIT = 'KEY=sk-canary-90""c2e5d1b7fa; '


def sh(script: str, seconds: float = 10) -> Helper:
    return Helper(("sh", "-c", SPLIT + script), seconds)


# fmt: off
KEYS = [
    ('echo $KEY',                                        "as echo does"),
    ('printf $KEY',                                      "without a line end"),
    ('printf "$KEY\\r\\n"',                              "with the line end of another system"),
    ('printf " $KEY "',                                  "with blanks around it"),
    ('echo $KEY; echo noise >&2',                        "what is said on stderr does not count"),
    ('echo $KEY; exec >&-; sleep 0.1',                   "stdout is closed before the end"),
    ('sleep 30 & echo $KEY',                             "something is left running that holds stdout"),
    ('printf sk-can; sleep 0.1; printf ${KEY#sk-can}',   "in pieces"),
]
NO_KEYS = [
    ('echo $KEY; echo $KEY',                             "more than one line",       "two lines"),
    ('echo; echo $KEY',                                  "more than one line",       "an empty line first"),
    ('echo $KEY; echo',                                  "more than one line",       "an empty line after it"),
    ("true",                                             "printed nothing",          "nothing"),
    ("echo",                                             "printed nothing",          "an empty line"),
    ("echo '   '",                                       "printed nothing",          "blanks"),
    ("head -c 1000000 /dev/zero | tr '\\0' x",           "more than 8,192",          "1 MB in one line"),
    ('yes $KEY',                                         "more than 8,192",          "no end"),
    ("head -c 8193 /dev/zero | tr '\\0' x",              "characters that a key",    "one character too many"),
    ("head -c 100 /dev/zero",                            "not text",                  "zeroes"),
    ('printf "\\377\\376$KEY"',                          "not text",                  "bytes"),
    ('printf "$KEY\\303\\244"',                          "not text",                  "a letter outside ASCII"),
    ('echo $KEY $KEY',                                   "characters that a key",    "two words"),
    ('printf "$KEY\\033[2J"',                            "characters that a key",    "an escape"),
    ('echo $KEY; exit 3',                                "exit code 3",              "a failure"),
    ('echo $KEY >&2; exit 1',                            "exit code 1",              "an error that quotes the key"),
    ('echo $KEY; kill -9 $$',                            "signal 9",                 "killed"),
    ('echo $KEY; kill -SEGV $$',                         "signal 11",                "crashed"),
]
# fmt: on


@pytest.mark.parametrize(("script", "why"), KEYS, ids=[row[1] for row in KEYS])
def test_one_line_is_the_key(script: str, why: str) -> None:
    assert ask_helper(sh(script), ENVIRON).reveal() == CANARY


@pytest.mark.threat("T81")
@pytest.mark.threat("T20")
@pytest.mark.parametrize(("script", "said", "why"), NO_KEYS, ids=[row[2] for row in NO_KEYS])
def test_everything_else_is_a_problem_that_quotes_nothing(
    script: str, said: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HelperFailed) as caught:
        ask_helper(sh(script), ENVIRON)
    assert said in caught.value.why
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert CANARY not in shown + caught.value.fix
    assert capfd.readouterr() == ("", ""), "nothing that it prints is passed on"


@pytest.fixture
def nap() -> Iterator[str]:
    """A time to sleep that nobody else sleeps, so that it can be found; ended afterwards if it is still there."""
    number = new_nap()
    yield number
    for pid in processes(number):
        os.kill(pid, signal.SIGKILL)


# fmt: off
LASTING = [
    ("sleep NAP",                               0.3,  False, "it hangs"),
    ("sleep NAP & sleep NAP & wait",            0.3,  False, "so do its children"),
    ("trap '' TERM INT HUP; sleep NAP & wait",  0.3,  False, "it ignores what it can"),
    ("exec >&-; sleep NAP",                     0.3,  False, "it closes stdout and hangs"),
    ("echo $KEY; sleep NAP",                     0.3,  False, "it printed the key and hangs"),
    ("sleep NAP & echo $KEY",                    600.0, True,  "its children stay behind"),
    ("sleep NAP & exit 1",                      600.0, False, "the same after a failure"),
]
# fmt: on


@pytest.mark.threat("T81")
@pytest.mark.parametrize(("script", "seconds", "good", "why"), LASTING, ids=[row[3] for row in LASTING])
def test_nothing_of_it_is_left(script: str, seconds: float, good: bool, why: str, nap: str) -> None:
    helper = sh(script.replace("NAP", nap), seconds)
    if good:
        assert ask_helper(helper, ENVIRON).reveal() == CANARY
    else:
        with pytest.raises(HelperFailed, match=r"within 0\.3 seconds|exit code 1"):
            ask_helper(helper, ENVIRON)
    until(lambda: not processes(nap), what="the end of everything that it started")


@pytest.mark.threat("T81")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU]
)
def test_a_signal_that_ends_us_ends_it_too(number: signal.Signals, tmp_path: Path, nap: str) -> None:
    folder = tmp_path / ".config/ringfence"
    folder.mkdir(parents=True)
    line = f'helper = ["/bin/sh", "-c", "trap : TERM HUP; sleep {nap} & wait; wait"]\nhelper_timeout = 600\n'
    (folder / "config.toml").write_text(f"[auth.anthropic]\n{line}")
    agent = AGENT
    # These tests may have been started by nohup, and what is ignored is inherited.
    words = ["/usr/bin/env", f"--default-signal={number.value}", agent, "auth", "status", "anthropic"]
    status = subprocess.Popen(words, env={"HOME": str(tmp_path), "PATH": "/usr/bin"}, cwd=tmp_path)
    until(lambda: processes(nap), of=status)
    status.send_signal(number)
    assert status.wait() == 128 + number
    until(lambda: not processes(nap), what="the end of the helper")


@pytest.mark.threat("T81")
@pytest.mark.threat("T20")
def test_it_is_given_little(tmp_path: Path) -> None:
    """Few variables, an empty input, no terminal, a group of its own, nothing that we have open."""
    seen = tmp_path / "seen"
    script = (
        f"{{ env; echo stdin=$(wc -c); echo pgid=$(ps -o pgid= -p $$) pid=$$; echo cwd=$(pwd); "
        f"ls /proc/self/fd | tr '\\n' ' '; (: </dev/tty) 2>/dev/null && echo terminal; }} > {seen}; echo $KEY"
    )
    given = {
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DBUS_SESSION_BUS_ADDRESS": "unix:path=/x", "LANG": "C.UTF-8",
        "ANTHROPIC_API_KEY": CANARY, "OPENAI_API_KEY": CANARY, "RINGFENCE_MODE": "plan", "GITHUB_TOKEN": CANARY,
        "LD_PRELOAD": "", "PYTHONPATH": "/x", "HTTPS_PROXY": "http://u:p@x", "BASH_ENV": "/x", "XDG_RUNTIME_DIR": "/run/x",
    }  # fmt: skip
    held = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        assert ask_helper(sh(script), given).reveal() == CANARY
    finally:
        os.close(held)
    text = seen.read_text()
    names = {line.partition("=")[0] for line in text.splitlines() if "=" in line}
    assert names - {"stdin", "pgid", "cwd", "PWD", "SHLVL", "_", "OLDPWD"} == {
        "PATH", "HOME", "DBUS_SESSION_BUS_ADDRESS", "LANG", "XDG_RUNTIME_DIR",
    }  # fmt: skip
    assert CANARY not in text
    assert "stdin=0" in text
    assert f"cwd={tmp_path}" in text
    group, pid = text.partition("pgid=")[2].split()[:2]
    assert group == pid.removeprefix("pid=")
    assert f" {held} " not in text.splitlines()[-1] + " "
    assert "terminal" not in text


@pytest.mark.threat("T81")
def test_its_words_never_reach_a_shell(tmp_path: Path) -> None:
    helper = Helper(("printf", "%s", f"$(touch${{IFS}}{tmp_path}/made);`id`|x"))
    with pytest.raises(HelperFailed, match="characters"):
        ask_helper(Helper(("printf", "%s", f"$(touch {tmp_path}/made)")), ENVIRON)
    assert ask_helper(helper, ENVIRON).reveal() == helper.argv[2]
    assert not (tmp_path / "made").exists()


def program(path: Path, text: str = f"#!/bin/sh\necho {CANARY}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.threat("T81")
@pytest.mark.threat("T32")
def test_which_program_it_is(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    own, theirs, loose = (
        program(folder / "show-key") for folder in (home / "bin", project / "bin", tmp_path / "loose")
    )
    loose.parent.chmod(0o777)
    link = home / "link"
    link.symlink_to(theirs)
    (home / "plain").write_text(CANARY)
    environ = {"HOME": str(home), "PATH": f".::bin:{project}/bin:{tmp_path}/loose:/usr/bin:/bin"}
    # fmt: off
    rows = [
        ((str(own),),                    None,                        "a whole path"),
        (("~/bin/show-key",),            None,                        "below the home"),
        (("sh", str(own)),               None,                        "by another program"),
        (("show-key",),                  "no program `show-key`",     "found only where others could put it"),
        (("./show-key",),                "in every folder",           "another one in every folder"),
        (("bin/show-key",),              "in every folder",           "the same"),
        ((str(theirs),),                 "lies in the workspace",     "a program of the project"),
        ((str(link),),                   "lies in the workspace",     "a link to it"),
        (("sh", str(theirs)),            "lies in the workspace",     "a script of the project"),
        (("sh", "../project/bin/show-key"), "lies in the workspace",  "the same, seen from the home, where it starts"),
        (("sh", "-c", f"exec {theirs}"), "lies in the workspace",     "the same in the text of a script"),
        (("sh", "-c", "cat<~/../project/key"), "lies in the workspace", "the same behind a redirection"),
        (("env", f"ENV={theirs}", "sh"), "lies in the workspace",     "a file that a variable names"),
        (("cat", "--", "plain"),         None,                        "a plain name is no path, and may be an entry of a store"),
        (("sh", "-c", f"echo {CANARY} # 1/2"), None,                  "a `/` elsewhere"),
        (("/nonexistent/x",),            "cannot be started",         "not there"),
        ((str(home),),                   "cannot be started",         "a folder"),
        (("sh\0",),                      "no program",                "a name that is none"),
        (("sh", "-c", "echo\0"),         "cannot be started",         "a word that is none"),
        (("",),                          "no program",                "an empty name"),
        ((),                             "no program",                "no words"),
    ]
    # fmt: on
    for argv, said, why in rows:
        if said is None:
            assert ask_helper(Helper(argv), environ, str(project)).reveal() == CANARY, why
        else:
            with pytest.raises(HelperFailed) as caught:
                ask_helper(Helper(argv), environ, str(project))
            assert said in caught.value.why, why
    with_own = {**environ, "PATH": f"{home}/bin:{environ['PATH']}"}
    assert ask_helper(Helper(("show-key",)), with_own, str(project)).reveal() == CANARY


def test_its_key_is_in_no_argument_and_no_environment(tmp_path: Path) -> None:
    """The key is in our memory alone: a process started afterwards is looked at from outside."""
    script = (
        "import os, subprocess, sys; from runner.secrets.helper_command import *;"
        f"ask_helper(Helper(('cat', {str(tmp_path / 'key')!r})), os.environ);"
        "print(subprocess.run(['sh', '-c', 'cat /proc/self/environ /proc/$PPID/environ /proc/$PPID/cmdline'],"
        " capture_output=True).stdout)"
    )
    (tmp_path / "key").write_text(CANARY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=ENVIRON, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "PATH" in done.stdout
    assert CANARY not in done.stdout
