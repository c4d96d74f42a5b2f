"""The canary of `agent guard --status`, with a small agent that is written here in place of a real one."""

import json
import sys
from pathlib import Path

import pytest

from runner.frontends.guard.canary import CanaryResult, try_canary
from runner.frontends.guard.guard_status import guard_status
from runner.frontends.guard.tokens import GuardToken, issue

# An agent that calls its model, asks its hook, and then does what HEEDS says: `all`, `nothing` or `crash`.
AGENT = """#!{python}
import json, os, subprocess, sys, urllib.request
address, heeds = os.environ["ANTHROPIC_BASE_URL"], "{heeds}"
if heeds == "crash":
    sys.exit("no licence")
messages = [dict(role="user", content="go")]
def ask():
    body = json.dumps(dict(model="m", tools=[dict(name="Bash")], messages=messages)).encode()
    with urllib.request.urlopen(urllib.request.Request(address + "/v1/messages", body)) as answer:
        return json.load(answer)["content"][0]
call = ask()
while call["type"] == "tool_use":
    command, answer = call["input"]["command"], dict()
    if heeds == "all":
        settings = json.load(open(os.environ["HOME"] + "/.claude/settings.json"))
        line = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
        given = dict(hook_event_name="PreToolUse", tool_name="Bash", tool_input=call["input"], cwd=os.getcwd(),
                     session_id="s", tool_use_id=call["id"])
        done = subprocess.run(["/bin/sh", "-c", line], input=json.dumps(given), capture_output=True, text=True)
        answer = json.loads(done.stdout)["hookSpecificOutput"] if done.returncode == 0 else dict(permissionDecision="deny")
    result = answer.get("permissionDecisionReason", "denied")
    if answer.get("permissionDecision") != "deny":
        command = answer.get("updatedInput", call["input"])["command"]
        done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        result = done.stdout + done.stderr
    messages.append(dict(role="user", content=[dict(type="tool_result", tool_use_id=call["id"], content=result)]))
    call = ask()
"""


def world(base: Path, heeds: str, line: str = "") -> dict[str, str]:
    (base / "bin").mkdir()
    (base / ".claude").mkdir()
    program = base / "bin" / "claude"
    program.write_text(AGENT.replace("{python}", sys.executable).replace("{heeds}", heeds))
    program.chmod(0o755)
    hooks = {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": line}]}]}
    (base / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    return {
        "HOME": str(base),
        "PATH": f"{base}/bin:/usr/bin:/bin",
        "RINGFENCE_STATE_DIR": str(base / "state"),
        "XDG_CONFIG_HOME": str(base / "config"),
        "XDG_CACHE_HOME": str(base / "cache"),
    }


HOOK = f"{Path(sys.executable).with_name('agent')} guard hook claude"
# fmt: off
ROWS = [
    ("all",     HOOK,                 CanaryResult.INSIDE,  "an-agent-with-the-hook"),
    ("all",     f"{HOOK} --redirect", CanaryResult.INSIDE,  "an-agent-with-the-hook-that-redirects"),
    ("all",     "exit 2",             CanaryResult.STOPPED, "a-hook-that-breaks"),
    ("nothing", HOOK,                 CanaryResult.OUTSIDE, "an-agent-that-ignores-its-hook"),
    ("crash",   HOOK,                 CanaryResult.STOPPED, "an-agent-that-does-not-start"),
]
# fmt: on


@pytest.mark.threat("T196")
@pytest.mark.parametrize(("heeds", "line", "result", "why"), ROWS, ids=[row[-1] for row in ROWS])
def test_it_says_what_really_happened(heeds: str, line: str, result: CanaryResult, why: str, tmp_path: Path) -> None:
    found = try_canary("claude", None, world(tmp_path, heeds, line))
    assert found.result is result, found


def test_an_agent_that_is_not_installed_is_not_tried(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/nonexistent", "RINGFENCE_STATE_DIR": str(tmp_path / "state")}
    for agent in ("claude", "cursor"):
        assert try_canary(agent, None, environ).result is CanaryResult.ABSENT


OBSTACLES = [
    ("claude", ".claude", {"disableAllHooks": True}),
    ("gemini", ".gemini", {"hooksConfig": {"enabled": False}}),
    ("gemini", ".gemini", {"hooksConfig": {"disabled": ["ringfence"]}}),
]


@pytest.mark.threat("T196")
@pytest.mark.parametrize(("agent", "folder", "settings"), OBSTACLES, ids=["claude-off", "gemini-off", "gemini-one-off"])
def test_settings_that_switch_hooks_off_are_named(
    agent: str, folder: str, settings: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "settings.json").write_text(json.dumps(settings))
    environ = {"HOME": str(tmp_path), "RINGFENCE_STATE_DIR": str(tmp_path / "state")}
    found = guard_status(agent, "user", str(tmp_path), environ, canary=False)
    assert len(found.obstacles) == 1
    assert not found.in_force


@pytest.mark.threat("T196")
def test_rewritten_commands_that_never_ran_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HOME": str(tmp_path), "RINGFENCE_STATE_DIR": str(tmp_path / "state")}
    issue(GuardToken("make", "/w", "default", "claude", "s", "c", "Bash"), environ)
    assert guard_status("claude", "user", str(tmp_path), environ, canary=False).unrun == ()
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert guard_status("claude", "user", str(tmp_path), environ, canary=False).unrun == ("make",)
