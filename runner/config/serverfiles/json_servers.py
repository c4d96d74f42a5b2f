"""Servers of the JSON files of Claude Code, Cursor, VS Code and Gemini CLI, and of lists of servers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from urllib.parse import urlsplit

from policy.toml.schema import Value
from runner.config.server_values import fitting_name
from runner.config.serverfiles.foreign_server import (
    EntryFault,
    ForeignServer,
    NoServersError,
    doubled,
    finished,
    inserted,
)
from runner.text.strict_json import json_object, json_text


class ServerForm(Enum):
    """The forms of files with servers. Each value is the key of the servers in the file."""

    CLAUDE = ("claude", "mcpServers")
    CURSOR = ("cursor", "mcpServers")
    GEMINI = ("gemini", "mcpServers")
    VSCODE = ("vscode", "servers")
    LIST = ("list", "servers")
    CODEX = ("codex", "mcp_servers")

    @property
    def client(self) -> str:
        """Return the name of the client."""
        return self.value[0]

    @property
    def key(self) -> str:
        """Return the key of the servers in the file."""
        return self.value[1]


# The alternatives that end at the end of the text keep an unfinished comment or string linear.
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*(?:"|\Z))|,(?=\s*[}\]])', re.DOTALL)
_COMMENTED = (ServerForm.VSCODE, ServerForm.GEMINI)

# Keys that would skip a question. They are never taken over.
_APPROVALS = ("trust", "autoApprove", "alwaysAllow", "autoApproved", "alwaysAllowTools", "default_tools_approval_mode")
_IDLE = ("description", "name", "type", "transport", "$schema", "gallery", "version", "timeout", "icon", "note")
_TRANSPORTS = {
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
    "stdio": "stdio",
    "local": "stdio",
    "remote": "http",
}


def json_content(data: bytes, form: ServerForm | None) -> Mapping[str, object]:
    """Return the object of a JSON file. Raise ValueError, with the reason as its text, if the file is none."""
    commented = form is None or form in _COMMENTED
    text = json_text(data, commented=commented)
    return json_object(_COMMA.sub(lambda found: found[1] or "", text) if commented else text)


def json_servers(content: Mapping[str, object], form: ServerForm) -> Iterator[ForeignServer]:
    """Yield the servers of the object of a file. Raise ValueError if there is no table of servers."""
    found = content.get(form.key)
    if form is ServerForm.LIST:
        if not isinstance(found, list):
            raise NoServersError("it has no list `servers`")
        yield from (_server(_name_in_list(each, number), each, form) for number, each in enumerate(found, 1))
        return
    if not isinstance(found, dict):
        raise NoServersError(f"it has no `{form.key}`")
    off = _switched_off(content, found) if form is ServerForm.GEMINI else frozenset()
    for name, entry in found.items():
        server = _server(name, entry, form)
        if name in off and not server.fault:
            server = ForeignServer(name, {**server.values, "enabled": False}, server.left)
        yield server


def _switched_off(content: Mapping[str, object], names: Iterable[str]) -> frozenset[str]:
    """Return the servers that the lists `mcp.allowed` and `mcp.excluded` of Gemini CLI switch off."""
    lists = content.get("mcp")
    lists = lists if isinstance(lists, dict) else {}
    allowed, excluded = lists.get("allowed"), lists.get("excluded")
    off = set(excluded) if isinstance(excluded, list) and all(isinstance(each, str) for each in excluded) else set()
    if isinstance(allowed, list):
        off |= {name for name in names if name not in allowed}
    return frozenset(off)


def _name_in_list(entry: object, number: int) -> str:
    """Return a name for an entry of a list without names: of its package, its program or its host."""
    if not isinstance(entry, dict):
        return f"server-{number}"
    if isinstance(name := entry.get("name"), str) and name:
        return name
    if isinstance(url := entry.get("url"), str):
        try:
            return fitting_name((urlsplit(url).hostname or f"server-{number}").removeprefix("mcp.").replace(".", "-"))
        except ValueError:
            return f"server-{number}"
    words = [entry.get("command"), *(args if isinstance(args := entry.get("args"), list) else [])]
    plain = [each for each in words if isinstance(each, str) and each and not each.startswith(("-", "/", "."))]
    package = plain[1] if len(plain) > 1 and plain[0] in ("npx", "uvx", "pipx", "bunx") else (plain or ["server"])[0]
    return fitting_name(package.rpartition("/")[2].partition("@")[0]) or f"server-{number}"


def _server(name: str, entry: object, form: ServerForm) -> ForeignServer:
    if not isinstance(entry, dict):
        return ForeignServer(name, fault="it is not a server")
    left: list[str] = []
    try:
        return finished(name, _values(entry, form, left), left)
    except EntryFault as fault:
        return ForeignServer(name, fault=str(fault))


def _values(entry: Mapping[str, object], form: ServerForm, left: list[str]) -> dict[str, Value]:
    bare = form is ServerForm.GEMINI
    values: dict[str, Value] = {}
    known = set(_IDLE)

    def take(key: str) -> object:
        known.add(key)
        return entry.get(key)

    command, url = take("command"), take("url")
    streamed = take("httpUrl") if form is ServerForm.GEMINI else None
    if command is not None:
        values["command"] = inserted(_text("command", command), left)
    if (args := take("args")) is not None:
        words = tuple(inserted(each, left) for each in _texts("args", args, numbers=True))
        if words:
            values["args"] = words
    address = streamed if streamed is not None else url
    if address is not None and address != "":
        values["url"] = inserted(_text("url", address), left)
    values |= _transport(entry, form, "url" in values, streamed is not None)
    for key in ("env", "headers"):
        if table := _table(key, take(key), left, bare=bare):
            values[key] = table
    if (cwd := take("cwd")) is not None and cwd != "":
        values["cwd"] = inserted(_text("cwd", cwd), left)
    for ours, theirs in (
        ("tools", ("includeTools", "enabledTools")),
        ("exclude_tools", ("excludeTools", "disabledTools")),
    ):
        names = [name for key in theirs for name in _texts(key, take(key) or [])]
        if names:
            values[ours] = tuple(names)
    if isinstance(timeout := entry.get("timeout"), int | float) and not isinstance(timeout, bool):
        if 0 < timeout <= 7 * 86_400_000:
            values["timeout"] = float(timeout if timeout < 1000 else timeout / 1000)  # most clients count milliseconds
        else:
            left.append("`timeout` is out of range")
    if take("disabled") is True or take("enabled") is False:
        values["enabled"] = False
    if take("envFile") is not None:
        left.append("the variables of `envFile` are not read: write them into `env`")
    left += _unused(entry, known)
    return values


def _unused(entry: Mapping[str, object], known: set[str]) -> Iterator[str]:
    for key in entry:
        if key in _APPROVALS:
            yield f"`{key}` never carries over: every call is judged by your own rules"
        elif key not in known:
            yield f"`{key}` has no counterpart"


def _transport(entry: Mapping[str, object], form: ServerForm, remote: bool, streamed: bool) -> dict[str, Value]:
    """Return the transport if it is not the usual one. Raise EntryFault for an unknown one."""
    said = entry.get("type", entry.get("transport"))
    if said is not None and (not isinstance(said, str) or said not in _TRANSPORTS):
        raise EntryFault(f"the transport `{said if isinstance(said, str) else '...'}` is not known")
    # Gemini CLI uses `url` for the older transport, and `httpUrl` for the newer one.
    old = form is ServerForm.GEMINI and remote and not streamed and said is None
    transport = "sse" if old else _TRANSPORTS.get(str(said), "http" if remote else "stdio")
    return {} if transport == ("http" if remote else "stdio") else {"transport": transport}


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise EntryFault(f"`{key}` is not a text")
    return value


def _texts(key: str, value: object, *, numbers: bool = False) -> list[str]:
    if not isinstance(value, list):
        raise EntryFault(f"`{key}` is not a list")
    texts = [json.dumps(each) if numbers and type(each) in (int, float) else each for each in value]
    if not all(isinstance(each, str) and each for each in texts):
        raise EntryFault(f"`{key}` contains something that is not a text")
    return [str(each) for each in texts]


def _table(key: str, value: object, left: list[str], *, bare: bool) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise EntryFault(f"`{key}` is not an object")
    pairs = []
    for name, text in value.items():
        if text is None or text == "":
            left.append(f"`{name}` of `{key}` is empty, and is left out")
            continue
        plain = json.dumps(text) if isinstance(text, bool | int | float) else text
        if not isinstance(plain, str):
            raise EntryFault(f"`{name}` of `{key}` is not a text")
        pairs.append((name, inserted(doubled(plain, bare=bare), left)))
    return tuple(pairs)
