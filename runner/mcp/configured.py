"""The tool servers that the configuration names, with absolute paths and the user's variables inserted.

A server of a file of the repository is among them only if the user trusts exactly the content of that file.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.profile import Layer
from policy.model.verdict import Problem
from policy.toml.schema import Value
from runner.config.inventory import EntryKind, Inventory
from runner.config.server_values import NARROWING, pairs_in, server_fault, texts_in, url_fault
from runner.config.settings import ConfigLayer, LayerValues, Settings
from runner.config.validators import Fault
from runner.mcp.server_config import ServerConfig, WorkspaceCopy
from runner.mcp.variables import UserVariables, VariableError, register_values
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.bundles.bundle import Bundle
    from runner.config.serverfiles.read_servers import ServerFile


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


def find_servers(
    settings: Settings,
    workspace: str,
    environ: Mapping[str, str],
    home: str,
    trusted: Inventory | None = None,
    bundles: "Iterable[Bundle]" = (),
) -> ConfiguredServers:
    """Return the servers of all configuration files, of bundles, and of the trusted files of other clients in the
    repository.

    `workspace` and `home` are absolute paths. `trusted` is the inventory that the user trusts, or None. Its bytes are
    those that were trusted; no file is read again.
    """
    find = _Finder(settings, workspace, environ, home)
    bundled = {server.name for bundle in bundles for server in bundle.servers}
    for name, values in settings.named("mcp").items():
        if name not in bundled or _defining(settings.layers, name) is not None:
            find.table(name, values)
    for bundle in bundles:
        find.bundle(bundle)
    if trusted is not None and trusted.hashes(EntryKind.SERVERS):
        from runner.config.serverfiles.read_servers import server_files  # few repositories have such a file

        for file in server_files(trusted):
            find.file(file)
    return find.result()


def servers_in_copy(servers: Iterable[ServerConfig], original: str, copy: str) -> tuple[ServerConfig, ...]:
    """Return the servers for `copy`, a copy of the workspace `original`, with every path of the workspace moved there.

    THREAT T94: a server of a session in a copy would otherwise change the workspace itself. THREAT T203: a pin of the
    workspace approves a server in the copy only if it is the same command line, and the same files, there.
    """
    place = re.compile(rf"(?<![A-Za-z0-9_.-]){re.escape(original)}(?=/|\Z|[^A-Za-z0-9_.-])")

    def moved(text: str) -> str:
        return place.sub(lambda _: copy, text)

    def all_moved(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(moved, texts))

    return tuple(
        replace(
            each,
            command=moved(each.command),
            args=all_moved(each.args),
            env=tuple((name, moved(text)) for name, text in each.env),
            cwd=moved(each.cwd),
            read=all_moved(each.read),
            write=all_moved(each.write),
            copied=WorkspaceCopy(original, copy, each),
        )
        for each in servers
    )


def servers_here(
    where: Path, environ: Mapping[str, str], *, config: Path | None = None, unattended: bool = False
) -> ConfiguredServers:
    """Return the servers of a session in the folder `where`, a real path, for commands that ask no question.

    Files of the repository count if the user has trusted them; not at all if `unattended`. Raise what `load` raises,
    StateError or PlaceError.
    """
    from runner.config.load import load
    from runner.config.trust.cached import remembered, trusted_inventory
    from runner.state.paths import home
    from runner.state.workspace import workspace_at

    bundles: tuple[Bundle, ...] = ()
    notices: tuple[str, ...] = ()
    if not unattended:
        from runner.bundles.pinned import any_bundles, installed

        if any_bundles(environ):
            found = installed(environ)
            bundles, notices = found.bundles, found.notices
    trusted = {} if unattended else remembered(str(where), environ)
    settings = load(where, environ, config=config, unattended=unattended, trusted=trusted)
    inventory = None if unattended else trusted_inventory(str(where), environ)
    top = workspace_at(str(where), environ)
    servers = find_servers(settings, top, environ, os.path.realpath(home(environ)), inventory, bundles)
    return replace(servers, notices=(*notices, *servers.notices))


@dataclass(frozen=True, slots=True)
class _Finder:
    """The servers that were found so far, of tables first. Of two servers with one name, the first one is used."""

    settings: Settings
    workspace: str
    environ: Mapping[str, str]
    home: str
    servers: list[ServerConfig] = field(default_factory=list)
    faults: list[ServerFault] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def result(self) -> ConfiguredServers:
        """Return the servers, those of the user and the system first."""
        ordered = sorted(self.servers, key=lambda each: each.layer is Layer.TRUSTED)
        servers, faults = _distinct(ordered, self.faults)
        return ConfiguredServers(servers, faults, tuple(self.notices))

    def table(self, name: str, values: Mapping[str, Value]) -> None:
        """Add the server of the tables `[mcp.NAME]` of all layers."""
        layers = self.settings.layers
        given = _defining(layers, name)
        if given is None and (values.keys() <= NARROWING or not _of_user(layers, name)):
            return  # it switches a server of another file off, or leaves out tools
        place = _place(given or _any(layers, name), name, self.home)
        if wrong := server_fault(values):
            key, fault = wrong
            self.faults.append(
                ServerFault(name, place, _problem(place, f"mcp.{name}{f'.{key}' if key else ''}", fault))
            )
            return
        assert given is not None, "a server without a command and an address has a fault"
        self.add(name, values, place, _layer(given), f"mcp.{name}.")

    def file(self, file: "ServerFile") -> None:
        """Add the servers of a trusted file of another client."""
        if file.fault:
            self.notices.append(f"the tool servers of `{file.path}` are not used: {file.fault}")
            return
        for each in file.servers:
            shown = visible(each.name, lines=False)
            if earlier := self._earlier(each.name):
                self.notices.append(f"the tool server `{shown}` of `{file.path}` is not used: {earlier} has this name")
            elif each.fault:
                problem = Problem(f"{file.path}: the tool server `{shown}` cannot be used", each.fault, _CORRECT)
                self.faults.append(ServerFault(each.name, file.path, problem))
            else:
                narrowed = self.settings.named("mcp").get(each.name, {})
                self.add(each.name, {**each.values, **_narrowed(each.values, narrowed)}, file.path, Layer.TRUSTED, "")

    def bundle(self, bundle: "Bundle") -> None:
        """Add the servers of a bundle.

        They have the rights of a repository's server and read the copy of their bundle. THREAT T221: only the user's
        own tables `[mcp.NAME]` give them more, and no server replaces another.
        """
        source = f"bundle {bundle.name}"
        for each in bundle.servers:
            shown = visible(each.name, lines=False)
            if earlier := self._earlier(each.name):
                self.notices.append(f"the tool server `{shown}` of the {source} is not used: {earlier} has this name")
            elif each.fault:
                problem = Problem(
                    f"{source}: the tool server `{shown}` cannot be used", each.fault, "remove the bundle"
                )
                self.faults.append(ServerFault(each.name, source, problem))
            else:
                narrowed = _narrowed(each.values, self.settings.named("mcp").get(each.name, {}))
                values = {**each.values, **narrowed, **_own_rights(self.settings.layers, each.name)}
                before = len(self.servers)
                self.add(each.name, values, source, Layer.TRUSTED, "")
                for place in range(before, len(self.servers)):
                    made = self.servers[place]
                    env = (*made.env, ("CLAUDE_PLUGIN_ROOT", bundle.root))
                    self.servers[place] = replace(made, read=(bundle.root, *made.read), env=env)

    def _earlier(self, name: str) -> str:
        """Return the place of a server with this name that was found earlier, or empty."""
        found = [(each.name, each.place) for each in self.servers] + [(each.name, each.place) for each in self.faults]
        return next((f"that of {place}" for known, place in found if known.casefold() == name.casefold()), "")

    def add(self, name: str, values: Mapping[str, Value], place: str, layer: Layer, start: str) -> None:
        """Add the server with these values, or the fault of a value. `start` precedes the key in messages."""
        found = self._built(name, values, place, layer)
        if isinstance(found, ServerConfig):
            self.servers.append(found)
        else:
            key, fault = found
            subject = f"{start}{key}" if start else f"{visible(name, lines=False)}.{key}"
            self.faults.append(ServerFault(name, place, _problem(place, subject, fault)))

    def _built(
        self, name: str, values: Mapping[str, Value], place: str, layer: Layer
    ) -> ServerConfig | tuple[str, Fault]:
        """Return the server, or the key that cannot be used and its fault."""
        enabled = values.get("enabled", True) is not False
        paths = _Paths(self.workspace, self.home, repository=layer is Layer.TRUSTED)
        variables = UserVariables(self.environ, self.workspace, repository=layer is Layer.TRUSTED, inserts=enabled)
        at = "command"
        try:
            command = paths.program(variables.word(str(values.get("command", ""))))
            at = "args"
            args = tuple(map(variables.word, texts_in(values.get("args"))))
            at = "env"
            env = tuple((key, variables.value(text)) for key, text in pairs_in(values.get("env")))
            at = "headers"
            headers = tuple((key, variables.value(text)) for key, text in pairs_in(values.get("headers")))
            register_values((*env, *headers))
            at = "url"
            url = variables.word(str(values.get("url", "")))
            if url and (wrong_url := url_fault(url)):
                raise VariableError("the address cannot be used", wrong_url)
            folders = {}
            for at in ("cwd", "read", "write"):
                folders[at] = tuple(paths.absolute(variables.word(text)) for text in texts_in(values.get(at)))
        except VariableError as error:
            return at, (f"{error.problem.what}, because {error.problem.why}", error.problem.fix)
        timeout, start = values.get("timeout", 60.0), values.get("start_timeout", 30.0)
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
            results=pairs_in(values.get("results")),
            private=values.get("private") is True,
            timeout=float(timeout) if isinstance(timeout, int | float) else 60.0,
            callback_port=port if isinstance(port := values.get("callback_port"), int) else 0,
            start_timeout=float(start) if isinstance(start, int | float) else 30.0,
            enabled=enabled,
            hosts=texts_in(values.get("hosts")),
            read=folders["read"],
            write=folders["write"],
        )


_CORRECT = "correct the file, or remove the server from it"


_RIGHTS = ("read", "write", "hosts", "env")


def _own_rights(layers: Iterable[LayerValues], name: str) -> Mapping[str, Value]:
    """Return the rights that the user's own files give to the server of a bundle, without those of a repository."""
    found: dict[str, Value] = {}
    for given in layers:
        for key in _RIGHTS:
            path = ("mcp", name, key)
            if not given.layer.came_along and path in given.document.values and path not in given.left_out:
                found[key] = given.document.values[path]
    return found


