"""Tests of the limits of undo: work of others, secrets, auto-run files and large files, and the reports about them."""

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.action import ReadFile, RunScript
from runner.changes.undo.blobs import BlobPlace
from runner.changes.undo.lock import UndoError
from runner.changes.undo.snapshot import Snapshotter
from runner.changes.undo.store import Store, clear
from runner.secrets.secret import Secret, _registered
from tests.support.places import ROOT
from tests.support.undo_workspace import WORK, UndoWorkspace, as_nobody

# fmt: off
# what there was, actions of the model and (after `!`) of another process, in order; what an undo of all leaves, with the
# words that say why; what there is after --force; why
OTHERS: list[tuple[str, list[str], dict[str, str], dict[str, str | None], str]] = [
    ("echo 1 > a; echo 1 > b", ["echo 2 > a; echo 2 > b", "! echo mine > a"], {"a": "another process changed it since"}, {"a": "1\n", "b": "1\n"}, "changed since"),
    ("echo 1 > a", ["rm a", "! echo mine > a"],                  {"a": "another process changed it since"}, {"a": "1\n"}, "made again"),
    ("echo 1 > a", ["echo 2 > a", "! rm a"],                     {"a": "another process changed it since"}, {"a": "1\n"}, "removed"),
    ("echo 1 > a", ["echo 2 > a", "! chmod 600 a"],              {"a": "another process changed it since"}, {"a": "1\n"}, "another mode"),
    ("true",       ["echo 2 > a", "! echo mine >> a"],           {"a": "another process changed it since"}, {"a": None},  "made by the model, then changed"),
    ("echo 1 > a", ["echo 2 > a", "! echo mine > a", "echo 3 > a"], {"a": "between these actions"},       {"a": "1\n"}, "changed between two actions"),
    ("true",       ["mkdir d; echo x > d/x", "! echo mine > d/mine"], {"d": "other files are in it"},     {"d/x": None, "d/mine": "mine\n"}, "a folder with more in it stays"),
    ("echo 1 > a", ["echo 2 > a", "! echo 1 > a"],               {},                                      {"a": "1\n"}, "as it was already"),
    ("echo 1 > a", ["echo 2 > a", "! echo mine > other"],        {},                                      {"a": "1\n", "other": "mine\n"}, "another file is nobody's business"),
    ("echo 1 > a", ["echo 2 > a", "! touch a"],                  {},                                      {"a": "1\n"}, "only its time is another"),
    ("echo 1 > a; echo b > b", ["rm a b", "! ln -s /etc/passwd a"], {"a": "another process changed it since"}, {"a": "1\n", "b": "b\n"}, "a link in its place is not written through"),
    ("mkdir d; echo 1 > d/a", ["rm -r d", "! mkdir e; ln -s e d"], {"d": "since", "d/a": ""},             {"d/a": "1\n"}, "nor is one in the place of its folder"),
    ("echo 1 > a; ln a b", ["rm a; echo 2 > a"],                 {},                                      {"a": "1\n", "b": "1\n"}, "a file with two names gets one of its own"),
]
# fmt: on


@pytest.fixture
def base() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="u"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.threat("T75")
@pytest.mark.parametrize(("before", "acts", "left", "forced", "why"), OTHERS, ids=[row[4] for row in OTHERS])
def test_what_others_did_is_never_lost(
    base: Path, before: str, acts: list[str], left: dict[str, str], forced: dict[str, str | None], why: str
) -> None:
    world = UndoWorkspace(base)
    world.sh(before)
    for act in acts:
        world.sh(act[1:]) if act.startswith("!") else world.act(act)
    count = sum(not act.startswith("!") for act in acts)
    mine = world.picture()
    taken = world.undo(count)
    said = {item.path: item.problem for item in taken.items if item.problem}
    assert said.keys() == left.keys(), said
    assert all(words in said[path] for path, words in left.items()), said
    assert taken.whole == (not left)
    now = world.picture()
    for path in left:
        if (entry := mine.get(os.fsencode(f"/{path}"))) and entry[0] != "folder":
            assert now[os.fsencode(f"/{path}")] == entry
    if left:
        world.undo(count, force=True)
    for path, content in forced.items():
        real = world.w / path
        assert (real.read_text() if real.exists() else None) == content, why
    assert Path("/etc/passwd").read_text().startswith("root:")


