"""Tables of the wire format, the names, the matchers and the files of hooks."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.config.hookfiles.hook import Hook, HookForm, HookScope
from runner.config.hookfiles.hook_scripts import named_scripts
from runner.config.hookfiles.read_hooks import personal_files, read_hooks
from runner.engine.hook_access import EventAnswer, HookDecision, HookReply
from runner.hooks.names import condition_met, foreign_arguments, foreign_names, matches, own_arguments, own_name
from runner.hooks.wire import WireError, parsed_exit

pytestmark = pytest.mark.threat("T205")


def said(**fields: object) -> str:
    return json.dumps(fields)


def special(**fields: object) -> str:
    return json.dumps({"hookSpecificOutput": fields})


# fmt: off
# event, status, standard output, standard error, the decision and the reason (None: a failure), why
ANSWERS: list[tuple[str, int, str, str, tuple[str, str] | None, str]] = [
    ("PreToolUse",       0, "",                                               "",        ("ALLOW", ""),            "silence is no objection"),
    ("PreToolUse",       0, "formatted 3 files",                              "",        ("ALLOW", ""),            "plain text is no answer"),
    ("PreToolUse",       2, "",                                               "no rm\n", ("DENY", "no rm"),        "status 2 denies with standard error"),
    ("PreToolUse",       2, special(permissionDecision="allow"),              "no",      ("DENY", "no"),           "status 2 beats an allow in JSON"),
    ("PreToolUse",       2, "",                                               "",        ("DENY", "the hook gave no reason"), "status 2 without a reason"),
    ("PreToolUse",       1, "",                                               "x: error", None,                    "another status is a failure"),
    ("PreToolUse",     127, "",                                               "sh: nothing: not found", None,      "a missing program is a failure"),
    ("PreToolUse",       0, '{"decision": ',                                  "",        None,                     "broken JSON is a failure"),
    ("PreToolUse",       0, '["deny"]',                                       "",        None,                     "a list is no answer"),
    ("PreToolUse",       0, '{"decision": "deny", "decision": "allow"}',      "",        None,                     "a name that is there twice"),
    ("PreToolUse",       0, said(decision="permit"),                          "",        None,                     "an unknown decision"),
    ("PreToolUse",       0, said(decision=True),                              "",        None,                     "a decision of a wrong type"),
    ("PreToolUse",       0, '{"hookSpecificOutput": "deny"}',                 "",        None,                     "a wrong type of the special part"),
    ("PreToolUse",       0, "[" * 100_000,                                    "",        None,                     "JSON that is nested too deeply"),
    ("PreToolUse",       0, special(permissionDecision="deny", permissionDecisionReason="no"), "", ("DENY", "no"), "the form of today"),
    ("PreToolUse",       0, special(permissionDecision="ask", permissionDecisionReason="sure?"), "", ("ASK", "sure?"), "a question"),
    ("PreToolUse",       0, special(permissionDecision="allow"),              "",        ("ALLOW", ""),            "an allow"),
    ("PreToolUse",       0, special(permissionDecision="defer"),              "",        ("ALLOW", ""),            "no opinion"),
    ("PreToolUse",       0, said(decision="block", reason="no"),              "",        ("DENY", "no"),           "the old form that denies"),
    ("PreToolUse",       0, said(decision="approve"),                         "",        ("ALLOW", ""),            "the old form that allows"),
    ("PreToolUse",       0, '{"decision": "approve", "hookSpecificOutput": {"permissionDecision": "deny"}}', "",
                                                                                         ("DENY", "the hook gave no reason"), "the stricter of two forms counts"),
    ("PreToolUse",       0, '{"continue": false, "stopReason": "enough"}',    "",        ("DENY", "enough"),       "the end of the run"),
    ("PreToolUse",       0, said(systemMessage="hello"),                      "",        ("ALLOW", ""),            "a message for the user"),
    ("PreToolUse",       0, said(**{"continue": "no"}),                       "",        None,                     "a switch of a wrong type"),
    ("PermissionRequest", 0, special(decision={"behavior": "deny", "message": "never"}), "", ("DENY", "never"),    "a denial before the question"),
    ("PermissionRequest", 0, special(decision={"behavior": "allow"}),         "",        ("ALLOW", ""),            "it answers no question"),
    ("PermissionRequest", 0, special(decision="deny"),                        "",        None,                     "a decision without its form"),
    ("UserPromptSubmit", 2, "",                                               "secret",  ("DENY", "secret"),       "a prompt is refused"),
    ("UserPromptSubmit", 0, said(decision="block", reason="no"),              "",        ("DENY", "no"),           "a prompt is refused by JSON"),
    ("PostToolUse",      2, "",                                               "2 errors", ("RETRY", "2 errors"),   "what happened cannot be denied"),
    ("PostToolUse",      0, said(decision="block", reason="lint"),            "",        ("RETRY", "lint"),        "the same by JSON"),
    ("Stop",             2, "",                                               "tests fail", ("RETRY", "tests fail"), "the run goes on"),
    ("Stop",             0, said(decision="block", reason="tests"),           "",        ("RETRY", "tests"),       "the run goes on by JSON"),
    ("SubagentStop",     2, "",                                               "more",    ("RETRY", "more"),        "an agent goes on"),
    ("Notification",     3, "",                                               "",        None,                     "reported for events that cannot deny"),
]
# fmt: on


@pytest.mark.parametrize(("event", "status", "out", "err", "wanted", "why"), ANSWERS, ids=[row[5] for row in ANSWERS])
def test_an_exit_is_an_answer_or_a_failure(
    event: str, status: int, out: str, err: str, wanted: tuple[str, str] | None, why: str
) -> None:
    hook = Hook(event, form=HookForm.CLAUDE)
    if wanted is None:
        with pytest.raises(WireError):
            parsed_exit(hook, status, out.encode(), err.encode(), "bash", {"command": "ls"})
        return
    found = parsed_exit(hook, status, out.encode(), err.encode(), "bash", {"command": "ls"})
    assert (found.decision.name, found.reason) == wanted, why


def test_of_several_answers_the_strictest_counts() -> None:
    order = [HookDecision.ALLOW, HookDecision.MODIFY, HookDecision.RETRY, HookDecision.ASK, HookDecision.DENY]
    assert sorted(order) == order
    reply = HookReply(
        tuple(EventAnswer("PreToolUse", f"f:{n}", each) for n, each in enumerate((order[1], order[4], order[3])))
    )
    assert reply.decision is HookDecision.DENY
    assert reply.deciding is reply.answers[1]


# fmt: off
INPUTS: list[tuple[HookForm, str, dict[str, Any], dict[str, Any], str]] = [
    (HookForm.CLAUDE, "bash", {"command": "ls", "timeout": 5},        {"command": "ls", "timeout": 5000.0},    "seconds become milliseconds"),
    (HookForm.CLAUDE, "bash", {"command": "ls", "background": True},  {"command": "ls", "run_in_background": True}, "a process that stays"),
    (HookForm.CLAUDE, "edit", {"path": "a", "old_string": "x", "new_string": "y"},
                              {"file_path": "/w/a", "old_string": "x", "new_string": "y"},                     "paths are absolute"),
    (HookForm.CLAUDE, "read", {"path": "/etc/hosts", "limit": 3},     {"file_path": "/etc/hosts", "limit": 3}, "a read"),
    (HookForm.OURS,   "write", {"path": "/w/b", "content": "x"},      {"file_path": "/w/b", "content": "x"},   "our own form has the same fields"),
    (HookForm.GEMINI, "bash", {"command": "ls", "timeout": 5},        {"command": "ls", "timeout": 5},         "a command of Gemini CLI"),
    (HookForm.GEMINI, "ls",   {"path": "/w/src"},                     {"dir_path": "/w/src"},                  "a folder of Gemini CLI"),
    (HookForm.CLAUDE, "mcp__notes__add", {"path": "x"},               {"path": "x"},                           "arguments of a server stay"),
]
NAMES: list[tuple[str, HookForm, str, str]] = [
    ("bash", HookForm.CLAUDE, "Bash", "a command"),          ("edit", HookForm.CLAUDE, "Edit", "an edit"),
    ("write", HookForm.CODEX, "Write", "a file"),            ("agent", HookForm.CLAUDE, "Task", "an agent"),
    ("bash", HookForm.GEMINI, "run_shell_command", "a command of Gemini CLI"),
    ("edit", HookForm.GEMINI, "replace", "an edit of Gemini CLI"),
    ("mcp__a__b", HookForm.CLAUDE, "mcp__a__b", "a server"), ("mcp__a__b", HookForm.GEMINI, "mcp_a_b", "a server there"),
    ("web_fetch", HookForm.CLAUDE, "WebFetch", "the web"),   ("new_tool", HookForm.CLAUDE, "new_tool", "an unknown tool"),
]
MATCHERS: list[tuple[str, str, bool, str]] = [
    ("",                 "bash",            True,  "empty matches all"),
    ("*",                "bash",            True,  "a star matches all"),
    ("Bash",             "bash",            True,  "an exact name"),
    ("Bas",              "bash",            False, "a list of names is exact"),
    ("Edit|Write",       "write",           True,  "one of two names"),
    ("Edit, Write",      "edit",            True,  "a list with commas"),
    ("Edit|MultiEdit|Write", "edit",        True,  "names of earlier versions"),
    ("Task",             "agent",           True,  "an earlier name of the tool"),
    ("Agent",            "agent",           True,  "its name of today"),
    ("mcp__.*",          "mcp__a__b",       True,  "all servers by an expression"),
    ("mcp__memory__.*",  "mcp__a__b",       False, "another server"),
    ("^Ba",              "bash",            True,  "an expression matches anywhere"),
    ("Notebook.*",       "bash",            False, "another tool"),
    ("bash",             "bash",            False, "Claude Code distinguishes case"),
]
CONDITIONS: list[tuple[str, dict[str, Any], bool, str]] = [
    ("Bash(git commit *)", {"command": "git commit -m x"},          True,  "a prefix"),
    ("Bash(git commit *)", {"command": "cd a && git commit -m x"},  True,  "a part of a list"),
    ("Bash(git commit:*)", {"command": "git commit"},               True,  "the older spelling"),
    ("Bash(git commit *)", {"command": "git status"},               False, "another command"),
    ("Bash(git *)",        {"command": "echo $(git push)"},         True,  "a substitution"),
    ("Edit(*.ts)",         {"command": "ls"},                       False, "another tool"),
    ("Bash(((",            {"command": "ls"},                       True,  "what cannot be read is met"),
    ("",                   {"command": "ls"},                       True,  "no condition"),
]
# fmt: on


@pytest.mark.parametrize(("form", "tool", "ours", "theirs", "why"), INPUTS, ids=[row[4] for row in INPUTS])
def test_arguments_are_mapped_in_both_directions(
    form: HookForm, tool: str, ours: dict[str, Any], theirs: dict[str, Any], why: str
) -> None:
    found = foreign_arguments(tool, ours, form, "/w")
    assert found == theirs, why
    back = own_arguments(tool, found, form)
    assert back == {key: f"/w/{value}" if value == "a" else value for key, value in ours.items()}, why


@pytest.mark.parametrize(("tool", "form", "name", "why"), NAMES, ids=[row[3] for row in NAMES])
def test_tools_have_the_names_of_other_programs(tool: str, form: HookForm, name: str, why: str) -> None:
    assert foreign_names(tool, form)[0] == name, why
    if not name.startswith("mcp_a"):
        assert own_name(name, form) == tool, why


@pytest.mark.parametrize(("matcher", "tool", "wanted", "why"), MATCHERS, ids=[row[3] for row in MATCHERS])
def test_a_matcher_matches_as_in_claude_code(matcher: str, tool: str, wanted: bool, why: str) -> None:
    assert matches(matcher, foreign_names(tool, HookForm.CLAUDE)) is wanted, why
    if matcher == "bash":
        assert matches(matcher, foreign_names(tool, HookForm.OURS)), "a hook of ours may use our own names"


@pytest.mark.parametrize(("condition", "arguments", "wanted", "why"), CONDITIONS, ids=[row[3] for row in CONDITIONS])
def test_a_condition_restricts_a_hook(condition: str, arguments: dict[str, Any], wanted: bool, why: str) -> None:
    assert condition_met(condition, ("Bash",), arguments) is wanted, why


def test_a_changed_input_replaces_or_merges() -> None:
    def changed(form: HookForm, out: dict[str, Any]) -> Any:
        hook = Hook("PreToolUse", form=form)
        return parsed_exit(hook, 0, json.dumps(out).encode(), b"", "bash", {"command": "ls", "timeout": 9000}).input

    ours = {"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"command": "pwd"}}}
    assert changed(HookForm.CLAUDE, ours) == {"command": "pwd"}
    theirs = {"decision": "allow", "hookSpecificOutput": {"tool_input": {"command": "pwd"}}}
    assert changed(HookForm.GEMINI, theirs) == {"command": "pwd", "timeout": 9000}
    with pytest.raises(WireError):
        changed(HookForm.CLAUDE, {"decision": "modify"})


CLAUDE = """{
  "permissions": {"allow": ["Bash(ls)"]},
  "hooks": {
    "PreToolUse": [
      {"matcher": "Bash", "hooks": [
        {"type": "command", "command": "\\"$CLAUDE_PROJECT_DIR\\"/.claude/hooks/check.sh", "timeout": 5},
        {"type": "command", "command": "jq .tool_name", "onFailure": "continue"}
      ]}
    ],
    "PreModelSwitch": [{"hooks": [{"type": "command", "command": "true"}]}],
    "Stop": [{"hooks": [{"type": "agent", "prompt": "check"}, {"type": "prompt", "prompt": "done? $ARGUMENTS"}]}],
    "PostToolUse": [{"matcher": "(", "hooks": [{"type": "command", "command": "true"}]}]
  }
}
"""
GEMINI = """{
  // a comment
  "hooks": {"BeforeTool": [{"matcher": "write_file|replace", "hooks": [
    {"type": "command", "command": "./check.sh", "timeout": 5000}]}],
    "BeforeModel": [{"hooks": [{"type": "command", "command": "true"}]}]}
}
"""
CODEX = """model = "x"

