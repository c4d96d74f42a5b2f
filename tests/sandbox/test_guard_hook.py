"""The hook program of `agent guard` and the rewritten commands, as real processes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.agent_program import impatient
from tests.support.cli_harness import AGENT, CliHarness


@pytest.fixture
def place(tmp_path: Path) -> CliHarness:
    for name in ("home/.ssh", "work", "state", "config", "cache"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("key")
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    return CliHarness(tmp_path)


def hook(
    place: CliHarness, tool: str, given: object, *words: str, agent: str = "claude", **fields: object
) -> subprocess.CompletedProcess[str]:
    source = {
        "session_id": "s1",
        "cwd": str(place.work),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": given,
        "tool_use_id": "call-1",
        **fields,
    }
    return place.agent("guard", "hook", agent, *words, stdin=json.dumps(source).encode())


def answered(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["hookSpecificOutput"]
    assert isinstance(found, dict)
    return found


def command_of(done: subprocess.CompletedProcess[str]) -> str:
    new = answered(done)["updatedInput"]
    assert isinstance(new, dict)
    return str(new["command"])


def shell(place: CliHarness, command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as the shell tool of an agent does."""
    return subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=cwd or place.work,
        env=place.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_an_allowed_command_runs_in_the_sandbox_with_the_ids_of_the_agent(place: CliHarness) -> None:
    script = "cat ../home/.ssh/id_rsa; echo new > made.txt; echo done"
    told = hook(place, "Bash", {"command": "echo new > made.txt; echo done", "timeout": 9}, "--mode", "trust-project")
    assert answered(told)["permissionDecision"] == "allow"
    assert answered(told)["updatedInput"] == {"command": command_of(told), "timeout": 9}
    ran = shell(place, command_of(told))
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    assert answered(hook(place, "Bash", {"command": script}, "--mode", "trust-project"))["permissionDecision"] == "deny"
    allowed, denied = sorted(place.audit(), key=lambda row: str(row["verdict"]))
    assert (allowed["verdict"], denied["verdict"]) == ("allow", "deny")
    assert allowed["session"] == denied["session"], "one session of the agent is one here"
    shown = place.agent("audit", "show", str(allowed["id"])).stdout
    for part in ("call-1", "claude", "s1", "Bash"):
        assert part in shown, part
    assert (place.work / "made.txt").read_text() == "new\n"
    undone = place.agent("undo")
    assert undone.returncode == 0, undone.stderr
    assert not (place.work / "made.txt").exists()


@pytest.mark.threat("T192")
def test_a_token_counts_once_and_for_its_command_only(place: CliHarness) -> None:
    command = command_of(hook(place, "Bash", {"command": "echo one >> made.txt"}, "--mode", "trust-project"))
    assert shell(place, command).returncode == 0
    again = shell(place, command)
    assert again.returncode == 3
    assert "used before" in again.stderr
    assert (place.work / "made.txt").read_text() == "one\n"
    for change, says in ((" --mode dangerously", "no other option"), (" --write /", "no other option")):
        command = command_of(hook(place, "Bash", {"command": "echo two"}, "--mode", "trust-project"))
        more = shell(place, command.replace(" 'echo two'", f"{change} 'echo two'"))
        assert more.returncode == 2
        assert says in more.stderr
    (place.work / "sub").mkdir()
    elsewhere = shell(place, command, place.work / "sub")
    assert elsewhere.returncode == 3
    assert "another folder" in elsewhere.stderr
    other = command_of(hook(place, "Bash", {"command": "echo three"}, "--mode", "trust-project"))
    changed = shell(place, other.replace("echo three", "echo four"))
    assert changed.returncode == 3
    assert "another command" in changed.stderr


def test_a_question_that_the_user_of_the_agent_answered_counts(place: CliHarness) -> None:
    told = hook(place, "Bash", {"command": "echo a > made.txt"}, "--mode", "default")
    assert answered(told)["permissionDecision"] == "ask"
    ran = shell(place, command_of(told))
    assert ran.returncode == 0, ran.stderr
    assert (place.work / "made.txt").exists()
    told = hook(place, "Bash", {"command": "echo b > made.txt"}, "--mode", "default", permission_mode="dontAsk")
    assert answered(told)["permissionDecision"] == "deny"
    assert "agent exec 'echo b > made.txt'" in str(answered(told)["permissionDecisionReason"])


def test_an_answer_counts_only_for_the_question_that_was_asked(place: CliHarness) -> None:
    told = hook(place, "Bash", {"command": "echo a > made.txt"}, "--mode", "default")
    os.symlink("../home/.profile", place.work / "made.txt")  # the same script would now write elsewhere
    ran = shell(place, command_of(told))
    assert ran.returncode == 3, ran.stderr
    assert not (place.base / "home" / ".profile").exists()


# fmt: off
FILES = [
    ("Read", {"file_path": "~/.ssh/id_rsa"}, "deny", "a-key"),
    ("Read", {"file_path": "link"}, "deny", "a-link-to-a-key"),
    ("Read", {"file_path": "plain.txt"}, "allow", "a-plain-file"),
    ("Write", {"file_path": "plain.txt", "content": "x"}, "allow", "a-write"),
    ("Grep", {"pattern": "x"}, "deny", "a-search-of-a-folder"),
    ("TodoWrite", {"todos": []}, "", "inert"),
]
# fmt: on


