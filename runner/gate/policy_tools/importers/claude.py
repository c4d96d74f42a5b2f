"""Importer for Claude Code: `settings.json` with `Tool(pattern)` rules."""

import json
import re

from policy.model.tier import Ruling
from policy.model.tool_names import SERVER, names_tool
from runner.gate.policy_tools.importers.result import REST, Carried, Import, Origin
from runner.gate.policy_tools.importers.wildcards import NotWords, plain, starred
from runner.problems import usage

_RULE = re.compile(r"([A-Za-z_][A-Za-z0-9_.*-]*)(?:\((.*)\))?\Z", re.DOTALL)
_READS = {"Read": ("read", "grep", "glob", "ls"), "Grep": ("grep",), "Glob": ("glob",), "LS": ("ls",)}
_WRITES = {"Edit": ("edit", "write"), "MultiEdit": ("edit",), "Write": ("write",)}
_LISTS = {"deny": Ruling.DENY, "ask": Ruling.ASK, "allow": Ruling.ALLOW}
_MODES = {"default": "default", "manual": "default", "plan": "plan", "acceptEdits": "accept-edits"}


def read_claude(text: str, source: str) -> Import:
    """Read the file. Raises a usage error when it is not of this kind."""
    found = Import(source)
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise usage(f"{source}:{line} cannot be read", "it is not valid JSON", "correct that line") from None
    permissions = settings.get("permissions") if isinstance(settings, dict) else None
    if not isinstance(permissions, dict):
        why = "it has no `permissions`"
        raise usage(f"{source} cannot be imported", why, "give a settings.json of Claude Code, or another --from")
    lines = _JsonLines(text)
    for key, verdict in _LISTS.items():
        rules = permissions.get(key, [])
        for rule in rules if isinstance(rules, list) else [rules]:
            origin = Origin(lines.of(rule), rule if isinstance(rule, str) else json.dumps(rule))
            if isinstance(rule, str):
                _rule(found, origin, rule.strip(), verdict)
            else:
                found.leave(origin, "it is not a text in quotes")
    for key, value in permissions.items():
        origin = Origin(lines.of(key), f"{key}: {json.dumps(value)}")
        if key in _LISTS:
            continue
        if key == "defaultMode":
            if isinstance(value, str) and value in _MODES:
                found.mode = _MODES[value]
            elif value == "bypassPermissions":
                found.leave(origin, "it switches protection off, which no configuration file can do here")
            else:
                found.leave(origin, "there is no such mode here; `agent policy matrix` shows the modes")
        elif key == "additionalDirectories" and isinstance(value, list):
            for folder in value:
                _folder(found, Origin(lines.of(folder), f"{key}: {folder}"), folder)
        else:
            found.leave(origin, "there is no such setting here")
    for key in ("hooks", "sandbox", "enableAllProjectMcpServers", "enabledMcpjsonServers"):
        if key in settings:
            why = "hooks, servers and sandbox settings cannot be converted to rules"
            found.leave(Origin(lines.of(key), key), why)
    return found


def _folder(found: Import, origin: Origin, folder: object) -> None:
    if not isinstance(folder, str) or not folder.startswith(("/", "~/")) or ".." in folder.split("/"):
        found.leave(origin, "only a folder that starts with `/` or `~/` can be named")
        return
    note = "for reading only; changes need an approval"
    found.carry(Carried(origin, Ruling.ALLOW, tool=_READS["Read"], read=(folder.rstrip("/") + "/**",), note=note))


def _rule(found: Import, origin: Origin, rule: str, verdict: Ruling) -> None:
    shape = _RULE.match(rule)
    name, inner = (shape[1], shape[2]) if shape else ("", None)
    inner = None if inner is not None and inner.strip() in ("", "*") else inner
    if name.startswith("mcp__"):
        _server_tool(found, origin, name, inner, verdict)
    elif name in ("Task", "Agent"):
        named = (("agent", inner.strip()),) if inner is not None else ()
        found.carry(Carried(origin, verdict, tool=("agent",), arguments=named))
    elif name == "WebSearch" and inner is None and verdict is not Ruling.ALLOW:
        found.carry(Carried(origin, verdict, tool=("web_search",)))
    elif name == "Bash":
        _bash(found, origin, inner, verdict)
    elif name in _READS or name in _WRITES:
        _path(found, origin, name, inner, verdict)
    elif name == "WebFetch":
        _fetch(found, origin, inner, verdict)
    else:
        found.leave(origin, f"there is no tool `{name}` here" if name else "it does not have the form of a rule")


