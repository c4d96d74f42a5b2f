"""The shell of this program in place of that of Codex and Gemini CLI: files, answers of the hook, and the status."""

import json
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.frontends.guard.answering import answer_bytes
from runner.frontends.guard.canary import CanaryResult, try_replaced
from runner.frontends.guard.guard_status import guard_status
from runner.frontends.guard.installation import apply_changes, planned_installation, planned_removal
from runner.frontends.guard.settings_change import HookOptions
from runner.problems import Stopped
from tests.support import agent_program

OPTIONS = HookOptions("trust-project", replace_shell=True)
CONFIG, POLICY = ".codex/config.toml", ".gemini/policies/ringfence-guard.toml"
# fmt: off
BEFORE = [
    ("codex",  CONFIG,                  None,                                                         "codex-none"),
    ("codex",  CONFIG,                  '# mine\nmodel = "m"  # keep\n',                              "codex-plain"),
    ("codex",  CONFIG,        "[features]\nx = 1\nshell_tool = false\n[mcp_servers.a]\ncommand = 'a'\n", "codex-off"),
    ("gemini", ".gemini/settings.json", None,                                                         "gemini-none"),
    ("gemini", ".gemini/settings.json", '{\n    "mcpServers": {"a": {"command": "a"}}, "z": 1\n}',    "gemini-another"),
]
TAKEN = [
    ("codex",  CONFIG,                  "[features]\nshell_tool = true\n",                   "codex-shell"),
    ("codex",  CONFIG,                  "[mcp_servers.ringfence]\ncommand = 'other'\n",      "codex-server"),
    ("gemini", ".gemini/settings.json", '{"mcpServers": {"ringfence": {"command": "o"}}}',   "gemini-server"),
]
# fmt: on


def environ(base: Path) -> dict[str, str]:
    return {"HOME": str(base), "RINGFENCE_STATE_DIR": str(base / "state"), "PATH": "/nonexistent"}


def install(base: Path, agent: str, options: HookOptions = OPTIONS) -> None:
    changes = planned_installation(agent, "user", options, str(base), environ(base))
    apply_changes(agent, "user", changes, str(base), environ(base), installed=True)


def remove(base: Path, agent: str) -> None:
    changes = planned_removal(agent, "user", str(base), environ(base))
    apply_changes(agent, "user", changes, str(base), environ(base), installed=False)


def put(base: Path, name: str, text: str) -> None:
    (base / name).parent.mkdir(parents=True, exist_ok=True)
    (base / name).write_text(text)


def server(base: Path, agent: str) -> dict[str, object]:
    if agent == "codex":
        found = tomllib.loads((base / CONFIG).read_text())["mcp_servers"]["ringfence"]
    else:
        found = json.loads((base / ".gemini/settings.json").read_text())["mcpServers"]["ringfence"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("agent", "name", "text", "why"), BEFORE, ids=[row[-1] for row in BEFORE])
def test_it_is_installed_and_removed_byte_for_byte(
    agent: str, name: str, text: str | None, why: str, tmp_path: Path
) -> None:
    if text is not None:
        put(tmp_path, name, text)
    install(tmp_path, agent)
    install(tmp_path, agent)  # which replaces the first one
    found = server(tmp_path, agent)
    assert found["args"] == ["mcp", "serve", "--mode", "trust-project"]
    assert found["env"] == {"RINGFENCE_STATE_DIR": str(tmp_path / "state")}
    if agent == "codex":
        assert tomllib.loads((tmp_path / CONFIG).read_text())["features"]["shell_tool"] is False
    else:
        assert tomllib.loads((tmp_path / POLICY).read_text())["rule"][0]["decision"] == "deny"
    assert guard_status(agent, "user", "/", environ(tmp_path), canary=False).in_force
    remove(tmp_path, agent)
    assert ((tmp_path / name).read_text() if (tmp_path / name).exists() else None) == text
    assert not (tmp_path / POLICY).exists()


