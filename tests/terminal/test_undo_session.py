"""Tests of undo as users have it: a scripted model in the real sandbox, then `agent undo` and /undo."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.events import ActionFinished, Event
from runner.problems import Exit
from runner.providers.scripted import Turn
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.conversation import ScriptedUser, bash, play_conversation, shown_text
from tests.support.terminal_screen import ScreenTerminal

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")


@pytest.fixture
def base() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="u"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Harness:
    """A repository of one commit, and a model that does `calls` in it."""

    def __init__(self, base: Path) -> None:
        self.base, self.w = base, base / "w"
        (base / "home").mkdir()
        (self.w / "src").mkdir(parents=True)
        (self.w / "a.txt").write_text("one\n")
        (self.w / "src" / "m.py").write_text("print('hello')\n")
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
            subprocess.run([*GIT, *words], cwd=self.w, check=True)
        (self.w / "a.txt").write_text("never committed\n")

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.base / "home"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "RINGFENCE_STATE_DIR": str(self.base / "state"),
        }

    def agent(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forked_agent.run(
            [AGENT, *words],
            cwd=self.w, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    def model(self, *calls: tuple[str, dict[str, str]]) -> Path:
        lines = [
            f"[[turn]]\ncalls = [{{ name = {json.dumps(name)}, arguments = {{ {_toml(arguments)} }} }}]"
            for name, arguments in calls
        ]
        path = self.base / "script.toml"
        path.write_text("\n".join([*lines, '[[turn]]\ntext = "done"']))
        return path

    def run(self, *calls: tuple[str, dict[str, str]]) -> None:
        done = self.agent("run", "--mode", "dangerously", "--model", f"scripted:{self.model(*calls)}", "go")
        assert done.returncode == 0, done.stdout + done.stderr

    def git(self, *words: str) -> str:
        return subprocess.run([*GIT, *words], cwd=self.w, check=True, capture_output=True, text=True).stdout


def _toml(arguments: dict[str, str]) -> str:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in arguments.items())


# fmt: off
CALLS: list[tuple[tuple[str, dict[str, str]], str]] = [
    (("bash", {"command": "rm -rf src a.txt"}),                        "rm -rf"),
    (("bash", {"command": "mv src lib; mv a.txt lib/b.txt"}),          "mv"),
    (("bash", {"command": "sed -i s/never/ever/ a.txt"}),              "sed -i"),
    (("bash", {"command": "chmod 600 a.txt; chmod 500 src"}),          "chmod"),
    (("bash", {"command": "git reset -q --hard"}),                     "git reset --hard"),
    (("bash", {"command": "git -c user.name=m -c user.email=m@m commit -qam two"}), "git commit"),
    (("bash", {"command": "rm a.txt; ln -s src a.txt; ln -s /etc/passwd p"}), "links"),
    (("bash", {"command": "python3 -c \"import shutil; shutil.rmtree('src'); open('src', 'w').write('x')\""}), "code nobody reads"),
    (("write", {"path": "a.txt", "content": "by the tool"}),           "write"),
    (("write", {"path": "new/deep/file", "content": "by the tool"}),   "write, with folders"),
    (("edit", {"path": "a.txt", "old_string": "never", "new_string": "ever"}),       "edit"),
]
# fmt: on


@pytest.mark.parametrize(("call", "why"), CALLS, ids=[row[1] for row in CALLS])
def test_every_kind_of_action_is_taken_back(base: Path, call: tuple[str, dict[str, str]], why: str) -> None:
    harness = Harness(base)
    before, status, head = _tree(harness.w), harness.git("status", "--short"), harness.git("log", "--oneline")
    read = [("read", {"path": "a.txt"})] if call[0] == "edit" else []
    harness.run(*read, call)
    assert (_tree(harness.w), harness.git("log", "--oneline")) != (before, head), "it did something"
    done = harness.agent("undo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _tree(harness.w) == before
    assert (harness.git("status", "--short"), harness.git("log", "--oneline")) == (status, head)


def _tree(top: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(top.rglob("*")):
        if ".git" not in path.relative_to(top).parts:
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
            found[str(path.relative_to(top))] = (path.lstat().st_mode, content)
    return found


def test_the_list_the_diff_and_the_codes(base: Path) -> None:
    harness = Harness(base)
    none = harness.agent("undo", "--list")
    assert (none.returncode, none.stdout) == (0, "nothing to undo: no action of a model changed a file here\n")
    assert harness.agent("undo").returncode == Exit.FAILED
    assert harness.agent("undo", "--list", "--json").stdout == ""
    harness.run(
        ("bash", {"command": "echo two > a.txt; echo new > b.txt; rm -r src"}), ("bash", {"command": "cat a.txt"})
    )
    listed = harness.agent("undo", "--list").stdout
    assert "+1 ~1 -2  $ echo two > a.txt; echo new > b.txt; rm -r src" in listed
    assert len(listed.splitlines()) == 1, "a look is no step"
    step = json.loads(harness.agent("undo", "--list", "--json").stdout)
    assert {(change["path"], change["change"]) for change in step["changes"]} == {
        ("a.txt", "~"), ("b.txt", "+"), ("src", "-"), ("src/m.py", "-"),
    }  # fmt: skip
    was = _tree(harness.w)
    dry = harness.agent("undo", "--dry-run")
    assert dry.returncode == 0
    assert "would undo 1: $ echo two" in dry.stdout
    diff = harness.agent("undo", "--diff").stdout
    assert "-two\n+never committed\n" in diff
    assert "+print('hello')" in diff
    assert _tree(harness.w) == was, "nothing was done yet"
    (harness.w / "a.txt").write_text("mine\n")
    done = harness.agent("undo", "--json")
    assert done.returncode == Exit.FAILED
    said = json.loads(done.stdout)
    assert {item["path"]: item["done"] for item in said["items"]} == {
        "a.txt": False, "b.txt": True, "src": True, "src/m.py": True,
    }  # fmt: skip
    assert (harness.w / "a.txt").read_text() == "mine\n"
    forced = harness.agent("undo", "--force")
    assert (forced.returncode, (harness.w / "a.txt").read_text()) == (0, "never committed\n")
    assert harness.agent("undo", "--redo").returncode == 0
    assert (harness.w / "a.txt").read_text() == "mine\n", "what was overwritten by force comes back too"
    rows = harness.agent("undo", "--list").stdout.splitlines()
    steps = [row for row in rows if re.match(" *[0-9]+  20", row)]
    assert len(steps) == 4
    assert all(row[27] == " " and row[28] == "+" and row[36:38] == "  " for row in steps), "in columns"
    assert rows[-1].startswith("`agent undo N` undoes the N newest actions"), "a number in the list is no N"
    many = harness.agent("undo", "9")
    assert (many.returncode, "9 actions cannot be undone" in many.stderr) == (Exit.FAILED, True)
    assert "only 1 stored action can be undone" in many.stderr
    assert "write agent undo 1" in many.stderr
    assert [harness.agent("undo", "--force").returncode for _ in range(2)] == [Exit.DONE, Exit.FAILED], (
        "nothing left is no mistake"
    )
    for words in (["0"], ["--list", "2"], ["--redo", "2"], ["--wrong"]):
        assert harness.agent("undo", *words).returncode == Exit.USAGE, words


def test_all_of_it_can_be_forgotten(base: Path) -> None:
    harness = Harness(base)
    assert harness.agent("undo", "--clear").stdout == "nothing was stored\n"
    harness.run(("bash", {"command": "echo two > a.txt"}))
    assert harness.agent("undo", "--clear", "--list").returncode == Exit.USAGE
    assert "deleted" in harness.agent("undo", "--clear").stdout
    assert list((base / "state/snapshots").iterdir()) == []
    assert harness.agent("undo").returncode == Exit.FAILED
    harness.run(("bash", {"command": "echo three > a.txt"}))
    assert harness.agent("undo").returncode == 0
    assert (harness.w / "a.txt").read_text() == "two\n"
    # Snapshots of a workspace that was removed long ago are deleted when a new one is kept.
    old = base / "state/snapshots/gone-0123456789abcdef"
    shutil.copytree(next((base / "state/snapshots").iterdir()), old)
    (old / "workspace").write_text(str(base / "gone"))
    os.utime(old / "steps.db", (0, 0))
    (base / "other").mkdir()
    harness.w = base / "other"
    harness.run(("bash", {"command": "echo one > a.txt"}))
    assert not old.exists()


def test_undo_in_a_talk_and_the_model_is_told(tmp_path: Path) -> None:
    events: list[Event] = []
    w = tmp_path / "w"
    seen: list[bool] = []
    turns = [
        bash("mkdir d; echo one > d/kept"),
        bash("echo two > d/kept; echo > more"),
        Turn("done"),
        bash("cat d/kept"),
        Turn("done"),
    ]
    person = ScriptedUser(
        "write it",
        lambda: seen.append((w / "more").exists()),
        "/undo",
        lambda: seen.append((w / "d/kept").read_text() == "one\n" and not (w / "more").exists()),
        "go on",
        "/rewind x",
        "/rewind 5",
        "/undo 1",
        lambda: seen.append(not (w / "d").exists()),
        "/quit",
    )
    assert play_conversation(tmp_path, turns, person, events.append) == Exit.DONE
    assert seen == [True, True, True]
    said = shown_text(events)
    assert "undid 2: $ echo two > d/kept; echo > more" in said
    assert "not a number of actions" in said
    assert "only 1 stored action" in said
    assert "one" in [event for event in events if isinstance(event, ActionFinished)][-1].text


def test_looking_back_keeps_no_copy_of_what_the_environment_holds(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session keeps no file with a key in it; `agent undo` is another process, which has to know the key as well."""
    token = "tok-5d0c1d2e3f4a5b6c"  # made up
    harness = Harness(base)
    monkeypatch.setattr(Harness, "environ", harness.environ | {"FORGE_TOKEN": token})
    harness.run(("bash", {"command": f"printf %s {token} > note.txt"}))
    shown = harness.agent("undo", "--diff")
    assert token not in shown.stdout + shown.stderr
    kept = [path for path in (base / "state").rglob("*") if path.is_file()]
    assert [path for path in kept if token.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("transactions", [True, False])
def test_with_required_nothing_runs_that_could_not_be_undone(base: Path, transactions: bool) -> None:
    """A transaction needs no scan of the workspace, so the number of its files does not matter."""
    harness = Harness(base)
    (base / "home/.config/ringfence").mkdir(parents=True, mode=0o700)
    config = f"[undo]\nrequired = true\nfiles = 3\n[sandbox]\ntransactions = {str(transactions).lower()}\n"
    (base / "home/.config/ringfence/config.toml").write_text(config)
    script = harness.model(("bash", {"command": "echo ran > b.txt"}), ("bash", {"command": "cat a.txt"}))
    done = harness.agent("run", "--mode", "trust-project", "--model", f"scripted:{script}", "go")
    refused = "nothing was run, because the action could not be undone" in done.stderr
    assert refused is not transactions
    assert "never committed" in done.stderr, "a look goes on"
    assert (harness.w / "b.txt").exists() is transactions
    if transactions:
        assert "remove      b.txt" in harness.agent("undo").stdout
    assert not (harness.w / "b.txt").exists()


def test_on_a_real_terminal(base: Path) -> None:
    harness = Harness(base)
    script = harness.model(("bash", {"command": "rm -rf src; echo two > a.txt"}))
    words = ("--mode", "trust-project", "--model", f"scripted:{script}")
    window = ScreenTerminal(harness.w, harness.environ, AGENT, "--plain", *words)
    try:
        window.until("/quit to leave")
        window.type("go", "Enter")
        window.until("done (2 requests)")
        assert not (harness.w / "src").exists()
        window.type("/undo", "Enter")
        shown = window.until("bring back  src/m.py")
        assert "change back a.txt" in shown
        assert (harness.w / "a.txt").read_text() == "never committed\n"
        assert (harness.w / "src/m.py").exists()
        window.leave()
    finally:
        window.close()
    (row,) = undone(harness)
    assert row["session"] in {each["session"] for each in map(json.loads, export(harness)) if each["tool"] == "bash"}
    assert (row["action"], row["answer"]["by"]) == (
        {"path": str(harness.w), "redo": False, "steps": 1, "type": "Undo"},
        "/undo",
    )
    assert row["kind"] == "applied"
    changed = {each["path"].removeprefix(f"{harness.w}/"): each for each in row["outcome"]["changed"]}
    assert changed["a.txt"]["how"] == "modified"
    assert changed["a.txt"]["before"] == hashlib.sha256(b"two\n").hexdigest()
    assert changed["a.txt"]["after"] == hashlib.sha256(b"never committed\n").hexdigest()
    assert changed["src/m.py"]["how"] == "added"


def export(harness: Harness) -> list[str]:
    return harness.agent("audit", "export", "--format", "jsonl").stdout.splitlines()


def undone(harness: Harness) -> list[dict[str, Any]]:
    """Return the records of undos."""
    return [row for row in map(json.loads, export(harness)) if row["tool"] == "undo"]


def test_the_record_has_an_undo_and_a_redo_with_hashes(base: Path) -> None:
    harness = Harness(base)
    script = harness.model(("edit", {"path": "a.txt", "old_string": "never", "new_string": "once"}))
    done = harness.agent("run", "--mode", "trust-project", "--model", f"scripted:{script}", "go")
    assert done.returncode == 0, done.stderr
    harness.agent("undo", "--dry-run")
    assert undone(harness) == [], "a look is no undo"
    assert harness.agent("undo").returncode == 0
    assert harness.agent("undo", "--redo").returncode == 0
    old, new = (hashlib.sha256(f"{word} committed\n".encode()).hexdigest() for word in ("never", "once"))
    rows = sorted(undone(harness), key=lambda row: int(row["id"]))
    assert [row["action"]["redo"] for row in rows] == [False, True]
    for row, before, after in zip(rows, (new, old), (old, new), strict=True):
        (file,) = row["outcome"]["changed"]
        assert (file["how"], file["before"], file["after"]) == ("modified", before, after)
        assert row["answer"]["by"] == "command line"
    shown = harness.agent("audit", "show", "--text", str(rows[0]["id"])).stdout
    assert f"modified {harness.w}/a.txt ({new[:16]} to {old[:16]})" in shown
    assert "the user undid 1 action, which changes 1 file" in shown
    assert harness.agent("audit", "verify").returncode == 0


def test_an_undo_that_cannot_be_recorded_says_so_and_goes_on(base: Path) -> None:
    harness = Harness(base)
    script = harness.model(("edit", {"path": "a.txt", "old_string": "never", "new_string": "once"}))
    harness.agent("run", "--mode", "trust-project", "--model", f"scripted:{script}", "go")
    for path in (base / "state").glob("audit.db*"):
        path.unlink()
    (base / "state" / "audit.db").mkdir()
    done = harness.agent("undo")
    assert "this undo is not recorded" in done.stderr
    assert done.returncode == 0, done.stderr
    assert (harness.w / "a.txt").read_text() == "never committed\n"
