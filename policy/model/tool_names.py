"""Names of tools as rules write them, and patterns of such names."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from policy.model.profile import Tool

SERVER = "mcp__"  # start of the names of all tools of tool servers
_SERVER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]|_(?!_))*(?<!_)", re.ASCII)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
_LITERAL = re.compile(r"mcp__[A-Za-z0-9][A-Za-z0-9_.-]*?__(?:[A-Za-z0-9_.-]+|@resource)", re.ASCII)
_LANGUAGE_SERVER = re.compile(r"lsp@(?:\*|[A-Za-z0-9][A-Za-z0-9_.-]*)", re.ASCII)  # the start of one, or of each
_WILD = re.compile(r"[*?[]")


def certain_server(server: str) -> bool:
    """Return True if `server` can be the name of a tool server: only then is `mcp__SERVER__TOOL` the name of one tool.

    THREAT T145: `a__b` with the tool `c` and `a` with the tool `b__c` would both be `mcp__a__b__c`.
    """
    return _SERVER_NAME.fullmatch(server) is not None and len(server) <= 64


def certain_tool(name: str) -> bool:
    """Return True if `name` can be the name of a server's tool: it contains no character that patterns or texts for
    the user could mistake for another.
    """
    return _TOOL_NAME.fullmatch(name) is not None


def is_pattern(text: str) -> bool:
    """Return True if `text` contains a wildcard: `*`, `?` or `[`."""
    return _WILD.search(text) is not None


def meets_name(patterns: Iterable[str], name: str, *, allows: bool) -> bool:
    """Return True if one of the patterns matches all of `name`: `*` is any text, `?` one character, `[ab]` and `[a-z]`
    one of these characters, `[!ab]` any other one.

    Case counts only for a rule that `allows`.
    """
    if allows:
        return any(fnmatchcase(name, each) for each in patterns)
    return any(fnmatchcase(name.casefold(), each.casefold()) for each in patterns)


def names_tool(pattern: str) -> bool:
    """Return True if a tool with a name that `pattern` matches can exist: a tool of the program, or of a server, or the
    start of a language server.
    """
    if names_language_server(pattern):
        return True
    if not is_pattern(pattern):
        return pattern in list(Tool) or _LITERAL.fullmatch(pattern) is not None
    return names_server_tools(pattern) or any(fnmatchcase(tool.value, pattern) for tool in Tool)


def names_language_server(pattern: str) -> bool:
    """Return True if `pattern` names the start of one language server, or of each (`lsp@*`)."""
    return _LANGUAGE_SERVER.fullmatch(pattern) is not None


def names_server_tools(pattern: str) -> bool:
    """Return True if `pattern` matches a tool of a server, or may match one."""
    start = _WILD.split(pattern, maxsplit=1)[0]
    if start == pattern:
        return _LITERAL.fullmatch(pattern) is not None
    if not start.startswith(SERVER):
        return SERVER.startswith(start)
    server, found, _ = start.removeprefix(SERVER).partition("__")
    return certain_server(server) if found else not server or certain_server(server.rstrip("_"))


def covers_names(wide: Iterable[str], narrow: str) -> bool:
    """Return True if the patterns `wide` certainly match every name that the pattern `narrow` matches."""
    if not is_pattern(narrow):
        return meets_name(wide, narrow, allows=True)
    start = _WILD.split(narrow, maxsplit=1)[0]
    return any(
        each == narrow or (each.endswith("*") and not is_pattern(each[:-1]) and start.startswith(each[:-1]))
        for each in wide
    )