def _narrowed(values: Mapping[str, Value], by: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the keys that a table without a command changes in a server of another client's file."""
    changed: dict[str, Value] = {}
    if by.get("enabled") is False:
        changed["enabled"] = False
    if "tools" in by:
        own = texts_in(values.get("tools"))
        listed = texts_in(by["tools"])
        # Patterns of both cannot be combined: those of the file that are listed, too, or none of its tools.
        changed["tools"] = tuple(each for each in listed if each in own) if own else listed
        if not texts_in(changed["tools"]):
            changed["exclude_tools"] = ("*",)
    if "exclude_tools" in by:
        before = texts_in(changed.get("exclude_tools", values.get("exclude_tools")))
        changed["exclude_tools"] = (*before, *texts_in(by["exclude_tools"]))
    return changed


def _defining(layers: Iterable[LayerValues], name: str) -> LayerValues | None:
    """Return the highest layer that contains the command or the address of the server in force."""
    keys = (("mcp", name, "command"), ("mcp", name, "url"))
    return next((given for given in reversed(tuple(layers)) if any(_sets(given, key) for key in keys)), None)


def _sets(given: LayerValues, key: tuple[str, ...]) -> bool:
    return key in given.document.values and key not in given.left_out


def _of_user(layers: Iterable[LayerValues], name: str) -> bool:
    paths = (path for given in layers if not given.layer.came_along for path in given.document.values)
    return any(path[:2] == ("mcp", name) for path in paths)


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


def _problem(place: str, subject: str, fault: Fault) -> Problem:
    return Problem(f"{place}: `{subject}` cannot be used", *fault)


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
        refused.append(ServerFault(each.name, each.place, _problem(each.place, each.name, fault)))
    return tuple(kept), tuple(refused)


def names_of(found: ConfiguredServers) -> Iterator[str]:
    """Yield the names of all servers, also of those with a fault."""
    yield from (each.name for each in found.servers)
    yield from (each.name for each in found.faults)
