"""The shell prefix of Claude Code: what it finds in the argument, what passes unchanged, and what is installed."""

import json
import os
import shlex
from pathlib import Path

import pytest

from runner.frontends.guard.canary import CanaryResult, try_canary
from runner.frontends.guard.guard_status import guard_status
from runner.frontends.guard.installation import apply_changes, planned_installation, planned_removal
from runner.frontends.guard.own_commands import own_command
from runner.frontends.guard.settings_change import VARIABLE, HookOptions, hook_file
from runner.frontends.guard.shell_prefix import prefixed_words, shell_script
from runner.frontends.guard.tokens import rewritten
from runner.problems import Stopped
from tests.support import agent_program
from tests.support.resident_process import end_resident

WORD = "0123456789abcdef" * 2


def quoted(script: str) -> str:
    """Return `script` in the quoting of Claude Code."""
    return "'" + script.replace("'", "'\"'\"'") + "'"


def wrapped(script: str, stdin: str = " < /dev/null") -> str:
    """Return what Claude Code 2.1.197 passes to its shell prefix for a call of the shell tool."""
    begin = "source /h/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true && "
    options = "{ shopt -u extglob || setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL; } >/dev/null 2>&1 || true && "
    return f"{begin}{options}eval {quoted(script)}{stdin} && pwd -P >| /tmp/claude-0a1b-cwd"


# fmt: off
SCRIPTS = [
    ("ls",                                                         "one-word"),
    ("echo 'it''s' \"$HOME\"\necho second; cd /tmp",               "quotes-and-lines"),
    ("a' && eval 'b' && pwd -P >| /tmp/claude-1-cwd",              "the-end-of-the-form-inside"),
    ("a && eval b && pwd -P >| /tmp/claude-1-cwd",                 "the-form-inside"),
    ("x' < /dev/null && pwd -P >| /tmp/c\neval 'y",                "a-second-line-like-the-form"),
    ("",                                                           "empty"),
]
OTHERS = [
    ("echo start",                                                 "a-hook"),
    ("npx -y server 'a b'",                                        "a-server"),
    ("eval 'a' 'b'",                                               "two-words"),
    ("eval \"$(id)\" && pwd -P >| /tmp/c",                         "a-substitution"),
    (f"{wrapped('ls')}; id",                                       "more-at-the-end"),
    ("eval 'a' && id && pwd -P >| /tmp/c",                         "more-in-between"),
]
# fmt: on


@pytest.mark.parametrize(("script", "why"), SCRIPTS, ids=[row[-1] for row in SCRIPTS])
@pytest.mark.parametrize("stdin", [" < /dev/null", ""], ids=["closed", "open"])
def test_the_script_of_the_shell_tool_is_found_whole(script: str, why: str, stdin: str) -> None:
    assert shell_script(wrapped(script, stdin)) == script


@pytest.mark.parametrize(("given", "why"), OTHERS, ids=[row[-1] for row in OTHERS])
def test_any_other_argument_is_no_call_of_the_shell_tool(given: str, why: str) -> None:
    assert shell_script(given) is None


@pytest.mark.threat("T200")
def test_only_a_command_with_a_token_runs_as_it_is(tmp_path: Path) -> None:
    """The token itself is checked by the command that gets it."""
    words = ["claude", "--mode", "default", "--"]
    for given in (wrapped(rewritten(WORD, "echo 'a\nb'")), rewritten(WORD, "echo 'a\nb'")):
        assert prefixed_words([*words, given], {"HOME": str(tmp_path)}) == [
            "exec",
            "--guard-token",
            WORD,
            "echo 'a\nb'",
        ]
    for wrong in (
        ["claude", "--", "a", "b"],
        ["claude", "a"],
        ["codex", "--", "a"],
        ["claude", "--mode", "x", "--", "a"],
    ):
        with pytest.raises(ValueError, match=r"\w"):
            prefixed_words(wrong, {"HOME": str(tmp_path)})


