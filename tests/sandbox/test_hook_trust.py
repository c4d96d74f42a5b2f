"""Hooks of a repository: nothing without trust in exactly the content, and no right beyond reading."""

import json
from pathlib import Path

import pytest

from runner.config import load
from runner.config.inventory import EntryKind, Inventory
from runner.config.trust.discover import look
from runner.config.trust.session_check import TrustRequest, decide_trust, evaluate_files
from runner.config.trust.text import description
from runner.hooks.configured import find_hooks
from runner.messages import ToolCall
from runner.problems import Exit
from runner.providers.scripted import Turn
from tests.support.cli_harness import CliHarness
from tests.support.hook_session import folders, play

DONE = Turn("done")
MADE = Turn(calls=(ToolCall("", "bash", {"command": "touch made"}),))
SETTINGS = json.dumps(
    {
        "hooks": {
            "PreToolUse": [
                {"matcher": "Bash", "hooks": [{"type": "command", "command": "sh tools/guard.sh"}]},
            ]
        }
    },
    indent=1,
)
GUARD = "cat > /dev/null\necho 'guarded' >&2\nexit 2\n"


def repository(place: Path) -> Path:
    """Create a repository with a hook whose script lies in a folder of its own."""
    work, _ = folders(place)
    for name, text in (
        (".claude/settings.json", SETTINGS),
        ("tools/guard.sh", GUARD),
        (".claude/hooks/lib.sh", "x=1\n"),
    ):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    return work


@pytest.mark.threat("T210")
def test_no_hook_of_a_repository_runs_without_trust(tmp_path: Path) -> None:
    work = repository(tmp_path)
    inventory = look(str(work))
    assert set(inventory.hashes(EntryKind.HOOK)) == {".claude/settings.json", ".claude/hooks/lib.sh", "tools/guard.sh"}
    _, environ = folders(tmp_path)
    settings = load(work, environ)
    files = decide_trust(TrustRequest(str(work), attended=False), settings, environ)
    assert files.inventory is None
    assert "`.claude/settings.json`" in files.notices[0]
    assert not find_hooks(settings, str(work), environ["HOME"], None).hooks
    review, _ = evaluate_files(inventory, settings, environ)
    assert ".claude/settings.json" in review.counts
    text = "\n".join(description(review))
    assert "PreToolUse(Bash): sh tools/guard.sh" in text
    assert "tools/guard.sh" in text
    pinned = decide_trust(TrustRequest(str(work), attended=False, pinned=inventory.sha256), settings, environ)
    assert find_hooks(settings, str(work), environ["HOME"], pinned.inventory).hooks


@pytest.mark.threat("T210")
def test_a_pipeline_runs_hooks_of_a_repository_only_with_the_hash(tmp_path: Path) -> None:
    agent = CliHarness(tmp_path)
    agent.work.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (agent.work / ".claude").mkdir()
    (agent.work / "guard.sh").write_text(GUARD)
    (agent.work / ".claude/settings.json").write_text(SETTINGS.replace("tools/guard.sh", "./guard.sh"))
    script = {"turn": [{"calls": [{"name": "bash", "arguments": {"command": "touch made"}}]}, {"text": "done"}]}
    (tmp_path / "script.json").write_text(json.dumps(script))
    words = ("ci", f"--model=scripted:{tmp_path}/script.json", "--mode=trust-project", "go")
    done = agent.agent(*words)
    assert done.returncode == 0, done.stderr
    assert "`.claude/settings.json`" in done.stdout + done.stderr
    assert (agent.work / "made").exists()
    (agent.work / "made").unlink()
    sha256 = look(str(agent.work)).sha256
    done = agent.agent(*words, f"--trust-config={sha256}")
    assert done.returncode == Exit.DENIED, done.stderr
    assert not (agent.work / "made").exists()


def trusted(work: Path) -> Inventory:
    return look(str(work))


@pytest.mark.threat("T209")
@pytest.mark.parametrize("change", ["nothing", "changed", "gone", "beside", "appeared"])
def test_a_script_that_changed_since_the_trust_is_not_run(change: str, tmp_path: Path) -> None:
    work = repository(tmp_path)
    if change == "beside":
        (work / "tools/hooks").mkdir()
        (work / "tools/guard.sh").rename(work / "tools/hooks/guard.sh")
        text = SETTINGS.replace("tools/guard.sh", "tools/hooks/guard.sh")
        (work / ".claude/settings.json").write_text(text.replace("sh tools", "sh .claude/hooks/lib.sh; sh tools"))
    if change == "appeared":
        (work / "tools/guard.sh").unlink()
    inventory = trusted(work)
    ran = work / "tools/ran"
    match change:
        case "changed" | "appeared":
            (work / "tools/guard.sh").write_text(f"echo allowed; touch {ran}\nexit 0\n")
        case "gone":
            (work / "tools/guard.sh").unlink()
        case "beside":
            (work / ".claude/hooks/lib.sh").write_text("exit 0\n")
    got = play(tmp_path, "", MADE, DONE, trusted=inventory)
    assert got.ending is not None
    assert got.ending.exit is Exit.DENIED
    assert not (work / "made").exists()
    ((decision, reason),) = [(each["answer"], each["reason"]) for each in got.records_of_hooks()]
    assert decision == "deny"
    assert ("is not the file that you trusted" in reason) is (change != "nothing"), reason
    assert ("guarded" in reason) is (change == "nothing"), reason


@pytest.mark.threat("T211")
@pytest.mark.parametrize(
    "key", ['write = ["."]', 'hosts = ["example.org"]', 'read = ["/etc"]', 'on_failure = "continue"']
)
def test_a_repository_states_no_rights(key: str, tmp_path: Path) -> None:
    work, environ = folders(tmp_path)
    (work / ".ringfence").mkdir()
    (work / ".ringfence/config.toml").write_text(f'[[hook]]\nevent = "Stop"\ncommand = "true"\n{key}\n')
    inventory = look(str(work))
    settings = load(work, environ, trusted=inventory.hashes(EntryKind.CONFIGURATION))
    found = find_hooks(settings, str(work), environ["HOME"], inventory)
    assert not found.hooks
    assert "counts only in your own configuration" in found.faults[0].why
    untrusted = load(work, environ)
    assert not find_hooks(untrusted, str(work), environ["HOME"], None).any
    assert "[[hook]]" in untrusted.notices[0]
