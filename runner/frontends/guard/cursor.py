"""The hooks of Cursor: `beforeShellExecution`, `beforeMCPExecution`, `beforeReadFile` and `preToolUse`.

The hook of a shell command cannot replace the command. It denies the original one, and tells the model the command with
the token, which it then allows.
"""

from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer, UnreadableCallError
from runner.frontends.guard.hook_input import folder, parse_input, table, text

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.action import Action

NAME = "cursor"
_OTHER_EVENT = ("Shell", "Read", "MCP")  # tools that have an event of their own
_INERT = frozenset(("Task", "TodoWrite", "AskQuestion", "SwitchMode", "LS", "Glob"))
_WRITING = frozenset(("Write", "StrReplace", "Edit", "MultiEdit", "Delete", "EditNotebook", "ApplyPatch"))


def read_call(source: dict[str, object]) -> GuardedCall:
    """Return the call in the input of a hook. Raise UnreadableCallError."""
    event = text(source, "hook_event_name")
    roots = source.get("workspace_roots")
    if "cwd" not in source and isinstance(roots, list) and roots:
        source = {**source, "cwd": roots[0]}
    cwd, session = folder(source), text(source, "conversation_id", default="")
    tool = text(source, "tool_name", default="") or event
    call = text(source, "tool_use_id", default="") or text(source, "generation_id", default="")

    def found(kind: CallKind, script: str = "", actions: "tuple[Action, ...]" = (), note: str = "") -> GuardedCall:
        return GuardedCall(
            NAME, kind, tool, session, call, cwd, script, actions, asks=True, input=source, note=note, rewrites=False
        )

    if event == "beforeShellExecution":
        return found(CallKind.SHELL, text(source, "command"))
    from runner.frontends.guard import tool_actions as made

    if event == "beforeReadFile":
        return found(CallKind.ACTIONS, actions=made.read_actions(text(source, "file_path"), cwd))
    if event == "beforeMCPExecution":
        given = source.get("tool_input")
        arguments = parse_input(given.encode()) if isinstance(given, str) else table(source, "tool_input")
        server = text(source, "server_name", default="") or "cursor"
        return found(CallKind.ACTIONS, actions=made.server_action(server, tool, arguments))
    if event != "preToolUse" or tool in _INERT or tool.startswith(_OTHER_EVENT):
        return found(CallKind.INERT)
    given_input = table(source, "tool_input")
    if tool == "Grep":
        path = text(given_input, "path", default=cwd)
        return made.search_call(found, text(given_input, "pattern", default=""), path, cwd)
    if tool in _WRITING:
        names = ("file_path", "path", "target_file", "target_notebook")
        path = next((text(given_input, name) for name in names if name in given_input), "")
        if not path:
            raise UnreadableCallError(f"the input of the tool `{tool}` names no file")
        content = next((text(given_input, name) for name in ("content", "contents", "new_string")
                        if name in given_input), "")  # fmt: skip
        if tool == "Delete":
            return found(CallKind.ACTIONS, actions=made.delete_actions(path, cwd))
        return found(CallKind.ACTIONS, actions=made.write_actions(path, cwd, content))
    return found(CallKind.UNKNOWN)


def render(call: GuardedCall | None, given: GuardAnswer) -> tuple[str, str, int]:
    """Return the answer as standard output, standard error and exit code. `call` is None if it could not be read."""
    from json import dumps

    if call is None:
        return "", given.reason, 2
    if given.answer is HookAnswer.NONE:
        return dumps({"permission": "allow"}), "", 0
    found = {"permission": given.answer.value, "user_message": given.reason, "agent_message": given.reason}
    # An exit code of 2 denies as well, in a version that reads other names.
    return dumps(found), "", 2 if given.answer is HookAnswer.DENY else 0
