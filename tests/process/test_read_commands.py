"""Tests that the commands of `runner/cli/reading.py` and the help page answer exactly as typer does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_help import page
from runner.cli.audit_filters import FILTERS
from runner.cli.audit_query import MANY, ONCE, SWITCHES
from runner.cli.help_page import PAGE
from tests.support import forked_agent
from tests.support.cli_harness import CliHarness

BY_TYPER = """
import sys
from runner.cli.app import run_app
from runner.cli.main import _failed, _open_standard_streams
_open_standard_streams()
try:
    code = run_app(sys.argv[1:])
    sys.stdout.flush()
except Exception as error:
    code = _failed(error)
sys.exit(code)
"""

# words, exit code
# fmt: off
LINES: list[tuple[tuple[str, ...], int]] = [
    (("policy",),                                          0),
    (("policy", "--json"),                                 0),
    (("policy", "matrix"),                                 0),
    (("policy", "matrix", "--json"),                       0),
    (("policy", "--json", "matrix"),                       2),
    (("policy", "matrix", "--json=1"),                     2),
    (("policy", "matrix", "--jso"),                        2),
    (("policy", "matrix", "more"),                         2),
    (("policy", "matrix", "--"),                           0),
    (("policy", "matrx"),                                  2),
    (("policy", "matrix", "--help"),                       0),
    (("policy", "judge"),                                  0),
    (("policy", "judge", "--unattended", "--mode=plan"),   0),
    (("policy", "judge", "--mode", "nonsense"),            2),
    (("policy", "judge", "--cwd", "/missing"),             2),
    (("policy", "judge", "--config", "missing.toml"),      2),
    (("policy", "judge", "--json"),                        2),
    (("policy", "judge", "more"),                          2),
    (("policy", "judge", "--help"),                        0),
    (("sessions",),                                        0),
    (("sessions", "--json"),                               0),
    (("sessions", "--all"),                                2),
    (("sessions", "list"),                                 0),
    (("sessions", "list", "--all"),                        0),
    (("sessions", "list", "--all", "--json"),              0),
    (("sessions", "list", "--cwd", ".."),                  0),
    (("sessions", "list", "--cwd=.", "--json"),            0),
    (("sessions", "list", "--cwd=/", "--cwd=."),           0),
    (("sessions", "list", "--cwd", "/missing"),            2),
    (("sessions", "list", "--cwd"),                        2),
    (("sessions", "list", "--cwd", "--all"),               2),
    (("sessions", "list", "--cwd="),                       0),
    (("sessions", "list", "-h"),                           0),
    (("sessions", "--json", "list"),                       2),
    (("audit",),                                           0),
    (("audit", "--json"),                                  0),
    (("audit", "--denied"),                                0),
    (("audit", "--denied", "--json", "--limit", "1"),      0),
    (("audit", "list", "--limit=1"),                       0),
    (("audit", "list", "--limit=01"),                      0),
    (("audit", "list", "--limit=0"),                       2),
    (("audit", "list", "--limit=-1"),                      2),
    (("audit", "list", "--limit", "x"),                    2),
    (("audit", "list", "--limit", "+1"),                   0),
    (("audit", "list", "--limit", "1_0"),                  0),
    (("audit", "--verdict", "allow", "--verdict", "deny"), 0),
    (("audit", "--verdict", "allow", "--denied"),          2),
    (("audit", "--verdict", "maybe"),                      2),
    (("audit", "--verdict="),                              2),
    (("audit", "--tier", "secret", "--mode=default"),      0),
    (("audit", "--rule", "command:", "--tool", "exec"),    0),
    (("audit", "--command", "cat", "--path", "*"),         0),
    (("audit", "--host", "x", "--session", "f"),           0),
    (("audit", "--workspace", ".", "--agent", "main"),     0),
    (("audit", "--since", "1h", "--until", "2099-01-01"),  0),
    (("audit", "--since", "soon"),                         2),
    (("audit", "--since", "1h", "--since", "2099-01-01"),  0),
    (("audit", "--command", "-x"),                         0),
    (("audit", "--asked"),                                 0),
    (("audit", "--file", "missing.db"),                    2),
    (("audit", "--file", "../state/audit.db"),             0),
    (("audit", "--json", "list"),                          2),
    (("audit", "last"),                                    2),
    (("audit", "--help"),                                  0),
]
# fmt: on


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> CliHarness:
    """A user with a session, and with allowed and denied actions in the record."""
    made = CliHarness(tmp_path_factory.mktemp("reading"))
    (made.base / "home" / ".ssh").mkdir(parents=True)
    (made.base / "home" / ".ssh" / "id_rsa").write_text("key\n")
    made.work.mkdir()
    subprocess.run(["git", "init", "-q", str(made.work)], check=True)
    script = made.base / "script.toml"
    script.write_text('[[turn]]\ntext = "an answer"\n')
    assert made.agent("run", "--model", f"scripted:{script}", "a prompt").returncode == 0
    assert made.agent("exec", "--unattended", "cat ~/.ssh/id_rsa").returncode == 3
    assert made.agent("exec", "--unattended", "curl -s https://example.org").returncode == 3
    assert len(made.agent("sessions", "list", "--all", "--json").stdout.splitlines()) == 1
    assert len(made.agent("audit", "--denied", "--json").stdout.splitlines()) == 2
    return made


def by_typer(user: CliHarness, *words: str) -> tuple[int, str, str]:
    done = forked_agent.run(
        [sys.executable, "-c", BY_TYPER, *words],
        cwd=user.work,
        env=user.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("words", "code"), LINES, ids=[" ".join(words) for words, _ in LINES])
def test_both_parsers_answer_alike(user: CliHarness, words: tuple[str, ...], code: int) -> None:
    done = user.agent(*words)
    assert (done.returncode, done.stdout, done.stderr) == by_typer(user, *words)
    assert done.returncode == code, done.stderr


def test_a_setting_of_the_repository_or_the_user_decides_which_log_is_read(user: CliHarness) -> None:
    """The log is found without the settings only if there are none."""
    (folder := user.base / "config" / "ringfence").mkdir(parents=True)
    try:
        (folder / "config.toml").write_text('version = 1\n[audit]\nurl = "nonsense://"\n')
        (folder / "config.toml").chmod(0o600)
        done = user.agent("audit", "--denied")
        assert (done.returncode, done.stdout, done.stderr) == by_typer(user, "audit", "--denied")
        assert done.returncode == 2, done.stdout
        assert "audit" in done.stderr
    finally:
        (folder / "config.toml").unlink()
    done = user.agent("audit", "--denied", env={"RINGFENCE_AUDIT_URL": "nonsense://"})
    assert done.returncode == 2, done.stdout


def test_the_parser_knows_every_filter() -> None:
    assert sorted((*SWITCHES, *ONCE, *MANY)) == sorted(each.name for each in FILTERS)


def test_the_stored_help_page_is_that_of_typer() -> None:
    assert Path(PAGE).read_text("utf-8") == page(), "run `make docs`"


# environment variables, True if the stored page is printed
PAGES = [
    ({}, True),
    ({"COLUMNS": "80"}, True),
    ({"COLUMNS": "100"}, False),
    ({"FORCE_COLOR": "1"}, False),
    ({"PYTHONIOENCODING": "ascii"}, False),
]


@pytest.mark.parametrize(("environ", "stored"), PAGES, ids=[json.dumps(environ) for environ, _ in PAGES])
def test_the_help_page_is_that_of_typer_for_every_output(
    user: CliHarness, environ: dict[str, str], stored: bool
) -> None:
    done = user.agent("--help", env=environ)
    typed = forked_agent.run(
        [sys.executable, "-c", BY_TYPER, "--help"],
        cwd=user.work, env={**user.environ, **environ}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == typed.stdout
    assert (done.stdout == Path(PAGE).read_text("utf-8")) is stored
    assert done.stdout.startswith(user.agent("-h", env=environ).stdout)
    assert done.stdout == user.agent("help", env=environ).stdout