@pytest.mark.parametrize(("agent", "name", "text", "why"), BEFORE, ids=[row[-1] for row in BEFORE])
def test_a_removal_after_a_change_takes_out_only_what_was_added(
    agent: str, name: str, text: str | None, why: str, tmp_path: Path
) -> None:
    if text is not None:
        put(tmp_path, name, text)
    install(tmp_path, agent)
    now = (tmp_path / name).read_text()
    put(tmp_path, name, f"{now}\n[later]\nx = 1\n" if agent == "codex" else now.replace("{", '{"later": {"x": 1}, ', 1))
    remove(tmp_path, agent)
    parse: Callable[[str], dict[str, object]] = tomllib.loads if agent == "codex" else json.loads
    assert parse((tmp_path / name).read_text()) == parse(text or ("" if agent == "codex" else "{}")) | {
        "later": {"x": 1}
    }


def test_another_installation_gives_the_own_shell_back(tmp_path: Path) -> None:
    for agent in ("codex", "gemini"):
        install(tmp_path, agent)
        install(tmp_path, agent, HookOptions("trust-project"))
        assert guard_status(agent, "user", "/", environ(tmp_path), canary=False).second is None
    assert not (tmp_path / POLICY).exists()
    assert "ringfence" not in json.loads((tmp_path / ".gemini/settings.json").read_text()).get("mcpServers", {})
    assert not (tmp_path / CONFIG).exists()


@pytest.mark.parametrize(("agent", "name", "text", "why"), TAKEN, ids=[row[-1] for row in TAKEN])
def test_an_entry_of_the_user_is_not_replaced(agent: str, name: str, text: str, why: str, tmp_path: Path) -> None:
    put(tmp_path, name, text)
    with pytest.raises(Stopped, match="already"):
        install(tmp_path, agent)
    assert (tmp_path / name).read_text() == text


# fmt: off
# Without an old text the whole file is written; without a new one it is deleted.
HARMS: list[tuple[str, str, str, str | None, str]] = [
    ("codex",  CONFIG,                    "shell_tool = false", "shell_tool = true",  "shell-on"),
    ("codex",  CONFIG,                    "shell_tool = false", "",  "shell-key-removed"),
    ("codex",  CONFIG,                    '"mcp", "serve"',     '"-c", "serve"',  "server-changed"),
    ("codex",  CONFIG,                    "required = true",    "enabled = false",  "server-off"),
    ("codex",  CONFIG,                    "",                   "[",  "config-broken"),
    ("codex",  "w/.codex/config.toml",    "",                   "[features]\nshell_tool = true\n",  "codex-project"),
    ("codex",  "w/.codex/config.toml",    "",                   "[mcp_servers.ringfence]\na = 1\n",  "project-server"),
    ("gemini", ".gemini/settings.json",   '"mcp",',             '"-c",',  "gemini-server"),
    ("gemini", POLICY,                    "",                   None,  "policy-deleted"),
    ("gemini", POLICY,                    '"deny"',             '"allow"',  "policy-changed"),
    ("gemini", "w/.gemini/settings.json", "",                   '{"mcpServers": {"ringfence": {}}}',  "gemini-project"),
]
# fmt: on


@pytest.mark.threat("T196")
@pytest.mark.threat("T200")
@pytest.mark.parametrize(("agent", "name", "old", "new", "why"), HARMS, ids=[row[-1] for row in HARMS])
def test_the_status_names_what_is_not_in_force(
    agent: str, name: str, old: str, new: str | None, why: str, tmp_path: Path
) -> None:
    install(tmp_path, agent)
    if new is None:
        (tmp_path / name).unlink()
    else:
        text = (tmp_path / name).read_text() if old else ""
        assert old in text
        put(tmp_path, name, text.replace(old, new) if old else new)
    found = guard_status(agent, "user", str(tmp_path / "w"), environ(tmp_path), canary=False)
    assert found.second is not None
    assert len(found.second.obstacles) == 1, found.second.obstacles
    assert not found.in_force


def hooked(agent: str, tool: str, given: object, base: Path) -> tuple[str, str, int]:
    event = "PreToolUse" if agent == "codex" else "BeforeTool"
    source: dict[str, object] = {"hook_event_name": event, "tool_name": tool, "tool_input": given, "cwd": str(base)}
    if agent == "gemini" and tool.startswith("mcp_"):
        _, name, call = tool.split("_", 2)
        source["mcp_context"] = {"server_name": name, "tool_name": call}
    return answer_bytes(agent, {"--replaced": "yes", "--mode": "trust-project"}, json.dumps(source).encode())