def user(base: Path) -> dict[str, str]:
    """Write settings of a user with a hook, a status line, servers and a plugin, and of a repository."""
    plugin = base / "plugin root"
    hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say \"$X\" 'a b'"}]}]}}
    files = {
        ".claude/settings.json": hook | {"statusLine": {"type": "command", "command": "status --line"}},
        ".claude.json": {
            "mcpServers": {"one": {"command": "/bin/server", "args": ["a b", "$c"]}},
            "projects": {"/p": {"mcpServers": {"two": {"command": "two"}}}},
        },
        ".claude/plugins/installed_plugins.json": {
            "plugins": {"p@m": [{"installPath": str(plugin)}, {"installPath": str(base / "work/p")}]}
        },
        "plugin root/hooks/hooks.json": {"hooks": {"Stop": [{"hooks": [{"command": "${CLAUDE_PLUGIN_ROOT}/h.sh"}]}]}},
        "plugin root/.mcp.json": {"mcpServers": {"p": {"command": "${CLAUDE_PLUGIN_ROOT}/s", "args": ["--x"]}}},
        "work/.claude/settings.json": {"hooks": {"Stop": [{"hooks": [{"command": "of-the-repository"}]}]}},
        "work/p/hooks/hooks.json": {"hooks": {"Stop": [{"hooks": [{"command": "plugin-in-the-workspace"}]}]}},
        "work/.mcp.json": {"mcpServers": {"r": {"command": "repository-server"}}},
    }
    for name, content in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(json.dumps(content))
    return {"HOME": str(base), "CLAUDE_PROJECT_DIR": str(base / "work"), "RINGFENCE_STATE_DIR": str(base / "state")}


# fmt: off
OWN = [
    ("say \"$X\" 'a b'",                    ["/bin/sh", "-c", "say \"$X\" 'a b'"], "a-hook"),
    ("status --line",                       ["/bin/sh", "-c", "status --line"],    "the-status-line"),
    ("/bin/server 'a b' \\$c",              ["/bin/server", "a b", "$c"],          "a-server"),
    ("two",                                 ["/bin/sh", "-c", "two"],              "a-server-of-a-project"),
    ("${CLAUDE_PLUGIN_ROOT}/h.sh",  ["/bin/sh", "-c", "${CLAUDE_PLUGIN_ROOT}/h.sh"],       "a-hook-of-a-plugin"),
    ("'ROOT/s' --x",                        ["ROOT/s", "--x"],                     "a-server-of-a-plugin"),
    ("say \"$X\" 'a b'; id",                None,                                  "more-than-a-hook"),
    ("/bin/server 'a b' $c",                ["/bin/server", "a b", "$c"],          "the-same-words-without-a-shell"),
    ("/bin/server 'a b' \\$c more",         None,                                  "more-than-a-server"),
    ("/bin/server",                         ["/bin/sh", "-c", "/bin/server"],      "a-server-without-its-words"),
    ("of-the-repository",                   None,                                  "a-hook-of-the-repository"),
    ("repository-server",                   None,                                  "a-server-of-the-repository"),
    ("plugin-in-the-workspace",             None,                                  "a-plugin-in-the-workspace"),
    ("",                                    None,                                  "empty"),
    ("'",                                   None,                                  "an-open-quote"),
]
# fmt: on


@pytest.mark.threat("T200")
@pytest.mark.parametrize(("given", "words", "why"), OWN, ids=[row[-1] for row in OWN])
def test_exactly_the_commands_of_the_users_own_settings_pass(
    given: str, words: list[str] | None, why: str, tmp_path: Path
) -> None:
    root = str(tmp_path / "plugin root")
    expected = [word.replace("ROOT", root) if word.startswith("ROOT") else word for word in words] if words else None
    assert own_command(given.replace("ROOT", root) if "'ROOT" in given else given, user(tmp_path)) == expected


