"""A day with sub-agents, hooks and the record, through the command line: the model is scripted, everything else real."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from runner.cli.main import main
from tests.support.bundle_folders import AGENT, PLUGIN, write_files

HOOKS = """
[[hook]]
event   = "PostToolUse"
matcher = "edit|write"
command = '''for each in notes.txt; do [ -f "$each" ] && sed -i 's/ *$//' "$each"; done; exit 0'''
write   = ["."]

[[hook]]
event   = "PreToolUse"
matcher = "bash"
if      = "Bash(git commit *)"
command = '''if grep -rn "TODO" --include=*.txt . >&2; then echo "remove these before the commit" >&2; exit 2; fi'''

[[hook]]
event   = "Stop"
command = '''sh ./run-tests.sh > /dev/null 2>&1 || { echo "the tests fail: run ./run-tests.sh" >&2; exit 2; }'''
"""
COMMIT = "git add -A && git commit -qm work"


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def bash(command: str) -> dict[str, object]:
    return call("bash", command=command)


@pytest.fixture
def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a test that is red, the configuration with three hooks, and the scripts of all models."""
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "run-tests.sh").write_text("test -f fixed.txt\n")
    (workspace / "notes.txt").write_text("one\n")
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"),
    ):
        subprocess.run(["git", *words], cwd=workspace, check=True, capture_output=True)
    config = tmp_path / "h/.config/ringfence"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(HOOKS)
    children = {
        "one": [[call("write", path="notes.txt", content="by one   \n")], "one is done"],
        "two": [[bash(f"echo two > two.txt && {COMMIT}")], "two is done"],
        "three": [[bash("echo TODO > three.txt")], [bash(COMMIT)], "three is done"],
    }
    for name, turns in children.items():
        script(tmp_path / f"{name}.json", turns)
    spawns = [
        call(
            "agent",
            agent="general",
            prompt=f"do {name}",
            isolation="worktree",
            model=f"scripted:{tmp_path}/{name}.json",
        )
        for name in children
    ]
    script(
        tmp_path / "main.json",
        [
            spawns,
            [call("write", path="notes.txt", content="TODO: trailing blanks   \n")],
            [bash(COMMIT)],
            [call("write", path="notes.txt", content="no blanks at the end   \n"), bash(COMMIT)],
            "finished",
            [bash("touch fixed.txt")],
            "now finished",
        ],
    )
    monkeypatch.chdir(workspace)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "h"))
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def script(path: Path, turns: list[object]) -> None:
    path.write_text(
        json.dumps({"turn": [{"text": each} if isinstance(each, str) else {"calls": each} for each in turns]})
    )


def test_a_day_with_agents_and_hooks(
    day: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []  # on standard error

    def agent(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["agent", *words])
        code = main()
        printed = capfd.readouterr()
        said.append(printed.err)
        return code, printed.out

    source = write_files(day / "source", PLUGIN)
    shown = json.loads(agent("bundle", "show", str(source), "--json")[1])
    assert agent("bundle", "add", str(source), "--yes-hash", shown["sha256"])[0] == 0

    _, out = agent("run", "--json", "--model", f"scripted:{day}/main.json", "--mode", "trust-project", "go")
    events = [json.loads(line) for line in out.splitlines()]
    results = [each for each in events if each["type"] == "finished" and each["agent"] == "main"]
    reports = [each["text"] for each in sorted(results, key=lambda each: each["call"])][:3]
    assert ["one is done" in reports[0], "two is done" in reports[1], "three is done" in reports[2]] == [True] * 3
    assert "notes.txt (modified)" in reports[0]
    patch = reports[0].partition("`agent apply ")[2].partition("`")[0]
    assert "+by one\n" in Path(patch).read_text(), "the formatter worked in the worktree of the agent"
    branch = reports[1].partition("`git merge ")[2].partition("`")[0]
    assert "two.txt" in subprocess.run(["git", "show", "--stat", branch], capture_output=True, text=True).stdout
    denied = [each for each in events if each["type"] == "denied"]
    assert [each["agent"] for each in denied] == ["general-3", "main"], "the linter denies the commits with TODO"
    assert all("remove these before the commit" in json.dumps(each["problem"]) for each in denied)
    assert (day / "w/notes.txt").read_text() == "no blanks at the end\n"
    (ended,) = [each for each in events if each["type"] == "run_ended" and each["agent"] == "main"]
    assert ended["text"] == "now finished", "the hook of Stop let the run go on until the tests were green"
    assert (day / "w/fixed.txt").exists()

    (source / "agents/rev.md").write_text(AGENT.replace("Read, Grep", "Read"))
    assert agent("bundle", "update", "tidy", "--yes-hash", shown["sha256"])[0] != 0, "another content was accepted"
    later = json.loads(agent("bundle", "show", str(source), "--json")[1])
    code, _ = agent("bundle", "update", "tidy", "--yes-hash", later["sha256"])
    assert (code, "agents/rev.md" in said[-1]) == (0, True), said[-1]
    (listed,) = [json.loads(line) for line in agent("bundle", "list", "--json")[1].splitlines()]
    assert (listed["name"], listed["sha256"]) == ("tidy", later["sha256"])

    _, stats = agent("audit", "stats")
    for name in ("main > general-1", "main > general-2", "main > general-3"):
        assert name in stats
    _, listed = agent("audit", "list", "--json", "--agent", "general-3", "--limit", "1000")
    tools = [json.loads(line)["tool"] for line in listed.splitlines()]
    assert "worktree" in tools
    assert "bash" in tools
    page = day / "report.html"
    assert agent("audit", "export", "--out", str(page))[0] == 0
    assert "general-2" in page.read_text()
    _, replayed = agent("audit", "replay", "--json")
    assert json.loads(replayed.splitlines()[-1])["differences"] == []
    assert agent("audit", "verify")[0] == 0
