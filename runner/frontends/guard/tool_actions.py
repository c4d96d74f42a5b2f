"""The actions of the tools of guarded agents, from their arguments."""

import os
from collections.abc import Callable

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
from policy.model.tool_arguments import canonical
from runner.frontends.guard.call import CallKind, GuardedCall, UnreadableCallError
from runner.frontends.guard.hook_input import absolute, text

_UNCONFINED_SEARCH = (
    "the agent's own search is not confined, so it would also read files that are hidden from its commands, such as "
    "`.env`; search with `grep` or `rg` in the shell tool, or read one file"
)


def read_actions(path: str, cwd: str) -> tuple[Action, ...]:
    """Return the actions of a read of one file."""
    return tuple(ReadFile(each) for each in _places(path, cwd))


def write_actions(path: str, cwd: str, content: str) -> tuple[Action, ...]:
    """Return the actions of a write of a whole file."""
    return tuple(WriteFile(each, content) for each in _places(path, cwd))


def edit_actions(path: str, cwd: str, edits: tuple[tuple[str, str, bool], ...]) -> tuple[Action, ...]:
    """Return the actions of replacements (old text, new text, all matches) in one file."""
    return tuple(EditFile(each, old, new, every) for each in _places(path, cwd) for old, new, every in edits)


def delete_actions(path: str, cwd: str) -> tuple[Action, ...]:
    """Return the actions of the deletion of one file."""
    return tuple(RunArgv(("rm", "-f", "--", each), cwd) for each in _places(path, cwd))


def list_actions(path: str, cwd: str) -> tuple[Action, ...]:
    """Return the actions of a list of one folder."""
    return tuple(ListFolder(each) for each in _places(path, cwd))


def glob_actions(pattern: str, path: str, cwd: str) -> tuple[Action, ...]:
    """Return the actions of a search for names. An absolute pattern starts at its folder without wildcards."""
    if pattern.startswith(("/", "~")):
        parts = absolute(pattern, cwd).split("/")
        plain = next((place for place, part in enumerate(parts) if set(part) & set("*?[{")), len(parts) - 1)
        path, pattern = "/".join(parts[:plain]) or "/", "/".join(parts[plain:])
    if ".." in pattern.split("/"):
        raise UnreadableCallError("the pattern of a search for names contains `..`")
    return tuple(GlobFiles(pattern, each) for each in _places(path, cwd))


def search_call(found: Callable[..., GuardedCall], pattern: str, path: str, cwd: str) -> GuardedCall:
    """Return the call of a search in contents: judged for one file, refused for a folder. `found` makes the call."""
    places = _places(path, cwd) if os.path.isfile(absolute(path, cwd)) else ()
    actions = tuple(GrepFiles(pattern, each) for each in places)
    return found(CallKind.ACTIONS, actions=actions) if actions else found(CallKind.REFUSED, note=_UNCONFINED_SEARCH)


def server_action(server: str, name: str, arguments: dict[str, object]) -> tuple[Action, ...]:
    """Return the action of a call of a tool of an MCP server."""
    try:
        return (CallServerTool(server, name, canonical(arguments)),)
    except (ValueError, RecursionError):
        raise UnreadableCallError("the arguments of the tool are not plain JSON") from None


def fetch_action(url: str) -> tuple[Action, ...]:
    """Return the action of reading a web page."""
    return (FetchAddress(url),)


def search_action(query: str, agent: str) -> tuple[Action, ...]:
    """Return the action of a web search by the service of the agent."""
    return (SearchWeb(query, agent),)


def patch_actions(patch: str, cwd: str) -> tuple[Action, ...]:
    """Return the actions of a patch in the form of Codex (`*** Begin Patch`).

    Raise UnreadableCallError for a text in another form: what cannot be read is not applied.
    """
    lines = patch.strip().split("\n")
    if lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        raise UnreadableCallError("the patch has not the form `*** Begin Patch` to `*** End Patch`")
    found: list[Action] = []
    path, added, kind = "", list[str](), ""

    def finish() -> None:
        content = "".join(f"{line}\n" for line in added)
        if kind == "Add":
            found.extend(write_actions(path, cwd, content))
        elif kind == "Update":
            found.extend(edit_actions(path, cwd, (("", content, False),)))
        elif kind == "Delete":
            found.extend(delete_actions(path, cwd))

    heads = ("*** Add File", "*** Update File", "*** Delete File")
    for line in lines[1:-1]:
        head, colon, value = line.strip().partition(": ")
        if line.lstrip().startswith("*** ") and colon and head in heads:
            finish()
            kind, path, added = head.split()[1], value.strip(), []
        elif line.lstrip().startswith("*** ") and colon and head == "*** Move to":
            if kind != "Update":
                raise UnreadableCallError("the patch moves a file that it does not update")
            found.extend(write_actions(value.strip(), cwd, ""))
            found.extend(delete_actions(path, cwd))
        elif line.startswith("***") and line.strip() != "*** End of File" and not line.startswith("*** Environment ID"):
            raise UnreadableCallError(f"the patch has an unknown line `{line.strip()[:80]}`")
        elif not kind:
            raise UnreadableCallError("the patch has lines before its first file")
        elif line.startswith("+"):
            added.append(line[1:])
    finish()
    if not found:
        raise UnreadableCallError("the patch names no file")
    return tuple(found)


def edits_of(items: object) -> tuple[tuple[str, str, bool], ...]:
    """Return the replacements in a list of objects with `old_string`, `new_string` and `replace_all`."""
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise UnreadableCallError("the list of edits is missing")
    return tuple(
        (text(item, "old_string", default=""), text(item, "new_string"), item.get("replace_all") is True)
        for item in items
    )


def _places(path: str, cwd: str) -> tuple[str, ...]:
    """Return the path, and its real path if links lead elsewhere: the agent follows them outside of any sandbox."""
    plain = absolute(path, cwd)
    return tuple(dict.fromkeys((plain, os.path.realpath(plain))))
