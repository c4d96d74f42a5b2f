"""Tests of a process that stays while files appear in the workspace that it must not see or change."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.sandbox_bench import USERS, Bench, make

HIDDEN = [".env", "*.pem"]
LOCKED = [".vscode/settings.json", ".git/config", ".git/hooks"]
LOOP = "echo ready; while :; do sleep 0.1; done"


@pytest.fixture(scope="module", params=[f"{tier}-{user}" for tier in ("T1", "T2") for user in USERS])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    tier, user = request.param.split("-")
    yield from make(user, tier=tier)


def started(bench: Bench, **told: object) -> None:
    """Start a process whose mounts hide `.env` and keep `.vscode/settings.json` read-only."""
    assert bench.start("stays", LOOP, hidden=HIDDEN, locked=LOCKED, **told)["started"]
    assert bench.process_do("stays", "until", text="ready")["alive"]


def make_secret(bench: Bench) -> None:
    bench.own(_written(bench.workspace / ".env", "TOKEN=1\n"))


def make_secret_in_a_new_folder(bench: Bench) -> None:
    folder = bench.workspace / "new" / "deep"
    folder.mkdir(parents=True)
    _written(folder / "key.pem", "x")
    bench.own(bench.workspace / "new")


def replace_secret(bench: Bench) -> None:
    """Save as editors do: a new file takes the name, and the mount over the old file is gone."""
    os.rename(bench.own(_written(bench.workspace / "other", "TOKEN=2\n")), bench.workspace / "kept.pem")


def link_a_file_of_outside(bench: Bench) -> None:
    os.link(bench.own(_written(bench.base / "outside" / "linked", "kept")), bench.workspace / "linked")


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.threat("T127")
@pytest.mark.parametrize("rights", ["workspace-write", "read-only"])
@pytest.mark.parametrize(
    "change", [make_secret, make_secret_in_a_new_folder, replace_secret], ids=["new", "in a new folder", "replaced"]
)
def test_a_late_secret_ends_the_process(bench: Bench, change: Callable[[Bench], None], rights: str) -> None:
    bench.own(_written(bench.workspace / "kept.pem", "first"))
    started(bench, rights=rights)
    change(bench)
    ended = bench.process_do("stays", "wait")
    assert ended["ended"] == "exposed"
    assert "is a secret file that appeared while the process ran" in ended["violations"][-1][0]
    _clean(bench)


@pytest.mark.threat("T127")
def test_a_late_secret_that_the_process_moves_away_ends_it(bench: Bench) -> None:
    script = "echo ready; until mv .env moved 2> /dev/null; do :; done; sleep 9999"
    assert bench.start("stays", script, hidden=HIDDEN, locked=LOCKED)["started"]
    bench.process_do("stays", "until", text="ready")
    os.rename(bench.own(_written(bench.outside / "env", "TOKEN=1\n")), bench.workspace / ".env")
    assert bench.process_do("stays", "wait")["ended"] == "exposed"
    _clean(bench)


@pytest.mark.threat("T127")
def test_a_late_hard_link_ends_the_process(bench: Bench) -> None:
    started(bench)
    link_a_file_of_outside(bench)
    ended = bench.process_do("stays", "wait")
    assert ended["ended"] == "exposed"
    assert "a file with another name outside" in ended["violations"][-1][0]
    _clean(bench)


@pytest.mark.threat("T128")
def test_an_auto_run_file_of_the_process_is_set_aside_and_ends_it(bench: Bench) -> None:
    script = "echo ready; read x; mkdir .vscode; echo '{}' > .vscode/settings.json; sleep 9999"
    assert bench.start("stays", script, hidden=HIDDEN, locked=LOCKED)["started"]
    bench.process_do("stays", "until", text="ready")
    bench.process_do("stays", "write", text="\n")
    ended = bench.process_do("stays", "wait")
    assert ended["ended"] == "watch"
    assert not (bench.workspace / ".vscode" / "settings.json").exists()
    _clean(bench)


@pytest.mark.threat("T128")
def test_an_approved_change_of_an_auto_run_file_ends_a_process_that_could_change_it_too(bench: Bench) -> None:
    (bench.workspace / ".vscode").mkdir()
    settings = _written(bench.workspace / ".vscode" / "settings.json", "{}")
    bench.own(bench.workspace / ".vscode")
    started(bench)
    changed = bench.run("echo '[]' > .vscode/settings.json", hidden=HIDDEN, locked=LOCKED, write=[str(settings)])
    assert (changed["status"], settings.read_text()) == (0, "[]\n")
    assert bench.process_do("stays", "wait")["ended"] == "exposed"
    _clean(bench)


@pytest.mark.threat("T129")
def test_a_command_that_only_reads_does_not_see_what_a_process_writes_to_tmp(bench: Bench) -> None:
    assert bench.start("stays", f"echo planted > /tmp/planted; {LOOP}")["started"]
    bench.process_do("stays", "until", text="ready")
    script = 'ls "$TMPDIR"; echo mine > "$TMPDIR/planted" && cat "$TMPDIR/planted"'
    env = {"PATH": "/usr/bin:/bin", "HOME": str(bench.home), "TMPDIR": "/run/tmp"}
    told = bench.run("cat /tmp/planted", rights="workspace-write")
    assert told["out"] == "planted\n"  # commands that may write share the folder
    assert bench.run(script, rights="read-only", env=env)["out"] == "mine\n"
    assert bench.process_do("stays", "end")["out"] == "ready\n"


def test_ordinary_changes_end_nothing(bench: Bench) -> None:
    started(bench)
    for number in range(100):
        bench.own(_written(bench.workspace / f"file-{number}", "x"))
    assert bench.run("mkdir -p made/by/a/command && touch made/by/a/command/file", hidden=HIDDEN)["status"] == 0
    bench.start("other", "mkdir x; echo y > x/y; echo done; cat", hidden=HIDDEN, locked=LOCKED)
    bench.process_do("other", "until", text="done")
    for name in ("other", "stays"):
        ended = bench.process_do(name, "end")
        assert (ended["ended"], ended["violations"]) == ("cancelled", [])
    _clean(bench)


def _clean(bench: Bench) -> None:
    for path in bench.workspace.iterdir():
        if path.name != "file.txt":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
