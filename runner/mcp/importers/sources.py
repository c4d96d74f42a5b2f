"""The files in which other clients keep the tool servers of a user."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from runner.config.serverfiles.foreign_server import ForeignServer, NoServersError
from runner.config.serverfiles.json_servers import ServerForm, json_content, json_servers
from runner.config.serverfiles.read_servers import form_of, read_servers
from runner.problems import Stopped, usage
from runner.text.phrases import os_reason
from sandbox.inside.regular_file import NotRegularError, read_whole

CLIENTS = ("claude", "codex", "gemini", "cursor", "vscode")
_LARGEST = 64 << 20  # bytes: Claude Code keeps its history in the same file


@dataclass(frozen=True, slots=True)
class ServerSource:
    """The servers of one file, or of one part of a file.

    Attributes:
        label: The file, and the part of the file, for the user.
        servers: The servers in the order of the file.
    """

    label: str
    servers: tuple[ForeignServer, ...]


def client_sources(client: str, environ: Mapping[str, str], home: str, workspace: str) -> list[ServerSource]:
    """Return the sources of one of CLIENTS with at least one server. Raise a usage error for a file with a fault."""
    found: list[ServerSource] = []
    for path, form in _files(client, environ, home):
        data = _content(path)
        if data is None:
            continue
        try:
            if form is ServerForm.CLAUDE:
                found += _claude(path, data, workspace)
            else:
                found.append(ServerSource(path, read_servers(data, form)))
        except NoServersError:
            continue
        except ValueError as error:
            raise _unusable(path, str(error)) from None
    return [each for each in found if each.servers]


def file_source(path: str) -> ServerSource:
    """Return the servers of a file that the user names. Raise a usage error."""
    data = _content(path)
    if data is None:
        known = ", ".join(f"`{each}`" for each in CLIENTS)
        raise usage(f"`{path}` cannot be imported", "there is no such file or client", f"name a file or one of {known}")
    try:
        return ServerSource(path, read_servers(data, form_of(path, data)))
    except ValueError as error:
        raise _unusable(path, str(error)) from None


def _files(client: str, environ: Mapping[str, str], home: str) -> list[tuple[str, ServerForm]]:
    match client:
        case "claude":
            return [(os.path.join(environ.get("CLAUDE_CONFIG_DIR") or home, ".claude.json"), ServerForm.CLAUDE)]
        case "codex":
            folder = environ.get("CODEX_HOME") or os.path.join(home, ".codex")
            return [(os.path.join(folder, "config.toml"), ServerForm.CODEX)]
        case "gemini":
            return [(os.path.join(home, ".gemini/settings.json"), ServerForm.GEMINI)]
        case "cursor":
            return [(os.path.join(home, ".cursor/mcp.json"), ServerForm.CURSOR)]
        case _:
            folder = "Library/Application Support" if sys.platform == "darwin" else ".config"
            editors = ("Code", "Code - Insiders", "VSCodium")
            return [(os.path.join(home, folder, each, "User/mcp.json"), ServerForm.VSCODE) for each in editors]


def _claude(path: str, data: bytes, workspace: str) -> list[ServerSource]:
    """Return the servers of all projects, and those of the project in `workspace`."""
    content = json_content(data, ServerForm.CLAUDE)
    projects = content.get("projects")
    project = projects.get(workspace) if isinstance(projects, dict) else None
    parts = [(path, content), (f"{path}, project {workspace}", project)]
    return [
        ServerSource(label, tuple(json_servers(part, ServerForm.CLAUDE)))
        for label, part in parts
        if isinstance(part, dict) and "mcpServers" in part
    ]


def _content(path: str) -> bytes | None:
    try:
        return read_whole(Path(path), _LARGEST, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularError:
        raise _unusable(path, "it is not a plain file") from None
    except OSError as error:
        raise _unusable(path, os_reason(error)) from None
    except ValueError as error:
        raise _unusable(path, str(error)) from None


def _unusable(path: str, why: str) -> Stopped:
    return usage(f"`{path}` cannot be imported", why, "correct the file, or name another one")
