"""The shell of this program in place of an agent's own shell tool, which is switched off in the agent's settings.

The agent runs `agent mcp serve` as a tool server, whose tool `bash` judges each command and runs it in the sandbox.
THREAT T200: the agent offers no other shell tool, so no hook can replace a command after its verdict.
"""

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from policy.model.action import CallServerTool
from policy.model.verdict import Problem
from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer
from runner.frontends.guard.tokens import SERVER_TOOL, GuardToken, issue
from runner.problems import Exit, Stopped

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

SERVER = "ringfence"
TOOLS = ("bash", "bash_input", "bash_kill", "bash_output")
SHELL_KEY, SERVER_KEY = "=features.shell_tool", "=mcp_servers.ringfence"  # in the list of what was written
_VARIABLES = ("RINGFENCE_STATE_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
_SECONDS = 3600  # of one call; the limits of this program end a command earlier
_START_SECONDS = 60
_HEAD = "# Written by `agent guard gemini --install`. `agent guard gemini --remove` deletes this file.\n"
POLICY = f'{_HEAD}[[rule]]\ntoolName = "run_shell_command"\ndecision = "deny"\npriority = 999\n'


def answered(call: GuardedCall, environ: Mapping[str, str]) -> GuardAnswer | None:
    """Return the answer of the hook to a call of a shell tool, or None for any other call.

    The agent's own shell tool is denied. A call of the shell of this program passes, because its server judges it; a
    record of the call shows the canary that the hook was asked.
    """
    if call.kind is CallKind.SHELL:
        how = f"call the tool `bash` of the server `{SERVER}` with this command"
        return GuardAnswer(HookAnswer.DENY, f"ringfence: the shell tool of this agent is switched off; {how}")
    own = [each for each in call.actions if isinstance(each, CallServerTool) and each.server == SERVER]
    if call.kind is not CallKind.ACTIONS or len(own) != 1 or len(call.actions) != 1 or own[0].name not in TOOLS:
        return None
    script = json.loads(own[0].arguments).get("command")
    if own[0].name == "bash" and isinstance(script, str):
        issue(GuardToken(script, call.cwd, "", call.agent, call.session, call.call, SERVER_TOOL), environ, "used")
    return GuardAnswer(HookAnswer.ALLOW, "ringfence: its server judges the command")


def require_library() -> None:
    """Raise Stopped if `agent mcp serve` could not start."""
    if find_spec("mcp") is None:
        what, why = "the shell cannot be replaced", "the library of the protocol is not installed"
        raise Stopped(Problem(what, why, "install `ringfence[mcp]`"), Exit.FAILED)


def _server(mode: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the entry of the server that Codex and Gemini CLI have in common.

    The agents pass few variables to a server, so those that name the folders of this program are written down.
    """
    words = ["mcp", "serve", *(["--mode", mode] if mode else [])]
    variables = {name: environ[name] for name in _VARIABLES if environ.get(name)}
    found: dict[str, object] = {"command": os.path.abspath(sys.argv[0]), "args": words}
    return {**found, "env": variables} if variables else found


def with_codex_shell(path: str, text: str | None, mode: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the configuration of Codex with this shell, and the keys of what was added. Comments and order stay."""
    import tomlkit

    document = _document(path, text or "")
    features = document.setdefault("features", tomlkit.table())
    servers = document.setdefault("mcp_servers", tomlkit.table(is_super_table=True))
    added = [SERVER_KEY]
    if SERVER in servers:
        raise _taken(path, f"mcp_servers.{SERVER}")
    if features.get("shell_tool") is not False:
        if "shell_tool" in features:
            raise _taken(path, "features.shell_tool")
        features["shell_tool"] = False
        added.append(SHELL_KEY)
    row = tomlkit.table()
    for name, value in _server(mode, environ).items():
        row[name] = value
    row["enabled_tools"] = list(TOOLS)
    row["required"] = True  # without its shell, Codex does not start
    row["default_tools_approval_mode"] = "approve"  # this program asks
    row["startup_timeout_sec"] = _START_SECONDS
    row["tool_timeout_sec"] = _SECONDS
    servers[SERVER] = row
    return str(tomlkit.dumps(document)), tuple(added)


def without_codex_shell(path: str, text: str, keys: tuple[str, ...]) -> str:
    """Return the configuration of Codex without what `with_codex_shell` added under these keys."""
    import tomlkit

    document = _document(path, text)
    for key in (SHELL_KEY, SERVER_KEY):
        table, name = key[1:].split(".")
        if key in keys and name in (found := document.get(table, {})):
            del found[name]
            if not found:
                del document[table]
    return str(tomlkit.dumps(document))


def codex_obstacles(path: str, text: str | None, *, own: bool = True) -> tuple[str, ...]:
    """Return what keeps the replaced shell of Codex from being in force, in the user's configuration or, without
    `own`, in that of a project, which counts more.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        settings = tomlkit.parse(text or "").unwrap()
    except TOMLKitError:
        return (f"`{path}` is not valid TOML",)
    found = []
    features, servers = settings.get("features"), settings.get("mcp_servers")
    shell = features.get("shell_tool") if isinstance(features, dict) else None
    server = servers.get(SERVER) if isinstance(servers, dict) else None
    if shell is not False and (own or shell is not None):
        found.append(f"`features.shell_tool` is not false in `{path}`")
    if _is_other(server, own) or (own and isinstance(server, dict) and server.get("enabled") is False):
        found.append(f"`mcp_servers.{SERVER}` in `{path}` is not the server that ringfence installed")
    return tuple(found)


def with_gemini_shell(path: str, settings: dict[str, object], mode: str, environ: Mapping[str, str]) -> None:
    """Add this shell to the settings of Gemini CLI. Raise Stopped if there is another server of its name."""
    servers = settings.setdefault("mcpServers", {})
    if not isinstance(servers, dict) or SERVER in servers:
        raise _taken(path, f"mcpServers.{SERVER}")
    more = {"includeTools": list(TOOLS), "trust": True, "timeout": _SECONDS * 1000}  # this program asks
    servers[SERVER] = {**_server(mode, environ), **more}


def without_gemini_shell(settings: dict[str, object]) -> bool:
    """Remove this shell from the settings of Gemini CLI. Return True if it was there."""
    servers = settings.get("mcpServers")
    server = servers.get(SERVER) if isinstance(servers, dict) else None
    if not isinstance(servers, dict) or not isinstance(server, dict) or server.get("includeTools") != list(TOOLS):
        return False
    del servers[SERVER]
    if not servers:
        del settings["mcpServers"]
    return True


def gemini_obstacles(path: str, text: str | None, *, own: bool = True) -> tuple[str, ...]:
    """Return what keeps the replaced shell of Gemini CLI from being in force, in the user's settings or, without
    `own`, in those of a project, which count more.
    """
    try:
        settings = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return (f"`{path}` is not valid JSON",)
    servers = settings.get("mcpServers") if isinstance(settings, dict) else None
    server = servers.get(SERVER) if isinstance(servers, dict) else None
    if _is_other(server, own):
        return (f"`mcpServers.{SERVER}` in `{path}` is not the server that ringfence installed",)
    return ()


def policy_file(environ: Mapping[str, str]) -> str:
    """Return the path of the file with the rule of Gemini CLI that denies its own shell tool."""
    from runner.state.paths import home

    return f"{home(environ)}/.gemini/policies/ringfence-guard.toml"


def _is_other(server: object, own: bool) -> bool:
    """Return True if the entry of a server is not the one that this program writes. In a project there must be none."""
    if not own:
        return server is not None
    args = server.get("args") if isinstance(server, dict) else None
    command = server.get("command") if isinstance(server, dict) else None
    return not isinstance(args, list) or args[:2] != ["mcp", "serve"] or command != os.path.abspath(sys.argv[0])


def _taken(path: str, name: str) -> Stopped:
    fix = "remove that entry, then try again"
    return Stopped(Problem(f"`{path}` cannot be changed", f"it has its own `{name}` already", fix), Exit.FAILED)


def _document(path: str, text: str) -> "TOMLDocument":
    from runner.frontends.guard.codex_trust import toml_document

    return toml_document(path, text)
