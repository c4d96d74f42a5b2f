"""The calls of guarded agents: what their hooks report, and the form of the answers."""

import json
from types import ModuleType

import pytest

from policy.model.action import (
    Action,
    CallServerTool,
    EditFile,
    FetchAddress,
    GlobFiles,
    GrepFiles,
    ListFolder,
    ReadFile,
    RunArgv,
    SearchWeb,
    WriteFile,
)
from runner.frontends.guard import claude, codex, cursor, gemini, opencode
from runner.frontends.guard.answering import AGENTS, Rendered, agent_module
from runner.frontends.guard.call import CallKind, GuardAnswer, HookAnswer, UnreadableCallError
from runner.frontends.guard.hook_input import parse_input

CWD = "/nonexistent/w"
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Delete File: b.py\n*** End Patch"


def claude_input(tool: str, given: object, event: str = "PreToolUse", mode: str = "default") -> dict[str, object]:
    return {
        "session_id": "s1",
        "cwd": CWD,
        "permission_mode": mode,
        "hook_event_name": event,
        "tool_name": tool,
        "tool_input": given,
        "tool_use_id": "t1",
    }


def gemini_input(tool: str, given: object, event: str = "BeforeTool") -> dict[str, object]:
    return {"session_id": "s1", "cwd": CWD, "hook_event_name": event, "tool_name": tool, "tool_input": given}


def cursor_input(event: str, **more: object) -> dict[str, object]:
    return {"conversation_id": "s1", "generation_id": "g1", "hook_event_name": event, "workspace_roots": [CWD], **more}


