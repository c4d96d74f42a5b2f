"""The actions of `agent mcp list`, `show`, `add`, `remove` and `import` after their arguments were parsed."""

import os
import shlex
from pathlib import Path

from policy.model.verdict import ProblemError
from runner.gate.gate import folder
from runner.mcp.configured import ConfiguredServers, names_of, servers_here
from runner.mcp.server_config import ServerConfig
from runner.problems import Exit, Stopped
from runner.secrets.redactor import masked
from runner.stderr import say_notice
from runner.text.json_line import json_line
from runner.text.sanitize import visible


def known_names() -> tuple[str, ...]:
    """Return the names of the configured servers, for completion; nothing if the configuration cannot be read."""
    try:
        return tuple(names_of(servers_here(folder(None), os.environ)))
    except (ProblemError, Stopped, OSError):
        return ()


def run_list(*, as_json: bool, config: str | None, cwd: str | None) -> int:
    """Print the servers and return the exit code."""
    found = _servers(config, cwd)
    wide = max((len(name) for name in names_of(found)), default=0)
    for each in found.servers:
        state = "on" if each.enabled else "off"
        if as_json:
            print(json_line(_as_json(each, state)))
        else:
            print(masked(_line(f"{each.name:<{wide}}  {state:<5}  {each.layer:<10}  {address_of(each)}")))
    for fault in found.faults:
        if as_json:
            print(json_line(_fault_json(fault.name, fault.place, str(fault))))
        else:
            print(masked(_line(f"{fault.name:<{wide}}  fault  {fault}")))
    if not as_json and not found.servers and not found.faults:
        print("there are no tool servers; `agent mcp add` configures one")
    return Exit.DONE


def address_of(server: ServerConfig) -> str:
    """Return the complete command line of a server on this machine, or the address of a remote server."""
    return shlex.join(server.argv) if server.command else server.url


def _servers(config: str | None, cwd: str | None) -> ConfiguredServers:
    found = servers_here(folder(cwd), os.environ, config=Path(config) if config else None)
    for notice in found.notices:
        say_notice(notice)
    return found


def _as_json(server: ServerConfig, state: str) -> dict[str, object]:
    return {
        "name": server.name,
        "state": state,
        "layer": str(server.layer),
        "place": server.place,
        "transport": server.transport,
        "command": list(map(masked, server.argv)),
        "url": masked(server.url) or None,
        "fault": None,
    }


def _fault_json(name: str, place: str, why: str) -> dict[str, object]:
    blank: dict[str, object] = dict.fromkeys(("layer", "transport", "url"))
    return {"name": name, "state": "fault", **blank, "place": place, "command": [], "fault": masked(why)}


def _line(text: str) -> str:
    return visible(text, lines=False)
