"""The installed shell prefix as a real process: what Claude Code asks it to run, and what then runs where."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.cli_harness import CliHarness

SESSION = {"CLAUDE_CODE_SESSION_ID": "s1"}


@pytest.fixture
def place(tmp_path: Path) -> CliHarness:
    for name in ("home/.ssh", "work", "state", "config", "cache"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("the-private-key")
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    made = CliHarness(tmp_path)
    done = made.agent("guard", "claude", "--install", "--mode", "trust-project", "--cold", "--yes")
    assert done.returncode == 0, done.stderr
    return made


def program(place: CliHarness) -> str:
    settings = json.loads((place.base / "home/.claude/settings.json").read_text())
    return str(settings["env"]["CLAUDE_CODE_SHELL_PREFIX"])


def prefixed(place: CliHarness, *given: str, environ: dict[str, str] | None = None, stdin: bytes = b"") -> (
    "subprocess.CompletedProcess[str]"
):  # fmt: skip
    """Run the prefix as Claude Code does."""
    done = subprocess.run(
        [program(place), *given], cwd=place.work, env={**place.environ, **SESSION} if environ is None else environ,
        input=stdin, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def wrapped(script: str) -> str:
    quoted = "'" + script.replace("'", "'\"'\"'") + "'"
    return (
        f"source /nonexistent/snapshot 2>/dev/null || true && eval {quoted} < /dev/null && pwd -P >| /tmp/claude-0-cwd"
    )


def hook(place: CliHarness, event: str, script: str) -> "subprocess.CompletedProcess[str]":
    source = {
        "session_id": "s1", "cwd": str(place.work), "permission_mode": "default", "hook_event_name": event,
        "tool_name": "Bash", "tool_input": {"command": script}, "tool_use_id": "call-1",
    }  # fmt: skip
    return place.agent("guard", "hook", "claude", "--mode", "trust-project", stdin=json.dumps(source).encode())


def rewritten(place: CliHarness, script: str) -> str:
    return str(json.loads(hook(place, "PreToolUse", script).stdout)["hookSpecificOutput"]["updatedInput"]["command"])


LOOK = "ls -d ../state ../home/.ssh/id_rsa; printf '%s|' \"it's\" 'a\nb'; echo made > made.txt"


@pytest.mark.threat("T192")
@pytest.mark.threat("T200")
def test_a_command_with_a_token_runs_once(place: CliHarness) -> None:
    command = rewritten(place, "printf '%s|' \"it's\" 'a\nb'; echo made >> made.txt")
    done = prefixed(place, wrapped(command))
    assert (done.returncode, done.stdout) == (0, "it's|a\nb|"), done.stderr
    again = prefixed(place, wrapped(command))
    assert again.returncode == 3
    assert "used before" in again.stderr
    assert (place.work / "made.txt").read_text() == "made\n"
    other = prefixed(place, wrapped(rewritten(place, "echo a").replace("echo a", "cat ../home/.ssh/id_rsa")))
    assert (other.returncode, other.stdout) == (3, "")


@pytest.mark.threat("T200")
def test_a_command_that_passed_no_hook_is_judged_and_runs_in_the_sandbox(place: CliHarness) -> None:
    done = prefixed(place, wrapped("python3 -c \"import os; print(os.path.exists('../state'))\"; echo made > made.txt"))
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert (place.work / "made.txt").read_text() == "made\n"
    (row,) = place.audit()
    assert (row["verdict"], row["tool"]) == ("allow", "Bash, by the shell prefix")


# fmt: off
REFUSED = [
    ((wrapped("cat ../home/.ssh/id_rsa"),),                                          "a-secret"),
    ((wrapped("true\ncat '../home/.ssh/id_rsa'"),),                                  "in-a-second-line"),
    ((wrapped("exec cat ../home/.ssh/id_rsa"),),                                     "exec"),
    ((wrapped("a' && cat ../home/.ssh/id_rsa && pwd -P >| /tmp/claude-1-cwd; 'b"),), "that-leaves-the-quotes"),
    (("cat ../home/.ssh/id_rsa",),                                                   "without-the-form"),
    (("echo a > ../home/.profile",),                                                 "like-a-hook-of-a-repository"),
    (("",),                                                                          "nothing"),
    ((),                                                                             "no-argument"),
    (("echo", "a"),                                                                  "two-arguments"),
    (("--mode", "dangerously", "--", "cat ../home/.ssh/id_rsa"),                     "more-options"),
]
# fmt: on


@pytest.mark.threat("T200")
@pytest.mark.parametrize(("given", "why"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_what_is_not_allowed_does_not_run(given: tuple[str, ...], why: str, place: CliHarness) -> None:
    done = prefixed(place, *given)
    assert done.returncode != 0 or why == "nothing", done.stdout
    assert "the-private-key" not in done.stdout + done.stderr
    assert not (place.base / "home" / ".profile").exists()


@pytest.mark.threat("T200")
def test_an_empty_environment_changes_nothing(place: CliHarness) -> None:
    """Without the variables that name the folders of the program, another state folder is used, or none."""
    done = prefixed(place, wrapped("cat ../home/.ssh/id_rsa"), environ={"HOME": str(place.base / "home")})
    assert (done.returncode, done.stdout) == (3, "")
    done = prefixed(place, wrapped("cat ../home/.ssh/id_rsa"), environ={})
    assert done.returncode != 0
    assert done.stdout == ""


def test_commands_of_the_users_settings_pass_with_their_input(place: CliHarness) -> None:
    path = place.base / "home/.claude/settings.json"
    settings = json.loads(path.read_text())
    settings["hooks"]["Stop"] = [{"hooks": [{"type": "command", "command": "cat; ls -d ../state"}]}]
    path.write_text(json.dumps(settings))
    done = prefixed(place, "cat; ls -d ../state", stdin=b"{}\n")
    assert (done.returncode, done.stdout) == (0, "{}\n../state\n")
    guard = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    told = prefixed(place, guard, stdin=b"{")
    assert (told.returncode, told.stdout) == (2, "")
    (place.work / ".claude").mkdir()
    (place.work / ".claude/settings.json").write_text(json.dumps({"hooks": {"Stop": [{"command": "ls -d ../state"}]}}))
    done = prefixed(place, "ls -d ../state")
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.threat("T194")
def test_the_hook_after_the_call_knows_what_the_prefix_did(place: CliHarness) -> None:
    for script in ("echo other", "cat ../home/.ssh/id_rsa"):
        rewritten(place, "echo own")  # which another hook replaces by `script`
        prefixed(place, wrapped(script))
        assert hook(place, "PostToolUse", script).stdout == "", script
        assert "WITHOUT the sandbox" in hook(place, "PostToolUse", script).stdout, "it counts for one call"