def test_steps_are_counted_and_go_further_back(base: Path) -> None:
    world = UndoWorkspace(base)
    for number in range(4):
        assert world.act(f"echo {number} > a") == number + 1
    assert world.act("true") is None, "what changed nothing is no step"
    world.undo(1)
    assert (world.w / "a").read_text() == "2\n"
    world.undo(2)
    assert (world.w / "a").read_text() == "0\n"
    with pytest.raises(UndoError, match="only 1 stored action"):
        world.undo(2)
    world.undo(redo=True)
    assert (world.w / "a").read_text() == "2\n"
    world.act("echo new > b")
    world.undo(2)
    assert (world.w / "a").read_text() == "1\n"
    assert not (world.w / "b").exists()


def test_a_look_keeps_nothing_and_makes_nothing(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("echo 1 > a")
    for action in (RunScript("cat a", str(world.w)), ReadFile(str(world.w / "a"))):
        assert asyncio.run(world.keeper.before(world.permit(action), "look", "1")) is None
    assert not (base / "state" / "snapshots").exists()


def test_a_file_tool_keeps_one_file_and_not_the_whole_folder(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("echo 1 > a; mkdir other; head -c 100000 /dev/urandom > other/big")
    world.write("a", "2")
    world.write("new/deep/b", "b")
    assert sum(path.stat().st_size for path in (base / "state" / "snapshots").glob("*/*.pack")) < 100
    assert world.undo(2).whole
    assert (world.w / "a").read_text() == "1\n"
    assert not (world.w / "new").exists()
    assert (world.w / "other/big").stat().st_size == 100000


@pytest.mark.threat("T75")
def test_a_secret_is_never_kept(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("echo s3cret-canary > .env; ln -s .env link; mkdir d; echo s3cret-canary > d/server.key; echo 1 > a")
    world.act("echo 2 > a; cp .env new.pem; rm .env d/server.key")
    taken = world.undo()
    assert {item.path for item in taken.items if item.problem} == {".env", "d/server.key", "new.pem"}
    assert (world.w / "a").read_text() == "1\n"
    assert (world.w / "new.pem").exists(), "what is not kept is not removed either"
    kept = b"".join(path.read_bytes() for path in (base / "state").rglob("*") if path.is_file())
    assert b"s3cret-canary" not in kept


@pytest.mark.threat("T75")
@pytest.mark.parametrize("size", [0, 5 << 20], ids=["small", "large"])
def test_a_key_that_is_known_is_not_kept_wherever_it_stands(base: Path, size: int) -> None:
    """A key that a user pasted into a file: what was done to the others is taken back."""
    _registered.clear()
    Secret("s3cret-canary-0123")
    world = UndoWorkspace(base)
    (world.w / "notes").write_bytes(b"x" * (size - 9 if size else 0) + b"s3cret-canary-0123" + b"y" * size)
    world.sh("echo 1 > a")
    world.act("echo 2 > a; echo more >> notes; cp notes other")
    taken = world.undo()
    _registered.clear()
    assert {item.path for item in taken.items if item.problem} == {"notes", "other"}
    assert (world.w / "a").read_text() == "1\n"
    kept = b"".join(path.read_bytes() for path in (base / "state").rglob("*") if path.is_file())
    assert b"s3cret-canary" not in kept


# fmt: off
AUTO_RUN = [
    # what there was, what a command did although no sandbox lets it, the path that is not touched
    ("git init -q .; echo mine > .git/hooks/pre-commit", "rm .git/hooks/pre-commit",          ".git/hooks/pre-commit"),
    ("mkdir .vscode; echo mine > .vscode/tasks.json",    "echo evil > .vscode/tasks.json",    ".vscode/tasks.json"),
    ("mkdir -p sub/.vscode; echo mine > sub/.vscode/tasks.json", "rm -r sub",                 "sub/.vscode/tasks.json"),
    ("echo mine > .envrc",                               "rm .envrc; ln -s x .envrc",         ".envrc"),
    ("mkdir .ringfence; echo '# x' > .ringfence/config.toml", "rm .ringfence/config.toml",        ".ringfence/config.toml"),
    ("git init -q .; git config core.hooksPath tools/h; mkdir -p tools/h; echo m > tools/h/pre-push", "echo evil > tools/h/pre-push", "tools/h/pre-push"),
]
# fmt: on


@pytest.mark.threat("T75")
@pytest.mark.parametrize(("before", "action", "path"), AUTO_RUN, ids=[row[2] for row in AUTO_RUN])
def test_what_programs_run_by_themselves_is_not_written_by_an_undo(
    base: Path, before: str, action: str, path: str
) -> None:
    world = UndoWorkspace(base)
    world.sh(before)
    was = world.picture()
    world.act(f"{action}; echo x > a")
    now = world.picture()
    taken = world.undo()
    assert path in {item.path for item in taken.items if "--auto-run" in item.problem}
    assert not taken.whole
    raw = os.fsencode(f"/{path}")
    assert world.picture().get(raw) == now.get(raw)
    assert not (world.w / "a").exists(), "the rest came back"
    assert world.undo(auto_run=True).whole
    assert world.picture().get(raw, ())[:3] == was.get(raw, ())[:3], "a person may have it back as it was before"


# fmt: off
PLANTED = [
    # what there was, what a command made, what is left of it
    ("git init -q .",              "echo evil > .git/hooks/pre-push; chmod 755 .git/hooks/pre-push", set()),
    ("true",                       "mkdir .vscode; echo evil > .vscode/tasks.json; echo evil > .envrc", set()),
    ("true",                       "git init -q new; echo evil > new/.git/hooks/pre-push", {"new", "new/.git", "new/.git/objects", "new/.git/objects/info", "new/.git/objects/pack"}),
]
# fmt: on


@pytest.mark.threat("T75")
@pytest.mark.parametrize(("before", "action", "left"), PLANTED, ids=[row[1] for row in PLANTED])
def test_what_a_command_planted_goes(base: Path, before: str, action: str, left: set[str]) -> None:
    world = UndoWorkspace(base)
    world.sh(before)
    was = world.picture().keys()
    world.act(action)
    assert world.undo().whole
    assert {path.decode()[1:] for path in world.picture().keys() - was} == left


@pytest.mark.threat("T75")
def test_a_folder_that_becomes_a_repository_by_an_undo_runs_nothing(base: Path) -> None:
    """`hooks` are plain files until a HEAD lies beside them: what then runs is set aside, as if a command had made it."""
    world = UndoWorkspace(base)
    world.sh("mkdir -p e/hooks e/objects e/refs; echo evil > e/hooks/post-checkout; echo 'ref: refs/heads/x' > e/HEAD")
    world.act("rm -r e/hooks e/HEAD")
    world.act("true > z")
    taken = world.undo(2)
    assert not (world.w / "e/hooks/post-checkout").exists()
    assert not taken.whole
    assert taken.aside or any("--auto-run" in item.problem for item in taken.items)


# fmt: off
BROUGHT_TOGETHER = [
    # what there was, what an action did, what a user did since, the paths that an undo leaves alone, why
    ("mkdir -p e/objects e/refs; echo x > e/HEAD; echo x > e/refs/x", "rm e/HEAD", "echo evil > e/config", {"e/HEAD"}, "a HEAD beside settings that came later"),
    ("mkdir -p e/objects e/refs; echo ref: refs/heads/x > e/HEAD; echo evil > e/config", "rm e/config", "true", {"e/config"}, "settings of a repository that is there"),
    ("mkdir -p e/objects e/refs e/hooks; echo x > e/HEAD; echo evil > e/hooks/pre-push", "mv e/hooks hooks", "true", {"e/hooks", "e/hooks/pre-push"}, "a folder of hooks"),
    ("mkdir e; echo x > e/HEAD; echo ../c > e/commondir; mkdir -p c/objects c/refs", "rm e/commondir", "echo evil > c/config", {"e/commondir"}, "where settings are shared"),
    ("mkdir e; echo gitdir: ../x > e/.git", "rm e/.git", "true", {"e/.git"}, "a file that names the folder with the settings"),
    ("mkdir -p e/objects e/refs; echo x > e/HEAD; rm -r e/refs; echo x > e/refs; echo evil > e/config", "rm e/refs", "true", {"e/refs"}, "the last name that was missing"),
    ("mkdir -p e/refs; echo x > e/HEAD; echo x > e/objects.txt", "rm e/HEAD", "echo evil > e/config", set(), "no repository"),
]
# fmt: on


@pytest.mark.threat("T16")
@pytest.mark.threat("T75")
@pytest.mark.parametrize(
    ("before", "action", "since", "left", "why"), BROUGHT_TOGETHER, ids=[row[4] for row in BROUGHT_TOGETHER]
)
def test_an_undo_brings_no_repository_together(
    base: Path, before: str, action: str, since: str, left: set[str], why: str
) -> None:
    world = UndoWorkspace(base)
    world.sh(before)
    world.act("true > z")
    world.act(action)
    world.sh(since)
    settings = world.picture().get(b"/e/config")
    taken = world.undo()
    assert {item.path for item in taken.items if "--auto-run" in item.problem} == left, why
    assert taken.aside == (), "nothing that was there is taken away"
    assert world.picture().get(b"/e/config") == settings or not left
    assert world.undo(auto_run=True).whole if left else taken.whole


@pytest.mark.threat("T16")
def test_a_redo_brings_no_repository_together(base: Path) -> None:
    """An undo takes a planted repository away, as far as it is kept; taking that back is no way to plant it again."""
    world = UndoWorkspace(base)
    world.act("true > z")
    world.act("mkdir -p e/objects e/refs; echo x > e/refs/x; echo ref: refs/heads/x > e/HEAD; echo evil > e/config")
    assert world.undo().whole
    assert not (world.w / "e/HEAD").exists()
    taken = world.undo(redo=True)
    assert {item.path for item in taken.items if "--auto-run" in item.problem} == {"e/config"}
    assert not (world.w / "e/config").exists()


@pytest.mark.threat("T75")
@pytest.mark.parametrize("before", ["mkdir src; echo x > src/a; echo x > src/b", "mkdir src"], ids=["full", "empty"])
def test_a_folder_that_was_hidden_under_a_name_nobody_looks_into_brings_nothing_along(base: Path, before: str) -> None:
    """Moving `node_modules` back would be quicker, and would plant in `src` whatever was put into it meanwhile."""
    world = UndoWorkspace(base)
    world.sh(before)
    world.act("true > z")
    was = world.picture().keys()
    hidden = "mkdir -p node_modules/.vscode; echo evil > node_modules/.vscode/tasks.json; echo evil > node_modules/a"
    world.act(f"mv src node_modules; {hidden}")
    assert world.undo().whole
    assert was <= world.picture().keys()
    assert not (world.w / "src/.vscode").exists()
    assert all(path.read_text() == "x\n" for path in (world.w / "src").iterdir())


# fmt: off
LEFT_OUT = [
    # what there was, the action, what is left and why, what must be there afterwards, why
    ("mkdir -p node_modules/x; echo 1 > node_modules/x/i", "rm -r node_modules", {"node_modules": "can be made again"}, {}, "it is gone for good"),
    ("mkdir node_modules; echo 1 > node_modules/i", "echo 2 > node_modules/i; echo > a", {}, {"node_modules/i": "2\n"}, "what is in it is not looked at"),
    ("true", "mkdir node_modules; echo 1 > node_modules/i; echo > a", {"node_modules": "it is not removed"}, {"node_modules/i": "1\n"}, "a new one stays"),
    ("mkdir -p node_modules/x; echo 1 > node_modules/x/i", "mv node_modules mods", {}, {"node_modules/x/i": "1\n"}, "it is moved back"),
    ("mkdir venv; touch venv/pyvenv.cfg; echo 1 > venv/x", "rm venv/pyvenv.cfg; echo > a", {}, {"venv/x": "1\n"}, "it is looked at from now on, and nobody made what is in it"),
    ("mkdir venv; echo mine > venv/notes", "touch venv/pyvenv.cfg; rm venv/notes", {}, {"venv/notes": "mine\n"}, "a witness planted in what is kept changes nothing"),
    ("mkdir objects; echo mine > objects/notes", "touch HEAD; mkdir refs; rm objects/notes", {}, {"objects/notes": "mine\n"}, "nor does a repository around it"),
    ("mkdir target; echo mine > target/notes", "rm -r target", {}, {"target/notes": "mine\n"}, "a name alone is not enough"),
    ("mkfifo pipe; echo 1 > a", "rm pipe; echo 2 > a", {"pipe": "no file, folder or link"}, {"a": "1\n"}, "a pipe is not made again"),
    ("head -c 60000 /dev/zero > big; echo 1 > a", "rm big; echo 2 > a", {"big": "too big"}, {"a": "1\n"}, "more than undo.file"),
    ("head -c 60000 /dev/zero > big", "mv big large", {}, {"big": "\0" * 60000}, "the same file under another name is moved back"),
    ("echo 1 > a", "head -c 60000 /dev/zero > big; echo 2 > a", {"big": "could not be stored"}, {"a": "1\n", "big": "\0" * 60000}, "what could not be brought again is not removed"),
]
# fmt: on


@pytest.mark.threat("T75")
@pytest.mark.parametrize(("before", "action", "left", "there", "why"), LEFT_OUT, ids=[row[4] for row in LEFT_OUT])
def test_what_is_not_kept_is_said_and_what_is_there_stays(
    base: Path, before: str, action: str, left: dict[str, str], there: dict[str, str], why: str
) -> None:
    world = UndoWorkspace(base, "[undo]\nfile = 50000\n")
    world.sh(before)
    world.act("echo first > start")
    world.act(action)
    taken = world.undo()
    said = {item.path: item.problem for item in taken.items if item.problem}
    assert said.keys() == left.keys(), said
    assert all(words in said[path] for path, words in left.items()), said
    for path, content in there.items():
        assert (world.w / path).read_text() == content, why
    if "too big" in str(left):
        assert "`agent undo` cannot restore `big`: it is too big" in world.said


def test_a_move_of_what_is_not_kept_goes_both_ways(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("mkdir -p node_modules; echo 1 > node_modules/i")
    world.act("echo first > start")
    world.act("mv node_modules mods")
    for _ in range(2):
        assert world.undo().whole
        assert (world.w / "node_modules/i").read_text() == "1\n"
        assert not (world.w / "mods").exists()
        assert world.undo(redo=True).whole
        assert (world.w / "mods/i").read_text() == "1\n"
        assert not (world.w / "node_modules").exists()


def test_the_oldest_go_first(base: Path) -> None:
    world = UndoWorkspace(base, "[undo]\nsteps = 3\nsize = 300000\n")
    for number in range(6):
        world.act(f"echo {number} > a")
    with pytest.raises(UndoError, match="only 3"):
        world.undo(4)
    for number in range(8):
        world.act(f"head -c 100000 /dev/urandom > big; echo {number} > a")
    kept = sum(path.stat().st_size for path in (base / "state").glob("snapshots/*/*.pack"))
    assert kept <= 400_000, "packs that nothing names are gone"
    assert world.undo().whole
    assert (world.w / "a").read_text() == "6\n"


@pytest.mark.threat("T75")
def test_nothing_goes_without_a_word(base: Path) -> None:
    """Anyone who deletes a folder and fills the store afterwards must not have it forgotten in silence."""
    world = UndoWorkspace(base, "[undo]\nsize = 300000\nsteps = 4\n")
    world.sh("mkdir src; for i in 1 2 3; do head -c 50000 /dev/urandom > src/$i; done")
    world.act("echo start > a")
    world.act("rm -r src")
    assert world.said == []
    world.act("for i in 1 2 3; do head -c 60000 /dev/urandom > f$i; done")
    (told,) = world.said
    assert re.search(r"the oldest (action|2 actions) stored here cannot be undone any more", told)
    with pytest.raises(UndoError, match="can be undone"):
        world.undo(3)
    for number in range(8):
        world.act(f"echo {number} > a")
    assert world.said[1:] == ["only the last 4 actions can be undone (`undo.steps`)"], "said once in a session"


def test_what_there_is_no_room_for_is_said_before_the_action(base: Path) -> None:
    world = UndoWorkspace(base, "[undo]\nsize = 100000\n")
    world.sh("head -c 90000 /dev/urandom > one; head -c 80000 /dev/urandom > two; echo small > a")
    asyncio.run(world.keeper.before(world.permit(RunScript(WORK, str(world.w))), "x", "1"))
    assert world.said == ["`agent undo` cannot restore `one`: there was no room for it"], "the largest goes first"


def test_too_many_files_are_said_and_with_required_nothing_runs(base: Path) -> None:
    world = UndoWorkspace(base, "[undo]\nfiles = 10\n")
    world.sh("touch f{1..20}")
    assert world.act("rm f1") is None
    assert "the changes of this action cannot be undone: this folder has more files" in world.said[0]
    strict = UndoWorkspace(base, "[undo]\nfiles = 10\nrequired = true\n")
    with pytest.raises(UndoError, match="nothing was run"):
        strict.act("rm f2")
    assert (world.w / "f2").exists()


def test_switched_off_it_keeps_nothing(base: Path) -> None:
    world = UndoWorkspace(base, "[undo]\nenabled = false\n")
    assert world.act("echo 1 > a") is None
    assert not (base / "state" / "snapshots").exists()


_KILLED = """
import asyncio, os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.support.undo_workspace import WORK, UndoWorkspace
from policy.model.action import RunScript
import runner.changes.undo.apply as restore, runner.changes.undo.snapshot as taking
world = UndoWorkspace(Path({base!r}), "")
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
{script}
"""
# fmt: off
DEATHS = [
    # what the runner does until it is killed; whether `a` and `b` may then be as before the action; why
    ("taking.Snapshotter._content = die; world.act('echo 2 > a')",                                  "in the middle of a snapshot"),
    ("asyncio.run(world.keeper.before(world.permit(RunScript(WORK, str(world.w))), 'x', '1')); world.sh('echo 2 > a; rm b'); die()", "in the middle of an action"),
    ("world.act('echo 2 > a; rm b'); real = restore._Hand.write; restore._Hand.write = lambda self, item: (real(self, item), die()); world.undo()", "in the middle of an undo"),
    ("world.act('echo 2 > a; rm b'); restore.os.fchmod = die; world.undo()",                   "before a file is in place"),
]
# fmt: on


@pytest.mark.parametrize(("script", "why"), DEATHS, ids=[row[1] for row in DEATHS])
def test_a_runner_that_is_killed_leaves_every_file_old_or_new_and_it_is_said(base: Path, script: str, why: str) -> None:
    world = UndoWorkspace(base)
    world.sh("echo 1 > a; echo 1 > b")
    text = _KILLED.format(root=str(ROOT), base=str(base), script=script)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert (world.w / "a").read_text() in ("1\n", "2\n")
    assert not (world.w / "b").exists() or (world.w / "b").read_text() == "1\n"
    world.act("echo new > c")
    assert [name for name in os.listdir(world.w) if name.startswith(".ringfence")] == []
    world.undo()
    assert not (world.w / "c").exists()
    if "snapshot" not in why:
        taken = world.undo(force=True)
        assert taken.steps
        assert (world.w / "a").read_text() == (world.w / "b").read_text() == "1\n"
    if "action" in why:
        assert any("killed" in line for line in world.said)


def test_what_came_after_a_killed_action_is_not_overwritten_unasked(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("echo 1 > a")
    asyncio.run(world.keeper.before(world.permit(RunScript(WORK, str(world.w))), "x", "1"))
    world.keeper.close()  # as death does: the locks are gone, the step is open
    world.sh("echo mine > a")
    taken = world.undo()
    assert [item.problem for item in taken.items] == [
        "the runner was killed, so another process may have made this change; `--force` takes it back"
    ]
    assert (world.w / "a").read_text() == "mine\n"


def test_a_file_name_that_says_killed_is_no_killed_action(base: Path) -> None:
    world = UndoWorkspace(base, "[undo]\nfile = 1024\n")
    world.sh("echo 1 > a")
    world.act("echo 2 > a; head -c 4096 /dev/zero > 'the runner was killed while it ran.bin'")
    store = world.store()
    (step,) = store.steps()
    store.close()
    assert any("was killed" in note for note in step.notes)
    assert not step.killed
    world.undo()
    assert (world.w / "a").read_text() == "1\n"


@pytest.mark.parametrize(("notes", "killed"), [
    (["`x`: it is too big", "the runner was killed while it ran; what anybody else changed until 2026-01-02 03:04 UTC may be among it"], True),
    (["`the runner was killed while it ran; what anybody else changed until x`: it is too big"], False),
    ([], False),
])  # fmt: skip
def test_an_earlier_store_says_in_a_note_only_that_its_runner_was_killed(
    base: Path, notes: list[str], killed: bool
) -> None:
    world = UndoWorkspace(base)
    world.sh("echo 1 > a")
    world.act("echo 2 > a")
    world.keeper.close()
    store = world.store()
    store.close()
    with closing(sqlite3.connect(store.folder / "steps.db", isolation_level=None)) as raw:
        raw.execute("ALTER TABLE step DROP COLUMN killed")
        raw.execute("UPDATE step SET notes = ?", (json.dumps(notes),))
    for _ in range(2):  # converted once
        store = world.store()
        assert [step.killed for step in store.steps()] == [killed]
        assert not store.notices
        store.close()
    assert bool(world.undo().items[0].problem) is killed


def test_two_agents_in_one_workspace(base: Path) -> None:
    world = UndoWorkspace(base)
    other = world.another()
    world.sh("echo 1 > a; echo 1 > b")
    permit = world.permit(RunScript(WORK, str(world.w)))
    first = asyncio.run(world.keeper.before(permit, "first", "1"))
    world.sh("echo 2 > a")
    second = asyncio.run(other.before(permit, "second", "1"))
    with pytest.raises(UndoError, match="is running"):
        world.undo()
    world.sh("echo 2 > b")
    assert other.after(second) is not None
    assert world.keeper.after(first) is not None
    store = world.store()
    by_words = {step.words: {change.path for change in store.changes(step.id)} for step in store.steps()}
    assert by_words == {"first": {"a"}, "second": {"b"}}
    assert any("another `agent` was at work" in note for step in store.steps() for note in step.notes)
    store.close()
    assert world.undo(2).whole
    assert (world.w / "a").read_text() == (world.w / "b").read_text() == "1\n"


def test_a_session_goes_on_when_all_was_forgotten_meanwhile(base: Path) -> None:
    world = UndoWorkspace(base)
    world.act("echo 1 > a")
    store = world.store()
    store.close()
    assert clear(store.folder) > 0
    assert world.act("echo 2 > a") == 1
    assert world.undo().whole
    assert (world.w / "a").read_text() == "1\n"


def test_two_sessions_one_after_the_other(base: Path) -> None:
    world = UndoWorkspace(base)
    other = world.another()
    for number, keeper in enumerate((world.keeper, other, world.keeper, other)):
        assert world.act(f"echo {number} > a; echo {number} > b{number}", keeper) == number + 1
    assert world.undo(3).whole
    assert sorted(os.listdir(world.w)) == ["a", "b0"]
    assert (world.w / "a").read_text() == "0\n"


def test_what_changes_while_it_is_read_is_not_kept_half(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("head -c 3000000 /dev/zero > grows; echo 1 > a")
    stop = threading.Event()

    def grow() -> None:
        with open(world.w / "grows", "ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"x" * 10)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        world.act("echo 2 > a")
    finally:
        stop.set()
        writer.join()
    taken = world.undo()
    assert {item.path: item.problem for item in taken.items if item.problem}.keys() <= {"grows"}
    assert (world.w / "a").read_text() == "1\n"


@pytest.mark.thorough
@pytest.mark.threat("T75")
def test_a_folder_that_is_swapped_for_a_link_all_the_time_leads_nowhere(base: Path) -> None:
    """A process with the workspace swaps a folder and a link to a folder outside, while snapshots and undos go on."""
    world = UndoWorkspace(base)
    outside = base / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside-canary")
    world.sh("mkdir d; echo 1 > d/f; ln -s ../outside link")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for one, other in (("d", "real2"), ("link", "d"), ("d", "link"), ("real2", "d")):
                with suppress(OSError):  # a command made one of them meanwhile
                    os.rename(world.w / one, world.w / other)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(30):
            world.act(f"echo {number} > a; (echo {number} > d/f) 2>/dev/null || true")
            (outside / "f").write_text("outside-canary")  # our own unconfined bash follows links; an undo must not
            try:
                world.undo(force=True)
            except UndoError:
                continue
            assert (outside / "f").read_text() == "outside-canary"
            assert os.listdir(outside) == ["f"]
    finally:
        stop.set()
        swapper.join()
    packs = b"".join(path.read_bytes() for path in (base / "state").glob("snapshots/*/*.pack"))
    assert b"outside-canary" not in packs


def test_a_damaged_copy_is_told_and_nothing_is_written(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("echo one > a; head -c 2000000 /dev/zero > big")
    world.act("echo two > a; rm big")
    for path in (base / "state").glob("snapshots/*/*.pack"):
        path.write_bytes(path.read_bytes().replace(b"one", b"0ne")[:1_000_000])
    taken = world.undo()
    assert {item.path: item.problem for item in taken.items} == dict.fromkeys(
        ("a", "big"), "the stored content is damaged"
    )
    assert (world.w / "a").read_text() == "two\n"
    assert os.listdir(world.w) == ["a"]


def test_a_damaged_list_is_set_aside_and_told(base: Path) -> None:
    world = UndoWorkspace(base)
    world.act("echo 1 > a")
    world.keeper.close()
    (steps,) = (base / "state").glob("snapshots/*/steps.db")
    for path in steps.parent.glob("steps.db-*"):
        path.unlink()
    steps.write_bytes(b"no database" * 1000)
    keeper = world.another()
    assert world.act("echo 2 > a", keeper) is not None
    assert any("was damaged and moved to" in line for line in world.said)
    assert world.undo().whole
    assert (world.w / "a").read_text() == "1\n"


@pytest.mark.threat("T75")
def test_nobody_hides_a_deletion_behind_too_many_files(base: Path) -> None:
    world = UndoWorkspace(base, "[undo]\nfiles = 50\n")
    world.sh("mkdir src; echo 1 > src/a; echo 1 > b")
    world.act("echo 2 > b")
    assert world.act("rm -r src; echo 3 > b; touch f{1..60}") is not None
    world.undo()
    assert (world.w / "src/a").read_text() == "1\n"
    assert (world.w / "b").read_text() == "2\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
@pytest.mark.threat("T75")
def test_nor_behind_a_full_disk(base: Path) -> None:
    (base / "state").mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(base / "state")], check=True)
    try:
        world = UndoWorkspace(base)
        world.sh("mkdir src; echo 1 > src/a; echo 1 > b")
        assert world.act("rm -r src; echo 2 > b; for i in $(seq 60); do head -c 100000 /dev/urandom > f$i; done")
        assert any("were not stored" in line for line in world.said), world.said
        world.undo(force=True)
        assert (world.w / "src/a").read_text() == "1\n"
        assert sorted(os.listdir(world.w)) == ["b", "src"]
        assert (world.w / "b").read_text() == "1\n"
        world.keeper.close()
    finally:
        subprocess.run(["umount", str(base / "state")], check=True)


def test_a_folder_elsewhere_that_is_gone_is_told(base: Path) -> None:
    world = UndoWorkspace(base)
    out = base / "out"
    out.mkdir()
    (out / "x").write_text("1")
    permit = world.permit(RunScript(WORK, str(world.w)))
    wider = replace(permit, terms=replace(permit.terms, write=(str(out),)))
    running = asyncio.run(world.keeper.before(wider, "elsewhere", "1"))
    world.sh(f"echo 2 > {out}/x; echo 2 > a")
    world.keeper.after(running)
    shutil.rmtree(out)
    os.symlink("/etc", out)
    taken = world.undo()
    assert {item.path: "cannot be reached" in item.problem for item in taken.items} == {"x": True, "a": False}
    assert not (world.w / "a").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_told_and_the_action_runs(base: Path) -> None:
    (base / "state").mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(base / "state")], check=True)
    try:
        world = UndoWorkspace(base)
        world.sh("for i in $(seq 40); do head -c 100000 /dev/urandom > f$i; done; echo 1 > a")
        assert world.act("echo 2 > a") is None
        assert (world.w / "a").read_text() == "2\n"
        assert any("cannot be undone: no space left" in line for line in world.said), world.said
        world.sh("rm f*")
        assert world.act("echo 3 > a") is not None, "with room it goes on"
        assert world.undo().whole
        world.keeper.close()
    finally:
        subprocess.run(["umount", str(base / "state")], check=True)


FILE_SYSTEMS = [("tmpfs", ""), ("btrfs", "/sbin/mkfs.btrfs -q"), ("xfs", "/sbin/mkfs.xfs -q -m reflink=1")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")
@pytest.mark.parametrize(("kind", "make"), FILE_SYSTEMS, ids=[row[0] for row in FILE_SYSTEMS])
def test_on_other_file_systems(base: Path, kind: str, make: str) -> None:
    mount = base / "mount"
    mount.mkdir()
    if make:
        with open(base / "image", "wb") as file:
            file.truncate(400 << 20)
        subprocess.run([*make.split(), str(base / "image")], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(base / "image"), str(mount)], check=True)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(mount)], check=True)
    try:
        world = UndoWorkspace(mount)
        world.sh("head -c 50000000 /dev/urandom > big; echo 1 > a; mkdir d; echo x > d/x")
        was = world.picture()
        os.sync()
        used = shutil.disk_usage(mount).used
        world.act("head -c 1000 /dev/urandom | dd of=big conv=notrunc status=none; echo 2 > a; rm -r d")
        os.sync()
        if make:
            assert shutil.disk_usage(mount).used - used < 25_000_000, "a reflink shares what did not change"
        assert world.undo().whole
        assert world.picture() == was
        world.keeper.close()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_folder_that_is_closed_to_us_is_told(base: Path) -> None:
    def work() -> None:
        world = UndoWorkspace(base)
        world.sh("mkdir d e; echo 1 > d/x; echo 1 > a; chmod 000 e")
        world.act("echo 2 > a; chmod 000 d")
        assert world.undo().whole
        assert (world.w / "d/x").read_text() == "1\n"
        assert (world.w / "a").read_text() == "1\n"

    as_nobody(work)


def test_cancelling_a_first_look_ends_it(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh("for i in $(seq 30); do mkdir d$i; for j in $(seq 100); do echo $i $j > d$i/f$j; done; done")
    begun, kept, real = threading.Event(), list[int](), Snapshotter._content

    def content(taker: Snapshotter, handle: int, size: int, places: dict[bytes, BlobPlace]) -> bytes | None:
        kept.append(handle)
        begun.set()
        assert taker._stop.wait(60), "nobody was told to stop"
        return real(taker, handle, size, places)

    async def work() -> None:
        permit = world.permit(RunScript(WORK, str(world.w)))
        task = asyncio.create_task(world.keeper.before(permit, "x", "1"))
        assert await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshotter, "_content", content)
        asyncio.run(work())
    assert len(kept) < 3000
    assert world.act("echo x > a") is not None
    assert world.undo().whole


def test_a_store_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "steps.db").mkdir()
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="directory"):
        Store(tmp_path)
    assert sorted(os.listdir("/proc/self/fd")) == before