@pytest.mark.parametrize("text", ["[", "[" * 200_000, '{"hooks": 1}', '{"command": 1, "args": 2}'])
def test_settings_that_cannot_be_used_name_nothing(text: str, tmp_path: Path) -> None:
    environ = user(tmp_path)
    (tmp_path / ".claude/settings.json").write_text(text)
    assert own_command("status --line", environ) is None


def installed(base: Path, options: HookOptions, text: str | None) -> tuple[dict[str, str], Path]:
    environ = {"HOME": str(base), "RINGFENCE_STATE_DIR": str(base / "state"), "PATH": "/nonexistent"}
    path = Path(hook_file("claude", "user", str(base), environ))
    path.parent.mkdir(exist_ok=True)
    if text is not None:
        path.write_text(text)
    changes = planned_installation("claude", "user", options, str(base), environ)
    apply_changes("claude", "user", changes, str(base), environ, installed=True)
    return environ, path


def programs(base: Path) -> list[Path]:
    return list((base / "state" / "guard").glob("claude-shell-*"))


TEXTS = [None, "{}", '{"env": {"A": "b"}}\n', '{\n\t"env": {}\n}']


@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "changed-meanwhile"])
@pytest.mark.parametrize("text", TEXTS, ids=["none", "empty", "variables", "empty-variables"])
def test_the_prefix_is_installed_and_removed(text: str | None, changed: bool, tmp_path: Path) -> None:
    environ, path = installed(tmp_path, HookOptions("plan"), text)
    (program,) = programs(tmp_path)
    settings = json.loads(path.read_text())
    assert settings["env"][VARIABLE] == str(program)
    assert program.stat().st_mode & 0o777 == 0o700
    assert "guard shell claude --mode plan --" in program.read_text()
    if changed:
        path.write_text(json.dumps({**settings, "later": 1}))
        program.write_text("#!/bin/sh\n")
    changes = planned_removal("claude", "user", str(tmp_path), environ)
    apply_changes("claude", "user", changes, str(tmp_path), environ, installed=False)
    assert programs(tmp_path) == []
    if not changed:
        assert (path.read_text() if path.exists() else None) == text
    else:
        expected = {"A": "b"} if text == TEXTS[2] else {}
        assert json.loads(path.read_text()) == ({"env": expected} if expected else {}) | {"later": 1}


def test_hooks_only_takes_the_prefix_out_again(tmp_path: Path) -> None:
    installed(tmp_path, HookOptions("plan"), None)
    environ, path = installed(tmp_path, HookOptions("plan", hooks_only=True), None)
    assert "env" not in json.loads(path.read_text())
    assert programs(tmp_path) == []
    assert guard_status("claude", "user", str(tmp_path), environ, canary=False).second is None


def test_another_prefix_is_not_replaced(tmp_path: Path) -> None:
    text = json.dumps({"env": {VARIABLE: "/opt/mine"}})
    with pytest.raises(Stopped, match="another"):
        installed(tmp_path, HookOptions("plan"), text)
    _, path = installed(tmp_path, HookOptions("plan", hooks_only=True), text)
    assert json.loads(path.read_text())["env"] == {VARIABLE: "/opt/mine"}


def _drop_variable(base: Path, program: Path) -> None:
    path = base / ".claude/settings.json"
    settings = json.loads(path.read_text())
    del settings["env"]
    path.write_text(json.dumps(settings))


def _override(base: Path, program: Path) -> None:
    (base / "work/.claude").mkdir(parents=True)
    (base / "work/.claude/settings.json").write_text(json.dumps({"env": {VARIABLE: ""}}))


# fmt: off
HARMS = [
    (lambda base, program: None,                                True,  "nothing"),
    (_drop_variable,                                            False, "variable-removed"),
    (_override,                                                 False, "variable-of-the-repository"),
    (lambda base, program: program.unlink(),                    False, "program-deleted"),
    (lambda base, program: program.write_text("#!/bin/sh\n"),   False, "program-replaced"),
    (lambda base, program: program.chmod(0o600),                False, "program-not-executable"),
]
# fmt: on


