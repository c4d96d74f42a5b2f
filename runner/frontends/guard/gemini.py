"""The hooks of Gemini CLI: `BeforeTool` and `AfterTool`. The input has no id of the call."""

from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer, UnreadableCallError
from runner.frontends.guard.hook_input import absolute, folder, table, text

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.action import Action

NAME = "gemini"
SHELL = "run_shell_command"
_INERT = frozenset((
    "ask_user", "write_todos", "enter_plan_mode", "exit_plan_mode", "complete_task", "update_topic", "invoke_agent",
    "get_internal_docs", "list_mcp_resources", "tracker_create_task", "tracker_update_task", "tracker_get_task",
    "tracker_list_tasks", "tracker_add_dependency", "tracker_visualize",
))  # fmt: skip


def read_call(source: dict[str, object]) -> GuardedCall:
    """Return the call in the input of a hook. Raise UnreadableCallError."""
    event, tool, cwd = text(source, "hook_event_name"), text(source, "tool_name"), folder(source)
    given, session = table(source, "tool_input"), text(source, "session_id", default="")
    if tool == SHELL:
        cwd = absolute(text(given, "dir_path", default="."), cwd)

    def found(kind: CallKind, script: str = "", actions: "tuple[Action, ...]" = (), note: str = "") -> GuardedCall:
        return GuardedCall(NAME, kind, tool, session, "", cwd, script, actions, False, False, given, note)

    if event == "AfterTool":
        return found(CallKind.AFTER, text(given, "command", default="") if tool == SHELL else "")
    if event != "BeforeTool" or tool in _INERT:
        return found(CallKind.INERT)
    if tool == SHELL:
        return found(CallKind.SHELL, text(given, "command"))
    from runner.frontends.guard import tool_actions as made

    if tool == "read_file":
        return found(CallKind.ACTIONS, actions=made.read_actions(text(given, "file_path"), cwd))
    if tool == "write_file":
        return found(
            CallKind.ACTIONS, actions=made.write_actions(text(given, "file_path"), cwd, text(given, "content"))
        )
    if tool == "replace":
        edit = (text(given, "old_string", default=""), text(given, "new_string"), given.get("allow_multiple") is True)
        return found(CallKind.ACTIONS, actions=made.edit_actions(text(given, "file_path"), cwd, (edit,)))
    path = text(given, "dir_path", default="") or text(given, "path", default="") or cwd
    if tool == "list_directory":
        return found(CallKind.ACTIONS, actions=made.list_actions(path, cwd))
    if tool == "glob":
        return found(CallKind.ACTIONS, actions=made.glob_actions(text(given, "pattern"), path, cwd))
    if tool in ("grep_search", "search_file_content"):
        return made.search_call(found, text(given, "pattern"), path, cwd)
    if tool == "read_many_files":
        return found(
            CallKind.REFUSED, note="the agent reads many files at once without a sandbox; read them one by one"
        )
    if tool == "web_fetch":
        return found(CallKind.ACTIONS, actions=_fetches(text(given, "prompt", default="") or text(given, "url")))
    if tool == "google_web_search":
        return found(CallKind.ACTIONS, actions=made.search_action(text(given, "query"), NAME))
    context = table(source, "mcp_context")
    server, name = text(context, "server_name", default=""), text(context, "tool_name", default="")
    if tool.startswith("mcp_") and server and name:
        return found(CallKind.ACTIONS, actions=made.server_action(server, name, given))
    return found(CallKind.UNKNOWN)


def render(call: GuardedCall | None, given: GuardAnswer) -> tuple[str, str, int]:
    """Return the answer as standard output, standard error and exit code. `call` is None if it could not be read."""
    from json import dumps

    if given.answer in (HookAnswer.DENY, HookAnswer.ASK):
        return "", given.reason, 2
    if given.answer is HookAnswer.NONE or call is None:
        return "", "", 0
    found: dict[str, object] = {"decision": "allow", "reason": given.reason}
    if given.rewritten:
        found["hookSpecificOutput"] = {"hookEventName": "BeforeTool", "tool_input": {"command": given.rewritten}}
    return dumps(found), "", 0


def _fetches(prompt: str) -> "tuple[Action, ...]":
    """Return the actions of a fetch: its prompt contains the addresses."""
    import re

    from runner.frontends.guard.tool_actions import fetch_action

    found = re.findall(r"https?://[^\s\"'<>]+", prompt)
    if not found:
        raise UnreadableCallError("the fetch names no address")
    return tuple(action for url in found for action in fetch_action(url))
