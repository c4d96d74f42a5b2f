"""The servers of one file of another client, and of the files of a repository."""

import os
from collections.abc import Mapping

from policy.model.frozen import dataclass
from runner.config.inventory import EntryKind, Inventory
from runner.config.read_layer import MOST_SERVERS
from runner.config.server_values import name_fault, texts_in
from runner.config.serverfiles.codex_servers import codex_content, codex_servers
from runner.config.serverfiles.foreign_server import ForeignServer, NoServersError
from runner.config.serverfiles.json_servers import ServerForm, json_content, json_servers

# The files of a repository, in the order of their precedence (`SERVER_FILES` of `trust/discover.py`).
REPOSITORY: Mapping[str, ServerForm] = {
    ".mcp.json": ServerForm.CLAUDE,
    ".cursor/mcp.json": ServerForm.CURSOR,
    ".vscode/mcp.json": ServerForm.VSCODE,
    ".gemini/settings.json": ServerForm.GEMINI,
    ".codex/config.toml": ServerForm.CODEX,
}


_LONGEST = 4096  # characters of all values of one server


@dataclass(frozen=True, slots=True)
class ServerFile:
    """The servers of one file of a repository.

    Attributes:
        path: The path of the file relative to the workspace.
        servers: The servers in the order of the file.
        fault: The reason why the file as a whole cannot be used, or empty.
    """

    path: str
    servers: tuple[ForeignServer, ...] = ()
    fault: str = ""


def read_servers(data: bytes, form: ServerForm) -> tuple[ForeignServer, ...]:
    """Return the servers of a file. Raise ValueError, with the reason as its text, if the file cannot be used."""
    if form is ServerForm.CODEX:
        found = tuple(codex_servers(codex_content(data)))
    else:
        found = tuple(json_servers(json_content(data, form), form))
    if len(found) > MOST_SERVERS:
        raise ValueError(f"it contains more than {MOST_SERVERS} servers")
    return found


def form_of(path: str, data: bytes) -> ServerForm:
    """Return the form of a file that the user names, by its name and its keys. Raise ValueError for another file."""
    if path.endswith(".toml"):
        return ServerForm.CODEX
    content = json_content(data, None)
    if isinstance(content.get("servers"), list):
        return ServerForm.LIST
    if isinstance(content.get("servers"), dict):
        return ServerForm.VSCODE
    if "mcpServers" not in content:
        raise NoServersError("it has no `mcpServers`, `servers` or `mcp_servers`")
    above = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return ServerForm.GEMINI if above == ".gemini" else ServerForm.CLAUDE


def contains_servers(path: str, data: bytes) -> bool:
    """Return False if the file of a repository certainly configures no server, such as settings of another kind."""
    try:
        return bool(read_servers(data, REPOSITORY[path]))
    except NoServersError:
        return False
    except ValueError:
        return True  # a user is told that it cannot be used


def server_files(inventory: Inventory) -> tuple[ServerFile, ...]:
    """Return the files of a repository that configure servers, in the order of their precedence."""
    kinds = {each.path for each in inventory.entries if each.kind is EntryKind.SERVERS and not each.refused}
    found = []
    for path, form in REPOSITORY.items():
        if path not in kinds:
            continue
        try:
            servers = read_servers(inventory.contents[path], form)
            found.append(ServerFile(path, tuple(map(_of_repository, servers))))
        except ValueError as error:
            found.append(ServerFile(path, fault=str(error)))
    return tuple(found)


def _of_repository(server: ForeignServer) -> ForeignServer:
    """Return the server, or a fault if its name is unfit or if its command line is longer than a user would read."""
    if wrong := name_fault(server.name):
        return ForeignServer(server.name, fault=f"{wrong[0]}; {wrong[1]}")
    texts = [text for value in server.values.values() for text in texts_in(value)]
    if sum(map(len, texts)) > _LONGEST:
        return ForeignServer(server.name, fault=f"its texts are longer than {_LONGEST:,} characters together")
    return server