@pytest.mark.threat("T196")
@pytest.mark.parametrize(("harm", "holds", "why"), HARMS, ids=[row[-1] for row in HARMS])
def test_the_status_names_a_prefix_that_is_not_in_force(harm: object, holds: bool, why: str, tmp_path: Path) -> None:
    environ, _ = installed(tmp_path, HookOptions("plan"), None)
    (program,) = programs(tmp_path)
    assert callable(harm)
    harm(tmp_path, program)
    found = guard_status("claude", "user", str(tmp_path / "work"), environ, canary=False)
    assert found.second is not None
    assert (found.second.holds, found.in_force) == (holds, holds)
    assert len(found.second.obstacles) == (not holds)


# An agent that knows its shell prefix and asks its hook only if `disableAllHooks` is not set and HEEDS is `all`.
AGENT = """#!{python}
import json, os, subprocess, sys, urllib.request
address = os.environ["ANTHROPIC_BASE_URL"]
messages = [dict(role="user", content="go")]
settings = json.load(open(os.environ["HOME"] + "/.claude/settings.json"))
def ask():
    body = json.dumps(dict(model="m", tools=[dict(name="Bash")], messages=messages)).encode()
    with urllib.request.urlopen(urllib.request.Request(address + "/v1/messages", body)) as answer:
        return json.load(answer)["content"][0]
call = ask()
while call["type"] == "tool_use":
    command = call["input"]["command"]
    if "{heeds}" == "all" and "disableAllHooks" not in str(sys.argv):
        line = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
        given = dict(hook_event_name="PreToolUse", tool_name="Bash", tool_input=call["input"], cwd=os.getcwd(),
                     session_id="s", tool_use_id=call["id"])
        done = subprocess.run(["/bin/sh", "-c", line], input=json.dumps(given), capture_output=True, text=True)
        command = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]["command"]
    words = ["/bin/bash", "-c", command]
    if "{heeds}" != "nothing":
        words = [settings["env"]["CLAUDE_CODE_SHELL_PREFIX"], "eval '" + command.replace("'", "'\\"'\\"'") + "'"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    content = done.stdout + done.stderr
    messages.append(dict(role="user", content=[dict(type="tool_result", tool_use_id=call["id"], content=content)]))
    call = ask()
"""
# fmt: off
TRIES = [
    ("all",     CanaryResult.INSIDE,  CanaryResult.INSIDE,  "both-hold"),
    ("prefix",  CanaryResult.UNASKED, CanaryResult.INSIDE,  "only-the-prefix"),
    ("nothing", CanaryResult.OUTSIDE, CanaryResult.OUTSIDE, "none-of-them"),
]
# fmt: on


@pytest.mark.threat("T200")
@pytest.mark.parametrize(("heeds", "hooked", "alone", "why"), TRIES, ids=[row[-1] for row in TRIES])
def test_the_canary_tries_both_mechanisms(
    heeds: str, hooked: CanaryResult, alone: CanaryResult, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr("sys.argv", [agent_program.AGENT])
    environ, _ = installed(tmp_path, HookOptions("trust-project"), None)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text(AGENT.replace("{python}", sys.executable).replace("{heeds}", heeds))
    program.chmod(0o755)
    environ = {**environ, "PATH": f"{tmp_path}/bin:{os.defpath}"}
    try:
        assert try_canary("claude", None, environ).result is hooked
        assert try_canary("claude", None, environ, hooks=False).result is alone
    finally:
        end_resident(tmp_path / "state")  # the hook has started one


def test_the_words_are_quoted_as_the_agent_quotes_them() -> None:
    assert shlex.split(quoted("it's")) == ["it's"]
