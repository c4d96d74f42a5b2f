"""Everyday work goes on inside: every row of the table, on every backend, as every user we may be."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_projects import pyenv, write_projects
from compat_rows import BACKENDS, Everyday, Row, rows
from sandbox_bench import USERS, make

AGENT = str(Path(sys.executable).parent / "agent")


@pytest.fixture(scope="module", params=USERS)
def everyday(request: pytest.FixtureRequest) -> Iterator[Everyday]:
    for bench in make(request.param):
        yield Everyday(bench)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_everyday_work_goes_on(everyday: Everyday, row: Row, backend: str) -> None:
    result = everyday.run(row, backend)
    if result.missing:
        pytest.skip(f"`{result.missing}` is not installed for this user")
    assert result.ok, result.answer


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
    done = subprocess.run([AGENT, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == last, done.stdout
    assert sorted(path.name for path in home.iterdir()) == [".cache", ".local", ".pyenv", "work"], (
        "ours, and nothing of theirs"
    )
    assert [path.name for path in (home / ".cache").iterdir()] == ["ringfence"]