# fmt: off
ROWS: list[tuple[ModuleType, dict[str, object], CallKind, str, tuple[Action, ...], str]] = [
    (claude, claude_input("Bash", {"command": "ls", "timeout": 5}), CallKind.SHELL, "ls", (), "claude-shell"),
    (claude, claude_input("Read", {"file_path": "a"}), CallKind.ACTIONS, "", (ReadFile(f"{CWD}/a"),), "claude-read"),
    (claude, claude_input("Read", {"file_path": "../x"}), CallKind.ACTIONS, "", (ReadFile("/nonexistent/x"),), "claude-up"),
    (claude, claude_input("Write", {"file_path": "/x/a", "content": "t"}), CallKind.ACTIONS, "", (WriteFile("/x/a", "t"),),
     "claude-write"),
    (claude, claude_input("Edit", {"file_path": "a", "old_string": "o", "new_string": "n", "replace_all": True}),
     CallKind.ACTIONS, "", (EditFile(f"{CWD}/a", "o", "n", True),), "claude-edit"),
    (claude, claude_input("MultiEdit", {"file_path": "a", "edits": [
        {"old_string": "o", "new_string": "n"}, {"old_string": "p", "new_string": "q"}]}),
     CallKind.ACTIONS, "", (EditFile(f"{CWD}/a", "o", "n"), EditFile(f"{CWD}/a", "p", "q")), "claude-edits"),
    (claude, claude_input("NotebookEdit", {"notebook_path": "n.ipynb", "new_source": "x"}), CallKind.ACTIONS, "",
     (EditFile(f"{CWD}/n.ipynb", "", "x"),), "claude-notebook"),
    (claude, claude_input("LS", {"path": "/etc"}), CallKind.ACTIONS, "", (ListFolder("/etc"),), "claude-list"),
    (claude, claude_input("Glob", {"pattern": "/nonexistent/q/**/*.py"}), CallKind.ACTIONS, "",
     (GlobFiles("**/*.py", "/nonexistent/q"),), "claude-glob-elsewhere"),
    (claude, claude_input("Grep", {"pattern": "key", "path": "."}), CallKind.REFUSED, "", (), "claude-search-of-a-folder"),
    (claude, claude_input("Grep", {"pattern": "key", "path": "/proc/version"}), CallKind.ACTIONS, "",
     (GrepFiles("key", "/proc/version"),), "claude-search-of-a-file"),
    (claude, claude_input("WebFetch", {"url": "https://x.example"}), CallKind.ACTIONS, "",
     (FetchAddress("https://x.example"),), "claude-fetch"),
    (claude, claude_input("WebSearch", {"query": "q"}), CallKind.ACTIONS, "", (SearchWeb("q", "claude"),), "claude-search"),
    (claude, claude_input("mcp__git__log", {"n": 1}), CallKind.ACTIONS, "", (CallServerTool("git", "log", '{"n":1}'),),
     "claude-server"),
    (claude, claude_input("TodoWrite", {}), CallKind.INERT, "", (), "claude-inert"),
    (claude, claude_input("Teleport", {}), CallKind.UNKNOWN, "", (), "claude-unknown"),
    (claude, claude_input("Bash", {"command": "ls"}, "PostToolUse"), CallKind.AFTER, "ls", (), "claude-after"),
    (codex, claude_input("Bash", {"command": "ls"}), CallKind.SHELL, "ls", (), "codex-shell"),
    (codex, claude_input("apply_patch", {"command": PATCH}), CallKind.ACTIONS, "",
     (EditFile(f"{CWD}/a.py", "", "y\n"), RunArgv(("rm", "-f", "--", f"{CWD}/b.py"), CWD)), "codex-patch"),
    (codex, claude_input("write_stdin", {}), CallKind.INERT, "", (), "codex-input-of-a-running-command"),
    (codex, claude_input("mcp__git__log", {}), CallKind.ACTIONS, "", (CallServerTool("git", "log"),), "codex-server"),
    (codex, claude_input("shell_v9", {}), CallKind.UNKNOWN, "", (), "codex-unknown"),
    (gemini, gemini_input("run_shell_command", {"command": "ls"}), CallKind.SHELL, "ls", (), "gemini-shell"),
    (gemini, gemini_input("read_file", {"file_path": "a"}), CallKind.ACTIONS, "", (ReadFile(f"{CWD}/a"),), "gemini-read"),
    (gemini, gemini_input("replace", {"file_path": "a", "old_string": "o", "new_string": "n"}), CallKind.ACTIONS, "",
     (EditFile(f"{CWD}/a", "o", "n"),), "gemini-edit"),
    (gemini, gemini_input("read_many_files", {"include": ["**"]}), CallKind.REFUSED, "", (), "gemini-many-files"),
    (gemini, gemini_input("grep_search", {"pattern": "k"}), CallKind.REFUSED, "", (), "gemini-search"),
    (gemini, gemini_input("mcp_a_b_c", {}) | {"mcp_context": {"server_name": "a_b", "tool_name": "c"}}, CallKind.ACTIONS, "",
     (CallServerTool("a_b", "c"),), "gemini-server"),
    (gemini, gemini_input("mcp_a_b_c", {}), CallKind.UNKNOWN, "", (), "gemini-server-without-its-name"),
    (cursor, cursor_input("beforeShellExecution", command="ls", cwd="/x"), CallKind.SHELL, "ls", (), "cursor-shell"),
    (cursor, cursor_input("beforeReadFile", file_path="/x/a"), CallKind.ACTIONS, "", (ReadFile("/x/a"),), "cursor-read"),
    (cursor, cursor_input("beforeMCPExecution", tool_name="log", tool_input='{"n":1}'), CallKind.ACTIONS, "",
     (CallServerTool("cursor", "log", '{"n":1}'),), "cursor-server"),
    (cursor, cursor_input("preToolUse", tool_name="Write", tool_input={"file_path": "a", "content": "t"}), CallKind.ACTIONS,
     "", (WriteFile(f"{CWD}/a", "t"),), "cursor-write"),
    (cursor, cursor_input("preToolUse", tool_name="Shell", tool_input={"command": "ls"}), CallKind.INERT, "", (),
     "cursor-shell-has-its-own-event"),
    (opencode, claude_input("bash", {"command": "ls"}, "before"), CallKind.SHELL, "ls", (), "opencode-shell"),
    (opencode, claude_input("write", {"filePath": "a", "content": "t"}, "before"), CallKind.ACTIONS, "",
     (WriteFile(f"{CWD}/a", "t"),), "opencode-write"),
    (opencode, claude_input("grep", {"pattern": "k"}, "before"), CallKind.REFUSED, "", (), "opencode-search"),
    (opencode, claude_input("git_log", {}, "before"), CallKind.ACTIONS, "", (CallServerTool("git", "log"),),
     "opencode-server"),
]
# fmt: on


@pytest.mark.parametrize(("module", "source", "kind", "script", "actions", "why"), ROWS, ids=[row[-1] for row in ROWS])
def test_a_call_becomes_what_the_gate_judges(
    module: ModuleType, source: dict[str, object], kind: CallKind, script: str, actions: tuple[Action, ...], why: str
) -> None:
    call = module.read_call(parse_input(json.dumps(source).encode()))
    assert (call.kind, call.script, call.actions, call.session) == (kind, script, actions, "s1")


def test_the_folder_of_a_shell_call_is_the_one_in_its_arguments() -> None:
    found = gemini.read_call(gemini_input("run_shell_command", {"command": "ls", "dir_path": "sub"}))
    assert found.cwd == f"{CWD}/sub"
    found = opencode.read_call(claude_input("bash", {"command": "ls", "workdir": "/x"}, "before"))
    assert found.cwd == "/x"


