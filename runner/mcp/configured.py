"""The tool servers that the configuration names, with absolute paths and the user's variables inserted.

A server of a file of the repository is among them only if the user trusts exactly the content of that file.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from policy.model.frozen import dataclass
from policy.model.profile import Layer
from policy.model.verdict import Problem
from policy.toml.schema import Value
from runner.config.inventory import Inventory
from runner.config.server_values import pairs_in, server_fault, texts_in, url_fault
from runner.config.settings import ConfigLayer, LayerValues, Settings
from runner.config.validators import Fault
from runner.mcp.server_config import ServerConfig
from runner.mcp.variables import UserVariables, VariableError


@dataclass(frozen=True, slots=True)
class ServerFault:
    """A server that cannot be started because of its settings.

    Attributes:
        name: The name of the server.
        place: The file and the line.
        problem: The reason for the user.
    """

    name: str
    place: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.problem.what}: {self.problem.why} ({self.problem.fix})"


@dataclass(frozen=True, slots=True)
class ConfiguredServers:
    """The tool servers of a session.

    Attributes:
        servers: The servers that may be started, and those with `enabled = false`, in the order of the files.
        faults: The servers that cannot be started.
        notices: Notices for the user, such as about two servers with one name.
    """

    servers: tuple[ServerConfig, ...] = ()
    faults: tuple[ServerFault, ...] = ()
    notices: tuple[str, ...] = ()


def configured_servers(
    settings: Settings, workspace: str, environ: Mapping[str, str], home: str, trusted: Inventory | None = None
) -> tuple[ServerConfig, ...]:
    """Return the servers that may be started. The parameters are those of `find_servers`."""
    return tuple(each for each in find_servers(settings, workspace, environ, home, trusted).servers if each.enabled)


def find_servers(
    settings: Settings, workspace: str, environ: Mapping[str, str], home: str, trusted: Inventory | None = None
) -> ConfiguredServers:
    """Return the servers of all configuration files and of the trusted files of other clients in the repository.

    `workspace` and `home` are absolute paths. `trusted` is the inventory that the user trusts, or None. Its bytes are
    those that were trusted; no file is read again.
    """
    del trusted  # the files of other clients follow
    servers: list[ServerConfig] = []
    faults: list[ServerFault] = []
    for name, values in settings.named("mcp").items():
        given = _defining(settings.layers, name)
        if given is None and not _of_user(settings.layers, name):
            continue  # a repository switches a server off that this user does not have
        found = _server(name, values, given, settings, workspace, environ, home)
        if isinstance(found, ServerConfig):
            servers.append(found)
        elif found is not None:
            faults.append(found)
    return ConfiguredServers(*_distinct(servers, faults))


def servers_here(
    where: Path, environ: Mapping[str, str], *, config: Path | None = None, unattended: bool = False
) -> ConfiguredServers:
    """Return the servers of a session in the folder `where`, a real path, for commands that ask no question.

    Files of the repository count if the user has trusted them; not at all if `unattended`. Raise what `load` raises,
    StateError or PlaceError.
    """
    from runner.config.load import load
    from runner.config.trust.cached import remembered
    from runner.state.paths import home
    from runner.state.workspace import workspace_at

    trusted = {} if unattended else remembered(str(where), environ)
    settings = load(where, environ, config=config, unattended=unattended, trusted=trusted)
    return find_servers(settings, workspace_at(str(where), environ), environ, os.path.realpath(home(environ)))


def _defining(layers: Iterable[LayerValues], name: str) -> LayerValues | None:
    """Return the highest layer that contains the command or the address of the server in force."""
    keys = (("mcp", name, "command"), ("mcp", name, "url"))
    return next((given for given in reversed(tuple(layers)) if any(_sets(given, key) for key in keys)), None)


def _sets(given: LayerValues, key: tuple[str, ...]) -> bool:
    return key in given.document.values and key not in given.left_out


def _of_user(layers: Iterable[LayerValues], name: str) -> bool:
    paths = (path for given in layers if not given.layer.came_along for path in given.document.values)
    return any(path[:2] == ("mcp", name) for path in paths)


def _server(
    name: str,
    values: Mapping[str, Value],
    given: LayerValues | None,
    settings: Settings,
    workspace: str,
    environ: Mapping[str, str],
    home: str,
) -> ServerConfig | ServerFault | None:
    """Return the server, or why it cannot be started. None for a table that only says `enabled = false`."""
    enabled = values.get("enabled", True) is not False
    place = _place(given or _any(settings.layers, name), name, home)
    if wrong := server_fault(values):
        key, fault = wrong
        return ServerFault(name, place, _problem(name, place, key, fault)) if enabled else None
    assert given is not None, "a server without a command and an address has a fault"
    layer = _layer(given)
    paths = _Paths(workspace, home, repository=layer is Layer.TRUSTED)
    variables = UserVariables(environ, workspace, repository=layer is Layer.TRUSTED, inserts=enabled)
    at = "command"
    try:
        command = paths.program(variables.word(str(values.get("command", ""))))
        at = "args"
        args = tuple(map(variables.word, texts_in(values.get("args"))))
        at = "env"
        env = tuple((key, variables.value(text)) for key, text in pairs_in(values.get("env")))
        at = "headers"
        headers = tuple((key, variables.value(text)) for key, text in pairs_in(values.get("headers")))
        at = "url"
        url = variables.word(str(values.get("url", "")))
        if url and (wrong_url := url_fault(url)):
            raise VariableError("the address cannot be used", wrong_url)
        folders = {}
        for at in ("cwd", "read", "write"):
            folders[at] = tuple(paths.absolute(variables.word(text)) for text in texts_in(values.get(at)))
    except VariableError as error:
        fault = (f"{error.problem.what}, because {error.problem.why}", error.problem.fix)
        return ServerFault(name, place, _problem(name, place, at, fault))
    timeout = values.get("timeout", 60.0)
    return ServerConfig(
        name=name,
        layer=layer,
        place=place,
        command=command,
        args=args,
        env=env,
        cwd="".join(folders["cwd"]),
        url=url,
        transport=str(values.get("transport", "http" if url else "stdio")),
        headers=headers,
        tools=texts_in(values.get("tools")),
        exclude_tools=texts_in(values.get("exclude_tools")),
        tiers=pairs_in(values.get("tiers")),
        timeout=float(timeout) if isinstance(timeout, int | float) else 60.0,
        enabled=enabled,
        hosts=texts_in(values.get("hosts")),
        read=folders["read"],
        write=folders["write"],
    )


def _any(layers: Iterable[LayerValues], name: str) -> LayerValues | None:
    """Return the highest layer with a key of the server."""
    for given in reversed(tuple(layers)):
        if any(path[:2] == ("mcp", name) for path in given.document.values):
            return given
    return None


def _place(given: LayerValues | None, name: str, home: str) -> str:
    if given is None:
        return ""
    line = min((given.place(path)[1] for path in given.document.values if path[:2] == ("mcp", name)), default=0)
    source = given.document.source
    shown = f"~{source[len(home) :]}" if home != "/" and source.startswith(f"{home}/") else source
    return f"{shown}:{line}" if line else shown


def _problem(name: str, place: str, key: str, fault: Fault) -> Problem:
    return Problem(f"{place}: `mcp.{name}{f'.{key}' if key else ''}` cannot be used", *fault)


def _layer(given: LayerValues) -> Layer:
    if given.layer.came_along:
        return Layer.TRUSTED
    return {ConfigLayer.SYSTEM: Layer.SYSTEM, ConfigLayer.USER: Layer.USER}.get(given.layer, Layer.NAMED)


@dataclass(frozen=True, slots=True)
class _Paths:
    """The folders that relative paths of a server begin at.

    Attributes:
        repository: True if a file of the repository contains the paths.
    """

    workspace: str
    home: str
    repository: bool

    def absolute(self, text: str) -> str:
        """Return an absolute path: `~/` is the home, and a relative path is below the workspace."""
        path = self.home + text[1:] if text == "~" or text.startswith("~/") else text
        return os.path.normpath(os.path.join(self.workspace, path))

    def program(self, text: str) -> str:
        """Return the program of a server: a name without a slash, or an absolute path. Raises VariableError.

        THREAT T181: a relative path in the user's own file would start the program of whatever repository is open.
        """
        if text.startswith("~/") or (self.repository and "/" in text):
            return self.absolute(text)
        if "/" in text and not PurePosixPath(text).is_absolute():
            why = f"`{text}` is another program in every workspace"
            fix = "write its absolute path, or `${workspaceFolder}/...` if every workspace may choose the program"
            raise VariableError("the program cannot be started", (why, fix))
        return text


def _distinct(
    servers: Iterable[ServerConfig], faults: Iterable[ServerFault]
) -> tuple[tuple[ServerConfig, ...], tuple[ServerFault, ...]]:
    """Return the servers without those whose name differs from an earlier one only in case, which are faults.

    THREAT T181: the user could not tell `GitHub` and `github` apart, and a rule that denies ignores the case.
    """
    seen: dict[str, str] = {}
    kept, refused = [], list(faults)
    for each in servers:
        first = seen.setdefault(each.name.casefold(), each.name)
        if first == each.name:
            kept.append(each)
            continue
        fault = (f"its name differs from `{first}` only in upper and lower case", "give it another name")
        refused.append(ServerFault(each.name, each.place, _problem(each.name, each.place, "", fault)))
    return tuple(kept), tuple(refused)


def names_of(found: ConfiguredServers) -> Iterator[str]:
    """Yield the names of all servers, also of those with a fault."""
    yield from (each.name for each in found.servers)
    yield from (each.name for each in found.faults)