[[hooks.PreToolUse]]
matcher = "Bash"

[[hooks.PreToolUse.hooks]]
type = "command"
command = "python3 .codex/hooks/guard.py"
"""


def test_the_files_of_three_programs_are_read() -> None:
    claude = read_hooks(CLAUDE.encode(), ".claude/settings.json", HookForm.CLAUDE, HookScope.REPOSITORY)
    first, second, third = claude.hooks
    assert (first.event, first.matcher, first.timeout, first.line) == ("PreToolUse", "Bash", 5.0, 6)
    assert (second.line, second.lenient) == (7, False), "a repository cannot choose that its guard fails open"
    assert (third.event, third.prompt, third.line) == ("Stop", "done? $ARGUMENTS", 11)
    assert [fault.event for fault in claude.faults] == ["Stop", "PostToolUse"]
    assert "PreModelSwitch" in claude.left[0]
    mine = read_hooks(CLAUDE.encode(), "~/.claude/settings.json", HookForm.CLAUDE, HookScope.USER)
    assert mine.hooks[1].lenient
    (gemini,) = read_hooks(GEMINI.encode(), ".gemini/settings.json", HookForm.GEMINI, HookScope.REPOSITORY).hooks
    assert (gemini.event, gemini.timeout, gemini.line) == ("PreToolUse", 5.0, 4)
    (codex,) = read_hooks(CODEX.encode(), ".codex/config.toml", HookForm.CODEX, HookScope.REPOSITORY).hooks
    assert (codex.event, codex.command, codex.line) == ("PreToolUse", "python3 .codex/hooks/guard.py", 8)


def test_a_file_that_cannot_be_read_is_a_fault_and_lines_of_the_guard_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text('{"hooks": {')
    (found,) = personal_files(str(tmp_path))
    assert found.faults[0].why == "it is not valid JSON"
    guard = {
        "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "agent guard hook claude || exit 2"}]}]}
    }
    (tmp_path / ".claude/settings.json").write_text(json.dumps(guard))
    assert personal_files(str(tmp_path)) == ()
    (tmp_path / ".claude/settings.json").write_text(CLAUDE)
    assert personal_files(str(tmp_path), ("codex",)) == ()
    assert personal_files(str(tmp_path), ("claude",))[0].hooks


# fmt: off
SCRIPTS: list[tuple[str, tuple[str, ...], str]] = [
    ('"$CLAUDE_PROJECT_DIR"/.claude/hooks/a.sh',       (".claude/hooks/a.sh",),          "the folder of the project, in quotes"),
    ("${CLAUDE_PROJECT_DIR}/tools/a.py --fix",         ("tools/a.py",),                  "another spelling"),
    ("python3 .claude/hooks/a.py",                     ("python3", ".claude/hooks/a.py"), "the script of an interpreter"),
    ("uv run --quiet scripts/a.py",                    ("uv", "run", "scripts/a.py"),    "a runner and its script"),
    ("cat | jq . && ./check.sh",                       ("cat", "jq", "check.sh"),        "every command of a list"),
    ("npx prettier --write src/a.ts",                  ("npx", "prettier"),              "data is no script"),
    ("bash -c ../outside.sh",                          ("bash",),                        "nothing outside of the repository"),
    ("$(git rev-parse --show-toplevel)/x/y.sh",        ("x/y.sh",),                      "the top of the repository"),
    ("cd tools && ./guard.sh",                         ("cd", "guard.sh", "tools/cd", "tools/guard.sh"), "a folder that the command changes to"),
]
# fmt: on


@pytest.mark.parametrize(("command", "wanted", "why"), SCRIPTS, ids=[row[2] for row in SCRIPTS])
def test_the_scripts_of_a_hook_are_found(command: str, wanted: tuple[str, ...], why: str) -> None:
    assert named_scripts(Hook("Stop", command=command)) == wanted, why