def _server_tool(found: Import, origin: Origin, name: str, inner: str | None, verdict: Ruling) -> None:
    """Import `mcp__server__tool`; `mcp__server` and `mcp__server__*` name every tool of the server."""
    tool = name if "__" in name.removeprefix(SERVER) or name.endswith("*") else f"{name}__*"
    if inner is not None:
        found.leave(origin, "a rule about a server's tool cannot have a pattern in parentheses")
    elif not names_tool(tool):
        found.leave(origin, "no tool of a server can have this name")
    else:
        found.carry(Carried(origin, verdict, tool=(tool,)))


def _bash(found: Import, origin: Origin, inner: str | None, verdict: Ruling) -> None:
    if inner is None:
        found.carry_tools(origin, verdict, ("bash",))
        return
    prefix = inner.endswith(":*")
    body = inner.removesuffix(":*")
    try:
        patterns, note = starred(body, verdict, goes_on=prefix) if "*" in body else ([plain(body, verdict)], "")
    except NotWords as error:
        found.leave(origin, str(error))
        return
    if prefix and verdict is not Ruling.ALLOW:
        found.remarks["`:*` matches further words here; older versions of Claude Code also matched longer words"] = None
    for run in patterns:
        ended = not prefix or run[-1] == REST
        found.carry(Carried(origin, verdict, run=run if ended else (*run, REST), note=note))


def _path(found: Import, origin: Origin, name: str, inner: str | None, verdict: Ruling) -> None:
    """Import a path rule. An `allow` rule applies to the file tools only, as in Claude Code; a `deny` or `ask` rule
    applies to every access.
    """
    tools = _READS.get(name) or _WRITES[name]
    if inner is None:
        found.carry_tools(origin, verdict, tools)
        return
    paths = gitignored(inner.strip(), allow=verdict is Ruling.ALLOW)
    if not paths:
        found.leave(origin, "no rule can express its path pattern")
        return
    tool = tools if verdict is Ruling.ALLOW else ()
    read, write = (paths, ()) if name in _READS else ((), paths)
    found.carry(Carried(origin, verdict, tool=tool, read=read, write=write))


def gitignored(pattern: str, *, allow: bool) -> tuple[str, ...]:
    """Return the paths of a pattern as in .gitignore: `//` is the root, `/` the project, a bare name matches at any
    depth.

    The result is empty if no paths correspond to the pattern.
    """
    inside, body = pattern.endswith("/"), pattern.rstrip("/")
    unsaid = "[]!\\\0\n?" if allow else "[]!\\\0\n"
    if not body or set(unsaid) & set(pattern) or ".." in pattern.split("/"):
        return ()
    if body.startswith("~") and not body.startswith("~/"):
        return ()  # the home of another user
    if body.startswith("//"):
        base = "/" + body.lstrip("/")
    elif body.startswith(("/", "./")):
        base = body.partition("/")[2]  # the project, and the folder that the agent works in: the workspace here
    else:
        base = body if "/" in body or body == "**" else f"**/{body}"
    if not base or any("**" in part and part != "**" for part in base.split("/")):
        return ()
    if base.endswith("/**") or base == "**":
        return (base,)
    return (f"{base}/**",) if inside else (base, f"{base}/**")


def _fetch(found: Import, origin: Origin, inner: str | None, verdict: Ruling) -> None:
    mark, _, host = (inner or "").partition(":")
    if inner is None and verdict is not Ruling.ALLOW:
        found.carry(Carried(origin, verdict, tool=("web_fetch",)))
    elif mark != "domain" or not re.fullmatch(r"(\*\.)?[A-Za-z0-9.-]+", host.strip()):
        found.leave(origin, "no rule can express it without the host: write `WebFetch(domain:example.org)`")
    elif verdict is Ruling.ALLOW:
        found.carry(Carried(origin, verdict, tool=("web_fetch",), host=(host.strip().lower(),)))
    else:
        note = "it applies to every command that connects to the host"
        found.carry(Carried(origin, verdict, host=(host.strip().lower(),), note=note))


_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')


class _JsonLines:
    """Line numbers, from 1, of the first occurrence of each string, number and constant of a JSON text."""

    def __init__(self, text: str) -> None:
        self._first: dict[str, int] = {}
        number, at = 1, 0
        for found in _SCALAR.finditer(text):
            number += text.count("\n", at, found.start())
            at = found.start()
            self._first.setdefault(found[0], number)

    def of(self, value: object) -> int:
        """Return the line of a value; 0 for a list or an object, and where it is written in another way."""
        if isinstance(value, list | dict):
            return 0
        written = (json.dumps(value), json.dumps(value, ensure_ascii=False))
        return next((self._first[each] for each in written if each in self._first), 0)
