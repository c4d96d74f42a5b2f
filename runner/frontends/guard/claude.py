"""The hooks of Claude Code: `PreToolUse`, `PostToolUse` and `PostToolUseFailure`."""

from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer
from runner.frontends.guard.hook_input import folder, table, text

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.action import Action

NAME = "claude"
# Tools without an effect outside of the agent. The calls of a sub-agent pass the hook one by one.
_INERT = frozenset((
    "TodoWrite", "TodoRead", "Task", "Agent", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskOutput",
    "TaskStop", "BashOutput", "KillShell", "KillBash", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "ToolSearch",
    "SendMessage", "StructuredOutput",
))  # fmt: skip
_ATTENDED = ("default", "acceptEdits", "plan")  # modes in which `ask` reaches a person


def read_call(source: dict[str, object]) -> GuardedCall:
    """Return the call in the input of a hook. Raise UnreadableCallError."""
    event, tool, cwd = text(source, "hook_event_name"), text(source, "tool_name"), folder(source)
    given = table(source, "tool_input")
    mode = text(source, "permission_mode", default="")
    session, call = text(source, "session_id", default=""), text(source, "tool_use_id", default="")
    plan, asks = mode == "plan", mode in _ATTENDED

    def found(kind: CallKind, script: str = "", actions: "tuple[Action, ...]" = (), note: str = "") -> GuardedCall:
        return GuardedCall(NAME, kind, tool, session, call, cwd, script, actions, plan, asks, given, note)

    if event in ("PostToolUse", "PostToolUseFailure"):
        return found(CallKind.AFTER, text(given, "command", default="") if tool == "Bash" else "")
    if event != "PreToolUse":
        return found(CallKind.INERT)
    if tool in _INERT:
        return found(CallKind.INERT)
    if tool == "Bash":
        return found(CallKind.SHELL, text(given, "command"))
    from runner.frontends.guard import tool_actions as made

    path = text(given, "file_path", default="") or text(given, "notebook_path", default="")
    path = path or text(given, "path", default="") or cwd
    if tool == "Read":
        return found(CallKind.ACTIONS, actions=made.read_actions(path, cwd))
    if tool == "Write":
        return found(CallKind.ACTIONS, actions=made.write_actions(path, cwd, text(given, "content")))
    if tool == "Edit":
        return found(CallKind.ACTIONS, actions=made.edit_actions(path, cwd, made.edits_of([given])))
    if tool == "MultiEdit":
        return found(CallKind.ACTIONS, actions=made.edit_actions(path, cwd, made.edits_of(given.get("edits"))))
    if tool == "NotebookEdit":
        edit = ("", text(given, "new_source", default=""), False)
        return found(CallKind.ACTIONS, actions=made.edit_actions(path, cwd, (edit,)))
    if tool == "LS":
        return found(CallKind.ACTIONS, actions=made.list_actions(path, cwd))
    if tool == "Glob":
        return found(CallKind.ACTIONS, actions=made.glob_actions(text(given, "pattern"), path, cwd))
    if tool == "Grep":
        return made.search_call(found, text(given, "pattern"), path, cwd)
    if tool == "WebFetch":
        return found(CallKind.ACTIONS, actions=made.fetch_action(text(given, "url")))
    if tool == "WebSearch":
        return found(CallKind.ACTIONS, actions=made.search_action(text(given, "query"), NAME))
    server, _, name = tool.removeprefix("mcp__").partition("__")
    if tool.startswith("mcp__") and server and name:
        return found(CallKind.ACTIONS, actions=made.server_action(server, name, given))
    return found(CallKind.UNKNOWN)


def render(call: GuardedCall | None, given: GuardAnswer) -> tuple[str, str, int]:
    """Return the answer as standard output, standard error and exit code. `call` is None if it could not be read."""
    from json import dumps

    if call is not None and call.kind is CallKind.AFTER:
        if given.answer is not HookAnswer.DENY:
            return "", "", 0
        found: dict[str, object] = {"decision": "block", "reason": given.reason, "systemMessage": given.reason}
        return dumps(found), "", 0
    if given.answer is HookAnswer.NONE:
        return "", "", 0
    if call is None:
        return "", given.reason, 2  # an exit code of 2 denies whatever the output is
    specific: dict[str, object] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": given.answer.value,
        "permissionDecisionReason": given.reason,
    }
    if given.rewritten and call is not None:
        specific["updatedInput"] = {**(call.input or {}), "command": given.rewritten}
    return dumps({"hookSpecificOutput": specific}), "", 0
