"""The hook of opencode: `tool.execute.before` of a plugin, which `--install` writes, calls the hook program.

The plugin sends the fields of the hooks of Claude Code, throws for an exit code other than 0, and takes the new command
from the answer. A plugin cannot put a question to the user.
"""

from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer
from runner.frontends.guard.hook_input import absolute, folder, table, text

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.action import Action

NAME = "opencode"
_INERT = frozenset(("todowrite", "todoread", "task", "skill", "question", "plan_enter", "plan_exit", "invalid"))


def read_call(source: dict[str, object]) -> GuardedCall:
    """Return the call in the input of a hook. Raise UnreadableCallError."""
    event, tool, cwd = text(source, "hook_event_name"), text(source, "tool_name"), folder(source)
    given = table(source, "tool_input")
    session, call = text(source, "session_id", default=""), text(source, "tool_use_id", default="")
    if tool == "bash":
        cwd = absolute(text(given, "workdir", default="."), cwd)

    def found(kind: CallKind, script: str = "", actions: "tuple[Action, ...]" = (), note: str = "") -> GuardedCall:
        return GuardedCall(NAME, kind, tool, session, call, cwd, script, actions, False, False, given, note)

    if event == "after":
        return found(CallKind.AFTER, text(given, "command", default="") if tool == "bash" else "")
    if tool in _INERT:
        return found(CallKind.INERT)
    if tool == "bash":
        return found(CallKind.SHELL, text(given, "command"))
    from runner.frontends.guard import tool_actions as made

    path = text(given, "filePath", default="") or text(given, "path", default="") or cwd
    if tool == "read":
        return found(CallKind.ACTIONS, actions=made.read_actions(path, cwd))
    if tool == "write":
        return found(CallKind.ACTIONS, actions=made.write_actions(path, cwd, text(given, "content")))
    if tool == "edit":
        edit = (text(given, "oldString", default=""), text(given, "newString"), given.get("replaceAll") is True)
        return found(CallKind.ACTIONS, actions=made.edit_actions(path, cwd, (edit,)))
    if tool in ("patch", "apply_patch"):
        return found(CallKind.ACTIONS, actions=made.patch_actions(text(given, "patchText"), cwd))
    if tool == "list":
        return found(CallKind.ACTIONS, actions=made.list_actions(path, cwd))
    if tool == "glob":
        return found(CallKind.ACTIONS, actions=made.glob_actions(text(given, "pattern"), path, cwd))
    if tool == "grep":
        return made.search_call(found, text(given, "pattern"), path, cwd)
    if tool == "webfetch":
        return found(CallKind.ACTIONS, actions=made.fetch_action(text(given, "url")))
    if tool == "websearch":
        return found(CallKind.ACTIONS, actions=made.search_action(text(given, "query"), NAME))
    server, _, name = tool.partition("_")
    if server and name:  # the tools of MCP servers are called SERVER_TOOL
        return found(CallKind.ACTIONS, actions=made.server_action(server, name, given))
    return found(CallKind.UNKNOWN)


def render(call: GuardedCall | None, given: GuardAnswer) -> tuple[str, str, int]:
    """Return the answer as standard output, standard error and exit code. `call` is None if it could not be read."""
    from json import dumps

    if given.answer in (HookAnswer.DENY, HookAnswer.ASK):
        return "", given.reason, 2
    return dumps({"command": given.rewritten} if given.rewritten and call is not None else {}), "", 0