BAD: list[tuple[ModuleType, object, str]] = [
    (claude, [], "no object"),
    (claude, {}, "empty"),
    (claude, claude_input("Bash", {}), "no command"),
    (claude, claude_input("Bash", {"command": ["ls"]}), "a list as the command"),
    (claude, claude_input("Bash", "ls"), "a text as the arguments"),
    (claude, claude_input("Bash", {"command": "ls"}) | {"cwd": "relative"}, "a relative folder"),
    (claude, claude_input("Edit", {"file_path": "a"}), "an edit without texts"),
    (claude, claude_input("MultiEdit", {"file_path": "a", "edits": []}), "no edits"),
    (claude, claude_input("Read", {"file_path": "a\0b"}), "a NUL in a path"),
    (claude, claude_input("Glob", {"pattern": "../*"}), "a pattern that goes up"),
    (codex, claude_input("apply_patch", {"command": "--- a\n+++ b"}), "another form of patch"),
    (
        codex,
        claude_input("apply_patch", {"command": "*** Begin Patch\n*** Link File: a\n*** End Patch"}),
        "an unknown kind of change",
    ),
    (gemini, gemini_input("web_fetch", {"prompt": "read it"}), "a fetch without an address"),
    (cursor, cursor_input("preToolUse", tool_name="Write", tool_input={}), "a write without a file"),
]


@pytest.mark.threat("T193")
@pytest.mark.parametrize(("module", "source", "why"), BAD, ids=[row[-1] for row in BAD])
def test_an_input_that_cannot_be_read_is_an_error(module: ModuleType, source: object, why: str) -> None:
    with pytest.raises(UnreadableCallError):
        module.read_call(parse_input(json.dumps(source).encode()))


@pytest.mark.threat("T193")
@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"a": 1, "a": 2}', b"[" * 100_000, b'{"a": NaN}'])
def test_a_text_that_another_program_may_read_differently_is_an_error(text: bytes) -> None:
    with pytest.raises(UnreadableCallError):
        parse_input(text)


INNER = '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": '
# fmt: off
ANSWERS: list[tuple[ModuleType, GuardAnswer, Rendered, str]] = [
    (claude, GuardAnswer(HookAnswer.ALLOW, "r", "new"), (INNER + '"allow", "permissionDecisionReason": "r", "updatedInput": '
     '{"command": "new", "timeout": 5}}}', "", 0), "claude-rewritten"),
    (claude, GuardAnswer(HookAnswer.ASK, "r", "new"), (INNER + '"ask", "permissionDecisionReason": "r", "updatedInput": '
     '{"command": "new", "timeout": 5}}}', "", 0), "claude-asks"),
    (claude, GuardAnswer(HookAnswer.DENY, "r"), (INNER + '"deny", "permissionDecisionReason": "r"}}', "", 0), "claude-denied"),
    (claude, GuardAnswer(HookAnswer.NONE), ("", "", 0), "claude-no-opinion"),
    (codex, GuardAnswer(HookAnswer.ALLOW, "r", "new"), (INNER + '"allow", "updatedInput": {"command": "new", "timeout": 5}}}',
     "", 0), "codex-rewritten"),
    (codex, GuardAnswer(HookAnswer.ALLOW, "r"), ("", "", 0), "codex-allowed"),
    (codex, GuardAnswer(HookAnswer.ASK, "r", "new"), ("", "r", 2), "codex-cannot-ask"),
    (codex, GuardAnswer(HookAnswer.DENY, "r"), ("", "r", 2), "codex-denied"),
    (gemini, GuardAnswer(HookAnswer.ALLOW, "r", "new"), ('{"decision": "allow", "reason": "r", "hookSpecificOutput": '
     '{"hookEventName": "BeforeTool", "tool_input": {"command": "new"}}}', "", 0), "gemini-rewritten"),
    (gemini, GuardAnswer(HookAnswer.DENY, "r"), ("", "r", 2), "gemini-denied"),
    (cursor, GuardAnswer(HookAnswer.DENY, "r"), ('{"permission": "deny", "user_message": "r", "agent_message": "r"}', "", 2),
     "cursor-denied"),
    (opencode, GuardAnswer(HookAnswer.ALLOW, "r", "new"), ('{"command": "new"}', "", 0), "opencode-rewritten"),
    (opencode, GuardAnswer(HookAnswer.DENY, "r"), ("", "r", 2), "opencode-denied"),
]
# fmt: on


@pytest.mark.parametrize(("module", "answer", "rendered", "why"), ANSWERS, ids=[row[-1] for row in ANSWERS])
def test_an_answer_has_the_form_of_its_agent(
    module: ModuleType, answer: GuardAnswer, rendered: Rendered, why: str
) -> None:
    call = claude.read_call(claude_input("Bash", {"command": "ls", "timeout": 5}))
    assert module.render(call, answer) == rendered


@pytest.mark.threat("T193")
def test_a_call_that_could_not_be_read_is_denied_by_the_exit_code() -> None:
    for agent in AGENTS:
        assert agent_module(agent).render(None, GuardAnswer(HookAnswer.DENY, "r"))[1:] == ("r", 2), agent
