"""Tests of real package managers offline: they run without a question, and no host is open to them."""

import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT


def npm_project(work: Path) -> None:
    (work / "dep").mkdir()
    (work / "dep" / "package.json").write_text('{"name": "dep", "version": "1.0.0"}')
    (work / "package.json").write_text('{"name": "x", "version": "1.0.0", "dependencies": {"dep": "file:dep"}}')
    packages = {
        "": {"name": "x", "version": "1.0.0", "dependencies": {"dep": "file:dep"}},
        "dep": {"version": "1.0.0"},
        "node_modules/dep": {"resolved": "dep", "link": True},
    }
    lock = {"name": "x", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": packages}
    (work / "package-lock.json").write_text(json.dumps(lock))


def pip_project(work: Path) -> None:
    (work / "wheels").mkdir()
    with zipfile.ZipFile(work / "wheels" / "demo-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("demo.py", "WORD = 'installed'\n")
        wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\n")


def cargo_project(work: Path) -> None:
    (work / "src").mkdir()
    (work / "src" / "lib.rs").write_text("")
    (work / "Cargo.toml").write_text('[package]\nname = "demo"\nversion = "0.1.0"\n')


ROWS = [
    ("npm", npm_project, "npm ci --offline --no-audit --no-fund", "node_modules/dep/package.json"),
    ("npm", npm_project, "npm install --offline --no-audit --no-fund ./dep", "node_modules/dep/package.json"),
    ("pip3", pip_project, "pip3 install --no-index --find-links wheels --target out demo", "out/demo.py"),
    ("cargo", cargo_project, "cargo fetch --offline", "Cargo.lock"),
]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
HERE = [row for row in ROWS if row[0] == "npm" or shutil.which(row[0], path=SYSTEM_PATH)]  # the tests require npm


@pytest.mark.threat("T141")
@pytest.mark.parametrize(("program", "prepare", "script", "made"), HERE, ids=[row[2] for row in HERE])
def test_an_offline_form_works_without_a_host(
    tmp_path: Path, program: str, prepare: Callable[[Path], None], script: str, made: str
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    for folder in (work, home):
        folder.mkdir()
    prepare(work)
    environ = {"PATH": SYSTEM_PATH, "HOME": str(home), "LC_ALL": "C.UTF-8"}
    told = ("--json", "--unattended", "--mode", "trust-project")
    done = forked_agent.run(
        [AGENT, "exec", *told, script], env=environ, cwd=work, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    ended = next(event for event in map(json.loads, done.stdout.splitlines()) if event["type"] == "finished")
    assert (done.returncode, ended["connections"], ended["violations"]) == (0, [], []), done.stdout
    assert (work / made).exists()
