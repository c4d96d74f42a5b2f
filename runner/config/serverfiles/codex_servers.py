"""Servers of `config.toml` of Codex CLI, in its table `mcp_servers`."""

from collections.abc import Iterator, Mapping

from policy.toml.schema import TomlError, Value, parse
from runner.config.serverfiles.foreign_server import EntryFault, ForeignServer, NoServersError, finished

_TAKEN = (
    "command", "args", "env", "env_vars", "cwd", "url", "bearer_token_env_var", "http_headers", "env_http_headers",
    "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "enabled", "enabled_tools", "disabled_tools",
)  # fmt: skip
_APPROVALS = ("default_tools_approval_mode", "tools")  # the approval of each tool


def codex_content(data: bytes) -> Mapping[str, object]:
    """Return the content of the file. Raise ValueError, with the reason as its text, if it is not TOML."""
    try:
        return parse(data.decode("utf-8-sig"), "config.toml")
    except (TomlError, UnicodeDecodeError):
        raise ValueError("it is not valid TOML") from None


def codex_servers(content: Mapping[str, object]) -> Iterator[ForeignServer]:
    """Yield the servers of the file. Raise ValueError if there is no table of servers."""
    found = content.get("mcp_servers")
    if not isinstance(found, dict):
        raise NoServersError("it has no `mcp_servers`")
    for name, entry in found.items():
        left: list[str] = []
        try:
            if not isinstance(entry, dict):
                raise EntryFault("it is not a server")
            yield finished(name, _values(entry, left), left)
        except EntryFault as fault:
            yield ForeignServer(name, fault=str(fault))


def _values(entry: Mapping[str, object], left: list[str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for key in ("command", "url", "cwd"):
        if key in entry:
            values[key] = _literal_word(_text(key, entry[key]))
    if args := _texts("args", entry.get("args", [])):
        values["args"] = tuple(map(_literal_word, args))
    env = dict(_table("env", entry.get("env", {}), left))
    for each in _names("env_vars", entry.get("env_vars", []), left):
        env.setdefault(each, f"${{{each}}}")
    headers = dict(_table("http_headers", entry.get("http_headers", {}), left))
    for name, variable in _pairs("env_http_headers", entry.get("env_http_headers", {})):
        headers[name] = f"${{{variable}}}"
    if "bearer_token_env_var" in entry:
        headers["Authorization"] = f"Bearer ${{{_text('bearer_token_env_var', entry['bearer_token_env_var'])}}}"
    for key, table in (("env", env), ("headers", headers)):
        if table:
            values[key] = tuple(table.items())
    for ours, theirs in (("tools", "enabled_tools"), ("exclude_tools", "disabled_tools")):
        if names := _texts(theirs, entry.get(theirs, [])):
            values[ours] = tuple(names)
    timeout = entry.get("tool_timeout_sec")
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout <= 7 * 86_400:
        values["timeout"] = float(timeout)
    if entry.get("enabled") is False:
        values["enabled"] = False
    for key in entry:
        if key.startswith("startup_timeout"):
            left.append(f"`{key}` is not needed: a start has a limit of its own")
        elif key in _APPROVALS:
            left.append(f"`{key}` never carries over: every call is judged by your own rules")
        elif key not in _TAKEN:
            left.append(f"`{key}` has no counterpart")
    return values


def _literal_word(text: str) -> str:
    """Return a word in which no form in braces inserts a variable, because Codex inserts none."""
    return text.replace("${", "$${")


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise EntryFault(f"`{key}` is not a text")
    return value


def _texts(key: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise EntryFault(f"`{key}` is not a list of texts")
    return value


def _names(key: str, value: object, left: list[str]) -> Iterator[str]:
    """Yield the names of variables. An entry can be a table with the place of the variable."""
    if not isinstance(value, list):
        raise EntryFault(f"`{key}` is not a list")
    for each in value:
        name = each.get("name") if isinstance(each, dict) else each
        if not isinstance(name, str) or not name:
            raise EntryFault(f"`{key}` contains something that is not a name")
        if isinstance(each, dict) and each.get("source", "local") != "local":
            left.append(f"`{name}` of `{key}` is a variable of another machine, and is left out")
            continue
        yield name


def _pairs(key: str, value: object) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        raise EntryFault(f"`{key}` is not a table")
    for name, text in value.items():
        if not isinstance(text, str):
            raise EntryFault(f"`{name}` of `{key}` is not a text")
        yield name, text


def _table(key: str, value: object, left: list[str]) -> Iterator[tuple[str, str]]:
    for name, text in _pairs(key, value):
        if text:
            yield name, text.replace("$", "$$")
        else:
            left.append(f"`{name}` of `{key}` is empty, and is left out")
