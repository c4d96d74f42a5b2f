"""Tests of the JSON of commands: each command is run, and its output has the form that docs/reference/json.md states."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.cli.app import whole_command
from runner.cli.json_output import OUTPUTS, Form, JsonOutput
from tests.support.cli_harness import CliHarness
from tests.support.places import ROOT

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def _bundle(base: Path) -> str:
    (base / "notes" / "commands").mkdir(parents=True, exist_ok=True)
    (base / "notes" / "commands" / "go.md").write_text("Go\n")
    return f"{base}/notes"


def _bundle_hash(made: CliHarness, base: Path) -> str:
    return str(json.loads(made.agent("bundle", "show", _bundle(base), "--json").stdout)["sha256"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> CliHarness:
    """Return a user whose log, grants, answers, sessions, snapshots, batch and caches are not empty."""
    base = tmp_path_factory.mktemp("json")
    made = CliHarness(base)
    made.work.mkdir()
    (base / "home").mkdir()
    git = {"env": made.environ, "cwd": made.work, "check": True}
    (made.work / "AGENTS.md").write_text("Use tabs.\n")
    (made.work / "a.txt").write_text("one\n")
    subprocess.run(["git", "init", "-q"], **git)  # type: ignore[call-overload]  # the same for both
    other, who = str(base / "other"), ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q", other), (*who, "-C", other, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *words], **git)  # type: ignore[call-overload]  # the same for all
    write = {"calls": [{"name": "write", "arguments": {"path": "b.txt", "content": "two\n"}}]}
    (base / "config" / "ringfence").mkdir(parents=True)
    configuration = '[mcp.docs]\nurl = "https://mcp.example.com/mcp"\n[[hook]]\nevent = "Stop"\ncommand = "true"\n'
    (base / "config" / "ringfence" / "config.toml").write_text(configuration)
    hooks = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
    (base / "hooks.json").write_text(json.dumps(hooks))
    (base / "servers.json").write_text('{"servers": [{"command": "uvx", "args": ["notes-server"]}]}')
    (base / "script.json").write_text(json.dumps({"turn": [write, {"text": "Written."}]}))
    model = f"--model=scripted:{base}/script.json"
    (base / "tasks.jsonl").write_text(json.dumps({"id": "a", "prompt": "go", "model": model.partition("=")[2]}))
    (base / "rules.json").write_text('{"permissions":{"allow":["Bash(ls)"]}}')
    (base / "change.patch").write_text("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+three\n")
    done = [
        made.agent("trust", "accept", "--sha256", json.loads(made.agent("trust", "--json").stdout)["sha256"]),
        made.agent("exec", "true"),
        made.agent("run", model, "--mode=trust-project", "go"),
        made.agent("batch", "../tasks.jsonl"),
        made.agent("grants", "add", "make build", "p"),
        made.agent("memory", "add", "deploy on Fridays"),
        made.agent("jobs", "add", model, "--every=1h", "--name=hourly", "go"),
        made.agent("serve", "token", "add", "phone"),
        made.agent("bundle", "add", _bundle(base), "--yes-hash", _bundle_hash(made, base)),
        made.agent("audit", "merge", f"{base}/state/audit.db", "--into", f"{base}/merged.db"),
    ]
    assert [each.returncode for each in done] == [0] * len(done), [each.stderr for each in done]
    return made


def _grant(place: CliHarness) -> tuple[str, ...]:
    return ("show", str(json.loads(place.agent("grants", "--json").stdout.splitlines()[0])["id"]))


def _session(place: CliHarness) -> tuple[str, ...]:
    return ("show", str(json.loads(place.agent("sessions", "list", "--json").stdout.splitlines()[0])["id"]))


def _gone(place: CliHarness) -> tuple[str, ...]:
    """Make a grant of a folder that is deleted, for `agent grants prune`."""
    folder = place.base / "gone"
    folder.mkdir()
    place.agent("grants", "add", "make build", "p", cwd=folder)
    shutil.rmtree(folder)
    return ("prune",)


# The words with which a command prints something; without an entry, the command itself is run.
Words = tuple[str, ...] | Callable[[CliHarness], tuple[str, ...]]
# fmt: off
WORDS: dict[str, Words] = {
    "serve": ("serve", "--status"),
    "agents show":       ("agents", "show", "explore"),
    "apply":             ("apply", "--check", "{base}/change.patch"),
    "audit merge":       ("audit", "merge", "{base}/state/audit.db", "--into", "{base}/again.db"),
    "audit prune":       ("audit", "prune", "--older-than", "1d", "--dry-run"),
    "audit replay":      ("audit", "replay", "--mode", "plan"),
    "audit show":        ("audit", "show", "last"),
    "batch":             ("batch",),
    "batch check":       ("batch", "check", "{base}/tasks.jsonl"),
    "batch run":         ("batch", "run", "{base}/tasks.jsonl", "--out", "{base}/other.batch"),
    "batch show":        ("batch", "show", "{base}/tasks.batch"),
    "ci":                ("ci", "--model=scripted:{base}/script.json", "go"),
    "config get":        ("config", "get", "mode"),
    "exec":              ("exec", "echo a; cat /etc/hostname"),
    "grants prune":      lambda place: ("grants", *_gone(place)),
    "grants show":       lambda place: ("grants", *_grant(place)),
    "bundle show":       ("bundle", "show", "notes"),
    "hooks import":      ("hooks", "import", "{base}/hooks.json", "--dry-run"),
    "hooks test":        ("hooks", "test", "Stop"),
    "jobs add":          ("jobs", "add", "--in", "2h", "--model=scripted:{base}/script.json", "go"),
    "jobs run":          ("jobs", "run", "hourly"),
    "jobs show":         ("jobs", "show", "hourly"),
    "mcp import":        ("mcp", "import", "{base}/servers.json", "--dry-run"),
    "mcp show":          ("mcp", "show", "docs"),
    "memory search":     ("memory", "search", "deploy"),
    "memory show":       ("memory", "show", "deploy-on-fridays"),
    "policy import":     ("policy", "import", "{base}/rules.json"),
    "policy judge":      ("policy", "judge"),
    "profile learn":     ("profile", "learn", "true"),
    "web":               ("web", "--model=scripted:{base}/script.json", "go"),
    "repo":              ("repo", "--model=scripted:{base}/script.json", "{base}/other", "go"),
    "run":               ("run", "--model=scripted:{base}/script.json", "--mode=trust-project", "go"),
    "sandbox cache":     ("sandbox", "cache", "--all"),
    "sessions show":     lambda place: ("sessions", *_session(place)),
    "undo":              ("undo", "--dry-run"),
    "undo --clear":      ("undo", "--clear"),
    "undo --list":       ("undo", "--list"),
    "why":               ("why", "make test && ls"),
}
# fmt: on
# The key of the record is in the keyring, and processes need an open session: tests/services/test_audit_sealed.py and
# tests/process/test_control_server.py run these commands. tests/sandbox/test_server_commands.py tries tool servers.
UNRUN = {
    "audit key show",
    "processes list",
    "ports list",
    "approve",
    "ps",
    "logs",
    "attach",
    "mcp call",
    "mcp pin",
    "mcp test",
    "mcp why",
}
LAST = ("undo --clear",)  # changes what the others print


def printed(place: CliHarness, command: str) -> str:
    words = WORDS.get(command, tuple(command.split()))
    words = tuple(each.format(base=place.base) for each in (words(place) if callable(words) else words))
    flag = () if command == "policy judge" else ("--json",)
    cwd = place.base if command == "batch" else None
    stdin = b'{"id": 1, "cmd": "ls"}\n' if command == "policy judge" else None
    return place.agent(words[0], *words[1:], *flag, cwd=cwd, stdin=stdin).stdout


def fits(value: object, kind: str) -> bool:
    """Return True if `value` has the type that the page names."""
    if " or " in kind:
        return any(fits(value, each) for each in kind.split(" or "))
    match kind:
        case "null":
            return value is None
        case "text":
            return isinstance(value, str)
        case "time":
            return isinstance(value, str) and TIME.fullmatch(value) is not None
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "texts":
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case "numbers":
            return isinstance(value, list) and all(fits(each, "number") for each in value)
        case "objects":
            return isinstance(value, list) and all(isinstance(each, dict) for each in value)
        case "any":
            return True
    raise AssertionError(kind)


CHECKED = sorted((each for each in OUTPUTS if each.command not in UNRUN), key=lambda each: each.command in LAST)


@pytest.mark.parametrize("output", CHECKED, ids=[each.command for each in CHECKED])
def test_a_command_prints_what_the_page_says(place: CliHarness, output: JsonOutput) -> None:
    text = printed(place, output.command)
    lines = text.splitlines()
    assert lines, "the command prints something"
    assert text.isascii(), "no character of untrusted text controls a terminal"
    rows = [json.loads(line) for line in lines]
    if output.form is Form.OBJECT:
        assert len(rows) == 1, "one thing is one object on one line"
    for line, row in zip(lines, rows, strict=True):
        assert isinstance(row, dict)
        assert line == json.dumps(row, separators=(",", ":")), "compact"
        if output.form is Form.EVENTS:
            assert isinstance(row["type"], str)
            continue
        fields = {each.name: each for each in output.fields}
        if not output.open:
            assert not row.keys() - fields.keys(), "every field is on the page"
        missing = {each.name for each in output.fields if not each.optional} - row.keys()
        assert not missing, f"fields of the page are missing in {row}"
        for name, each in fields.items():
            assert name not in row or fits(row[name], each.kind), f"{name} is {row[name]!r}, not {each.kind}"


def test_every_command_with_json_is_on_the_page() -> None:
    found = set()

    def walk(command: object, before: tuple[str, ...]) -> None:
        if "--json" in {name for each in command.params for name in each.opts}:  # type: ignore[attr-defined]  # of typer
            found.add(" ".join(before))
        for name, each in getattr(command, "commands", {}).items():
            walk(each, (*before, name))

    walk(whole_command(), ())
    told = {each.command for each in OUTPUTS} | {name for each in OUTPUTS for name in each.also}
    assert found - told == {""}, "plain `agent --json` is a conversation (docs/guide/embedding.md)"


def test_the_page_is_generated_from_the_table() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_json.py", "--print"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == (ROOT / "docs" / "reference" / "json.md").read_text("utf-8"), "run `make docs`"


def test_no_policy_verdict_has_another_name(place: CliHarness) -> None:
    """`ruling` remains for an entry of the permission matrix (`cell`), which is not the verdict on an action."""
    for command in ("exec", "why", "grants", "policy judge", "audit list"):
        for line in printed(place, command).splitlines():
            row = json.loads(line)
            assert "ruling" not in row, command
            if command in ("grants", "why", "policy judge", "audit list") or row["type"] == "verdict":
                assert row["verdict"] in ("allow", "ask", "deny"), command


@pytest.mark.parametrize(
    "words",
    [
        ("grants",),
        ("trust", "list"),
        ("undo", "--list"),
        ("sessions",),
        ("sessions", "list"),
        ("batch",),
        ("processes",),
        ("approve",),
        ("ps",),
        ("ports",),
        ("mcp",),
        ("bundle",),
        ("hooks",),
    ],
)
def test_an_empty_list_is_no_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    made = CliHarness(tmp_path)
    made.work.mkdir()
    (tmp_path / "home").mkdir()
    done = made.agent(*words, "--json")
    assert (done.returncode, done.stdout) == (0, "")