@pytest.mark.parametrize(("tool", "given", "said", "why"), FILES, ids=[row[-1] for row in FILES])
def test_tools_that_the_agent_runs_itself_are_judged(
    tool: str, given: dict[str, object], said: str, why: str, place: CliHarness
) -> None:
    (place.work / "plain.txt").write_text("x")
    os.symlink("../home/.ssh/id_rsa", place.work / "link")
    done = hook(place, tool, given, "--mode", "trust-project")
    assert (answered(done)["permissionDecision"] if done.stdout else "") == said


# fmt: off
BROKEN = [
    (b"", (), "empty"),
    (b"{", (), "no-json"),
    (b'{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}', (), "no-command"),
    (None, ("--mode", "quick"), "unknown-mode"),
    (None, ("--speed", "9"), "unknown-option"),
    (None, ("--config", "/nonexistent/c.toml"), "no-configuration"),
]
# fmt: on


@pytest.mark.threat("T193")
@pytest.mark.parametrize(("data", "words", "why"), BROKEN, ids=[row[-1] for row in BROKEN])
def test_a_hook_that_cannot_judge_denies(
    data: bytes | None, words: tuple[str, ...], why: str, place: CliHarness
) -> None:
    if data is None:
        done = hook(place, "Bash", {"command": "ls"}, *words)
    else:
        done = place.agent("guard", "hook", "claude", *words, stdin=data)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "denied" in done.stderr


@pytest.mark.threat("T193")
@pytest.mark.parametrize("broken", ["state", "config"])
def test_a_state_or_configuration_that_cannot_be_used_is_a_denial(broken: str, place: CliHarness) -> None:
    if broken == "state":
        (place.base / "state").rmdir()
        (place.base / "state").write_text("a file")
    else:
        (place.base / "config" / "ringfence").mkdir()
        (place.base / "config" / "ringfence" / "config.toml").write_text("[")
    assert hook(place, "Bash", {"command": "ls"}).returncode == 2


@pytest.mark.threat("T193")
def test_an_input_that_does_not_end_is_a_denial(place: CliHarness) -> None:
    """The writer keeps the pipe open, as a hung agent would."""
    reader, writer = os.pipe()
    try:
        os.write(writer, b'{"hook_event_name": ')
        done = subprocess.run(
            [*impatient("runner.frontends.guard.hook", "_INPUT_TIME", 0.3), "guard", "hook", "claude"],
            stdin=reader,
            cwd=place.work,
            env=place.environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert done.returncode == 2
    assert "does not end" in done.stderr


@pytest.mark.threat("T194")
def test_a_call_that_ran_without_its_rewritten_command_is_reported(place: CliHarness) -> None:
    script = {"command": "echo a"}
    told = hook(place, "Bash", script, "--mode", "trust-project")
    after = hook(place, "Bash", script, hook_event_name="PostToolUse")
    assert json.loads(after.stdout)["decision"] == "block"
    assert "WITHOUT the sandbox" in after.stdout
    shell(place, command_of(told))
    good = hook(place, "Bash", {"command": command_of(told)}, hook_event_name="PostToolUse")
    assert (good.returncode, good.stdout) == (0, "")
    listed = (place.base / "state" / "guard" / "unconfined.jsonl").read_text().splitlines()
    assert [json.loads(line)["script"] for line in listed] == ["echo a"]


@pytest.mark.threat("T192")
def test_an_agent_that_cannot_rewrite_is_told_what_to_run(place: CliHarness) -> None:
    source = {
        "conversation_id": "s1",
        "hook_event_name": "beforeShellExecution",
        "command": "echo a > made.txt",
        "cwd": str(place.work),
    }
    words = ("guard", "hook", "cursor", "--mode", "trust-project")
    done = place.agent(*words, stdin=json.dumps(source).encode())
    told = json.loads(done.stdout)
    assert (done.returncode, told["permission"]) == (2, "deny")
    command = str(told["agent_message"]).partition("run exactly this instead: ")[2]
    again = place.agent(*words, stdin=json.dumps({**source, "command": command}).encode())
    assert json.loads(again.stdout)["permission"] == "allow"
    for other in (
        command.replace(AGENT, str(place.work / "agent")),
        f"{command}; echo b > other.txt",
        f"{command} > other.txt",
        command.replace("'echo a > made.txt'", "$(echo b > other.txt)"),
        f"PATH=. {command}",
        f" {command}",
    ):  # in another form than the told one it is a script like any other
        told = json.loads(place.agent(*words, stdin=json.dumps({**source, "command": other}).encode()).stdout)
        assert told["permission"] == "deny", other
    assert not (place.work / "made.txt").exists()
    assert shell(place, command).returncode == 0
    assert (place.work / "made.txt").exists()
    replay = place.agent(*words, stdin=json.dumps({**source, "command": command}).encode())
    assert json.loads(replay.stdout)["permission"] == "deny"
