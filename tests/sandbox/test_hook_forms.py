"""Hooks in the forms of published ones, each with the decision that its own program would reach."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from policy.model.tier import Mode
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.config.hookfiles.hook import HookForm, HookScope
from runner.config.hookfiles.json_hooks import table_hooks
from runner.engine.hook_access import HookReply
from runner.hooks.configured import ConfiguredHooks
from runner.hooks.session_hooks import SessionHooks
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from tests.support.hook_session import folders

JQ_COMMAND = "cmd=$(jq -r '.tool_input.command // empty')"
DENY = 'python3 -c \'import json; print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "%s", "permissionDecisionReason": "why"}}))\''
LS, RM, PUSH = {"command": "ls -la"}, {"command": "rm -rf build"}, {"command": "cd a && git push origin main --force"}
TS, ENV = {"path": "src/a.ts", "old_string": "a", "new_string": "b"}, {"path": ".env.local", "content": "A=1"}

# fmt: off
# event, matcher, command, tool, its arguments (or the fields of the event), the decision of the original, why
ROWS: list[tuple[str, str, str, str, dict[str, Any], str]] = [
    ("PreToolUse", "Bash", f'{JQ_COMMAND}; if echo "$cmd" | grep -qE "rm\\s+-rf"; then echo no >&2; exit 2; fi', "bash", RM, "deny"),
    ("PreToolUse", "Bash", f'{JQ_COMMAND}; if echo "$cmd" | grep -qE "rm\\s+-rf"; then echo no >&2; exit 2; fi', "bash", LS, "allow"),
    ("PreToolUse", "Bash", f'{JQ_COMMAND}; case "$cmd" in *"push"*"--force"*) echo no >&2; exit 2;; esac', "bash", PUSH, "deny"),
    ("PreToolUse", "Bash", f'{JQ_COMMAND}; [[ "$cmd" == *git* ]] || exit 0; {DENY % "ask"}', "bash", PUSH, "ask"),
    ("PreToolUse", "Bash", f'{JQ_COMMAND}; [[ "$cmd" == *git* ]] || exit 0; {DENY % "ask"}', "bash", LS, "allow"),
    ("PreToolUse", "", DENY % "deny", "bash", LS, "deny"),
    ("PreToolUse", "*", DENY % "allow", "bash", LS, "allow"),
    ("PreToolUse", ".*", DENY % "defer", "bash", LS, "allow"),
    ("PreToolUse", "Edit|Write", DENY % "deny", "bash", LS, "allow"),
    ("PreToolUse", "Edit|MultiEdit|Write", 'f=$(jq -r .tool_input.file_path); [[ "$f" == *.env* ]] && { echo "no $f" >&2; exit 2; }; exit 0', "write", ENV, "deny"),
    ("PreToolUse", "Edit|MultiEdit|Write", 'f=$(jq -r .tool_input.file_path); [[ "$f" == *.env* ]] && { echo "no $f" >&2; exit 2; }; exit 0', "edit", TS, "allow"),
    ("PreToolUse", "Write|Edit", "python3 -c \"import json,sys; p=json.load(sys.stdin)['tool_input']['file_path']; sys.exit(2 if any(x in p for x in ['.env','.git/','secrets/']) else 0)\"", "write", ENV, "deny"),
    ("PreToolUse", "Write|Edit", "python3 -c \"import json,sys; p=json.load(sys.stdin)['tool_input']['file_path']; sys.exit(2 if any(x in p for x in ['.env','.git/','secrets/']) else 0)\"", "edit", TS, "allow"),
    ("PreToolUse", "Write", 'case "$(cat)" in *.env*) echo \'{"decision":"block","reason":"no"}\';; esac', "write", ENV, "deny"),
    ("PreToolUse", "Bash", 'echo \'{"decision":"approve","reason":"fine"}\'', "bash", LS, "allow"),
    ("PreToolUse", "Bash", 'echo \'{"continue": false, "stopReason": "stop"}\'', "bash", LS, "deny"),
    ("PreToolUse", "Bash", "jq -c '{hookSpecificOutput: {hookEventName: \"PreToolUse\", permissionDecision: \"allow\", updatedInput: (.tool_input + {command: (\"time \" + .tool_input.command)})}}'", "bash", LS, "modify"),
    ("PreToolUse", "mcp__.*__delete.*", "exit 2", "mcp__notes__delete_all", {"id": "1"}, "deny"),
    ("PreToolUse", "mcp__.*__delete.*", "exit 2", "mcp__notes__get", {"id": "1"}, "allow"),
    ("PreToolUse", "Task|Agent", "exit 2", "agent", {"prompt": "x"}, "deny"),
    ("PostToolUse", "Edit|Write", 'jq -r .tool_input.file_path | { read -r f; [[ "$f" == *.ts ]] && echo "lint $f" >&2 && exit 2; exit 0; }', "edit", TS, "retry"),
    ("PostToolUse", "Edit|Write", 'jq -n \'{decision: "block", reason: "two errors"}\'', "edit", TS, "retry"),
    ("PostToolUse", "", "cat > /dev/null; echo formatted", "edit", TS, "allow"),
    ("PostToolUse", "Write", "jq -n '{hookSpecificOutput: {hookEventName: \"PostToolUse\", additionalContext: \"style guide\"}}'", "write", ENV, "allow"),
    ("UserPromptSubmit", "", 'date -u +"now: %Y"; git branch --show-current 2>/dev/null || true', "", {"prompt": "hello"}, "allow"),
    ("UserPromptSubmit", "", "python3 -c \"import json,sys,re; p=json.load(sys.stdin)['prompt']; re.search('password', p) and (print('no', file=sys.stderr), sys.exit(2))\"", "", {"prompt": "my password"}, "deny"),
    ("Stop", "", '[ "$(jq -r .stop_hook_active)" = true ] && exit 0; echo \'{"decision":"block","reason":"run the tests"}\'', "", {"stop_hook_active": False}, "retry"),
    ("Stop", "", '[ "$(jq -r .stop_hook_active)" = true ] && exit 0; echo \'{"decision":"block","reason":"run the tests"}\'', "", {"stop_hook_active": True}, "allow"),
    ("SubagentStop", "", "exit 2", "", {"stop_hook_active": False}, "retry"),
    ("SessionStart", "startup|resume", "ls | head -5; echo ready", "", {"source": "startup"}, "allow"),
    ("PermissionRequest", "Bash", 'echo \'{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"no"}}}\'', "bash", RM, "deny"),
    ("PermissionRequest", "Bash", 'echo \'{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow"}}}\'', "bash", RM, "allow"),
    ("Notification", "", "cat > /dev/null; printf '\\a'", "", {"message": "x"}, "allow"),
    ("PreCompact", "auto", "exit 0", "", {"trigger": "auto"}, "allow"),
]
# fmt: on


async def _asked(hooks: SessionHooks, row: tuple[str, str, str, str, dict[str, Any], str]) -> str:
    event, matcher, command, tool, fields, _ = row
    table = {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]}
    file = table_hooks(table, json.dumps(table), "settings.json", HookForm.CLAUDE, HookScope.USER)
    assert len(file.hooks) == 1, (row, file.faults)
    hooks.use(file.hooks)
    reply: HookReply
    if tool:
        result = {"text": "ok", "is_error": False} if event == "PostToolUse" else None
        reply = await hooks.ask_about_call(event, tool, fields, "1", result=result)
    else:
        reply = await hooks.ask(event, str(fields.get("source", fields.get("trigger", ""))), fields)
    failed = [each.reason for each in reply.answers if each.failed]
    return f"failed: {failed}" if failed else reply.decision.name.lower()


@pytest.mark.threat("T205")
def test_the_forms_of_published_hooks_give_the_decision_of_the_original(tmp_path: Path) -> None:
    """All rows share one session, because opening one takes longer than a row."""
    work, environ = folders(tmp_path)
    settings = load(work, environ)

    async def session() -> list[tuple[str, str]]:
        options = SessionOptions(work, True, Mode.TRUST_PROJECT, hooks=ConfiguredHooks())
        model = OpenModel(ScriptedProvider(()), "none")
        async with open_session(
            options, settings, environ, model=model, approver=Unattended(lambda event: None), emit=lambda event: None
        ) as ctx:
            assert isinstance(ctx.hooks, SessionHooks)
            return [(await _asked(ctx.hooks, row), row[5]) for row in ROWS]

    found = asyncio.run(session())
    wrong = [(row[:2], got, wanted) for row, (got, wanted) in zip(ROWS, found, strict=True) if got != wanted]
    assert wrong == []
    assert len(ROWS) >= 30
