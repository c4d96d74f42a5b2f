"""The hooks of Codex: `PreToolUse` and `PostToolUse`.

Codex knows no answer `ask`, and it reports an `allow` without a new input as a failure of the hook, so an allowed call
that is not rewritten gets an empty answer.
"""

from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer
from runner.frontends.guard.hook_input import folder, table, text

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.action import Action

NAME = "codex"
# `write_stdin` reaches only a command that was judged, and the others have no effect outside of the agent.
_INERT = frozenset((
    "update_plan", "write_stdin", "request_user_input", "spawn_agent", "send_input", "wait_agent", "wait",
    "close_agent", "resume_agent", "list_agents", "get_goal", "create_goal", "update_goal", "tool_search",
))  # fmt: skip


def read_call(source: dict[str, object]) -> GuardedCall:
    """Return the call in the input of a hook. Raise UnreadableCallError."""
    event, tool, cwd = text(source, "hook_event_name"), text(source, "tool_name"), folder(source)
    given = source.get("tool_input")
    table_of = given if isinstance(given, dict) else {}
    plan = text(source, "permission_mode", default="") == "plan"
    session, call = text(source, "session_id", default=""), text(source, "tool_use_id", default="")

    def found(kind: CallKind, script: str = "", actions: "tuple[Action, ...]" = ()) -> GuardedCall:
        return GuardedCall(NAME, kind, tool, session, call, cwd, script, actions, plan, False, table_of)

    if event == "PostToolUse":
        return found(CallKind.AFTER, text(table_of, "command", default="") if tool == "Bash" else "")
    if event != "PreToolUse" or tool in _INERT:
        return found(CallKind.INERT)
    table(source, "tool_input")  # anything but an object is refused
    if tool == "Bash":
        return found(CallKind.SHELL, text(table_of, "command"))
    from runner.frontends.guard import tool_actions as made

    if tool == "apply_patch":
        patch = next((text(table_of, name) for name in ("command", "input", "patch") if name in table_of), "")
        return found(CallKind.ACTIONS, actions=made.patch_actions(patch, cwd))
    if tool == "view_image":
        return found(CallKind.ACTIONS, actions=made.read_actions(text(table_of, "path"), cwd))
    server, _, name = tool.removeprefix("mcp__").partition("__")
    if tool.startswith("mcp__") and server and name:
        return found(CallKind.ACTIONS, actions=made.server_action(server, name, table_of))
    return found(CallKind.UNKNOWN)


def render(call: GuardedCall | None, given: GuardAnswer) -> tuple[str, str, int]:
    """Return the answer as standard output, standard error and exit code. `call` is None if it could not be read."""
    from json import dumps

    if given.answer in (HookAnswer.DENY, HookAnswer.ASK):
        return "", given.reason, 2
    if not given.rewritten or call is None:
        return "", "", 0
    specific: dict[str, object] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "updatedInput": {**(call.input or {}), "command": given.rewritten},
    }
    return dumps({"hookSpecificOutput": specific}), "", 0