# fmt: off
CALLS = [
    ("codex",  "Bash",                        2, "codex-own-shell"),
    ("codex",  "mcp__ringfence__bash",        0, "codex-shell-of-ringfence"),
    ("codex",  "mcp__ringfence__bash_output", 0, "codex-output"),
    ("codex",  "mcp__ringfence__other",       2, "codex-another-tool"),
    ("codex",  "mcp__ringfence__x__bash",     2, "codex-another-server-of-a-similar-name"),
    ("codex",  "mcp__other__bash",            2, "codex-another-server"),
    ("gemini", "run_shell_command",           2, "gemini-own-shell"),
    ("gemini", "mcp_ringfence_bash",          0, "gemini-shell-of-ringfence"),
    ("gemini", "mcp_other_bash",              2, "gemini-another-server"),
]
# fmt: on


@pytest.mark.threat("T200")
@pytest.mark.parametrize(("agent", "tool", "code", "why"), CALLS, ids=[row[-1] for row in CALLS])
def test_the_hook_passes_only_the_shell_of_this_program(
    agent: str, tool: str, code: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    out, error, found = hooked(agent, tool, {"command": "echo a"}, tmp_path)
    assert (found, bool(error)) == (code, code == 2)
    assert "rewritten" not in out
    assert "guard-token" not in out + error


# An agent that offers TOOLS, asks the hook if `hook` is in HEEDS, and runs the command as HEEDS says.
AGENT = """#!{python}
import json, os, subprocess, sys, urllib.request
heeds = "{heeds}".split()
address = [word for word in sys.argv if "base_url" in word][0].partition('base_url="')[2].partition('"')[0]
tools = [dict(type="namespace", name="mcp__ringfence", tools=[dict(type="function", name="bash")])]
tools += [dict(type="function", name="exec_command")] if "own" in heeds else []
given = []
def ask():
    body = json.dumps(dict(tools=tools, input=given)).encode()
    with urllib.request.urlopen(urllib.request.Request(address + "/responses", body)) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("data: ") and json.loads(line[6:])["type"] == "response.output_item.done":
                return json.loads(line[6:])["item"]
call = ask()
while call["type"] == "function_call":
    assert call["namespace"] == "mcp__ringfence", call
    command = json.loads(call["arguments"])["command"]
    source = dict(hook_event_name="PreToolUse", tool_name="mcp__ringfence__bash", tool_input=dict(command=command),
                  cwd=os.getcwd())
    if "hook" in heeds:
        hook = ["{agent}", "guard", "hook", "codex", "--replaced"]
        subprocess.run(hook, input=json.dumps(source), text=True, check=True)
    words = ["{agent}", "exec", command] if "server" in heeds else ["/bin/sh", "-c", command]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    given.append(dict(type="function_call_output", output=done.stdout + done.stderr))
    call = ask()
"""
# fmt: off
TRIES = [
    ("hook server",     CanaryResult.INSIDE,  CanaryResult.INSIDE,  "both-hold"),
    ("hook server own", CanaryResult.INSIDE,  CanaryResult.OUTSIDE, "its-own-shell-is-offered"),
    ("server",          CanaryResult.UNASKED, CanaryResult.INSIDE,  "no-hook"),
    ("hook",            CanaryResult.OUTSIDE, CanaryResult.INSIDE,  "another-server"),
]
# fmt: on


@pytest.mark.threat("T200")
@pytest.mark.parametrize(("heeds", "hooked", "shell", "why"), TRIES, ids=[row[-1] for row in TRIES])
def test_the_canary_says_what_holds(
    heeds: str, hooked: CanaryResult, shell: CanaryResult, why: str, tmp_path: Path
) -> None:
    program = tmp_path / "codex"
    agent = agent_program.AGENT
    program.write_text(AGENT.replace("{python}", sys.executable).replace("{heeds}", heeds).replace("{agent}", agent))
    program.chmod(0o755)
    found = environ(tmp_path) | {"PATH": f"{tmp_path}:{os.defpath}"}
    assert tuple(each.result for each in try_replaced("codex", found)) == (hooked, shell)


def test_an_agent_that_is_not_installed_is_not_tried(tmp_path: Path) -> None:
    assert [each.result for each in try_replaced("gemini", environ(tmp_path))] == [CanaryResult.ABSENT] * 2
