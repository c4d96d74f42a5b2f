"""Tests of everyday work in the sandbox: every row of the table, on every backend, as each available user."""

import contextlib
import functools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.compat_projects import pyenv, write_projects
from tests.support.compat_rows import REFUSED, Everyday, Result, Row, everyday, rows
from tests.support.sandbox_bench import USERS

# Of what works in T3, as much as shows every part of it; `make tables` runs it all.
WORKS = (
    *("gcc compiles, links and runs", "make in parallel with a jobserver", "python from below the home", "sqlite3"),
    *("python modules with libraries", "sqlite with a write-ahead log", "git init, commit, log, worktree, gc", "tar", "sed -i"),
    *("npm keeps its cache", "mktemp", "extended attributes and locks", "jobs, signals, trap, timeout", "descriptors by name"),
)  # fmt: skip


# pip is installed from its archive into a new environment, which compiles all of it.
SLOW = {"venv, pip install of wheels, pytest": pytest.mark.slow("an environment is made and filled, as users do it")}
ROWS = [pytest.param(row, id=row.name, marks=SLOW.get(row.name, ())) for row in rows()]
Places = Callable[[str], Everyday]


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    """Return the bench of a user; each is made once, when a row needs it."""
    with contextlib.ExitStack() as made:
        yield functools.cache(lambda user: made.enter_context(everyday(user)))


def result_of(places: Places, user: str, row: Row, backend: str) -> Result:
    """Run the row as this user, or as another one if the user does not have its program."""
    for each in (user, *(other for other in USERS if other != user)):
        if not (result := places(each).run(row, backend)).missing:
            return result
    pytest.skip(f"`{result.missing}` is not installed")


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("backend", ["T1", "T2"])
@pytest.mark.parametrize("row", ROWS)
def test_everyday_work_goes_on(places: Places, row: Row, backend: str, user: str) -> None:
    assert not REFUSED[backend]
    result = result_of(places, user, row, backend)
    assert result.ok, result.answer


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    "row", [row for row in rows() if row.name in (*WORKS, *REFUSED["T3"])], ids=lambda row: row.name
)
def test_in_t3_exactly_what_is_written_down_does_not_go_on(places: Places, row: Row, user: str) -> None:
    result = result_of(places, user, row, "T3")
    assert result.ok == (row.name not in REFUSED["T3"]), result.answer


def test_only_what_is_in_the_table_is_named() -> None:
    names = {row.name for row in rows()}
    assert {*WORKS, *(name for refused in REFUSED.values() for name in refused)} <= names


PROJECTS = [
    # folder, options, script, the last words that are printed, a program that it needs
    ("calc", (), "make -s check && make -s clean", "passed", "make"),
    (
        "words",
        ("--host", "packages.invalid"),
        "python3 -m venv env && env/bin/pip install -q --no-index --find-links wheels words pytest 2>&1 | grep -v notice; env/bin/pytest -q tests | tail -1 | cut -d' ' -f1-2",
        "2 passed",
        "python3",
    ),
    (
        "padded",
        ("--host", "packages.invalid"),
        "npm ci --no-audit --no-fund && npm test 2>&1 | grep -cE '^# pass 1|^ℹ pass 1'",
        "1",
        "npm",
    ),
]


@pytest.mark.parametrize(("folder", "options", "script", "last", "needs"), PROJECTS, ids=[row[0] for row in PROJECTS])
@pytest.mark.slow("pip installs a project, and its tests run")
def test_a_project_is_installed_and_tested_from_the_command_line(
    tmp_path: Path, folder: str, options: tuple[str, ...], script: str, last: str, needs: str
) -> None:
    """Through the whole gate, as a user types it, with a Python below the home; no host is really needed."""
    if shutil.which(needs) is None:
        pytest.skip(f"`{needs}` is not installed")
    home, work = tmp_path / "home", tmp_path / "home" / "work"
    work.mkdir(parents=True)
    write_projects(work)
    environ = {"HOME": str(home), "PATH": f"{pyenv(home)}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    words = (
        "exec",
        "--mode",
        "trust-project",
        "--unattended",
        "--cwd",
        str(work / folder),
        *options,
        "--",
        "bash",
        "-c",
        script,
    )
    done = forked_agent.run([AGENT, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == last, done.stdout
    assert sorted(path.name for path in home.iterdir()) == [".cache", ".local", ".pyenv", "work"], (
        "ours, and nothing of theirs"
    )
    assert [path.name for path in (home / ".cache").iterdir()] == ["ringfence"]
