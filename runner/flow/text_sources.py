"""The sources of text from outside that the result of an action contains.

Text from outside is what neither the user nor the workspace wrote: results of tool servers and of web tools, the output
of commands that could reach a host, and files of dependencies.
"""

import re
from collections.abc import Sequence

from policy.model.action import (
    Action,
    CallServerTool,
    EditFile,
    FetchAddress,
    GlobFiles,
    GrepFiles,
    ListFolder,
    QueryCode,
    ReadFile,
    ReadServerResource,
    RunArgv,
    RunScript,
    SearchWeb,
    WriteFile,
)

# Folders with code of other authors, in a path or in the words of a command.
_DEPENDENCIES = re.compile(
    r"(?:^|[\s/'\"=:])(node_modules|site-packages|dist-packages|bower_components|vendor|third_party|\.?venv|\.tox|\.cargo"
    r"|\.m2|\.gradle|\.yarn|\.pnpm-store)(?:[/\s'\"]|$)"
)


_LONGEST = 100  # characters of an address


def _short(url: str) -> str:
    """Return an address without its query, which may be long."""
    text = url.partition("?")[0]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def outside_sources(action: Action, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the sources of outside text that the result of `action` may contain, in words for the user; empty if there
    are none. `hosts` are the hosts that it could reach, or did reach.
    """
    match action:
        case CallServerTool() | ReadServerResource():
            return (f"the server {action.server}",)
        case FetchAddress():
            return (f"the page {_short(action.url)}",)
        case SearchWeb():
            return ("a web search",)
        case RunScript():
            words = action.script
        case RunArgv():
            words = " ".join(action.argv)
        case ReadFile() | ListFolder() | WriteFile() | EditFile() | QueryCode():
            words = action.path
        case GrepFiles() | GlobFiles():
            words = f"{action.root} {action.pattern}"
        case _:
            words = ""
    found = _DEPENDENCIES.search(words)
    reached = (f"the host {host}" for host in hosts[:3])
    return (*reached, *((f"the folder {found[1]}",) if found else ()))
