"""One bundle: everything that it contains, under names that contain the name of the bundle."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from policy.model.frozen import dataclass, replace
from runner.bundles.manifest import CLAUDES, OURS, BundleManifest, json_object, read_manifest, unusable
from runner.config.agentfiles.custom_commands import PromptFile, of_contents
from runner.config.agentfiles.definitions.definition import NAME as AGENT_NAME
from runner.config.agentfiles.definitions.definition import AgentDefinition, AgentOwner
from runner.config.agentfiles.skills import FILE, Skill, choose_skills, skills_in
from runner.config.hookfiles.hook import Hook, HookForm, HookScope
from runner.config.inventory import Inventory
from runner.config.server_values import name_fault
from runner.config.serverfiles.foreign_server import ForeignServer
from runner.text.sanitize import one_line, visible

ROOT = "CLAUDE_PLUGIN_ROOT"  # the variable of Claude Code for the folder of a plug-in
_ROOT = re.compile(r"\$\{CLAUDE_PLUGIN_ROOT\}|\$CLAUDE_PLUGIN_ROOT\b")
_LONGEST_SKILL = 64  # characters of the name of a skill, as a model calls it
_MOST_SERVERS = 50
_LONGEST_SERVER = 4096  # characters of all values of one server
_KNOWN = ("commands", "agents", "skills", "hooks", ".claude-plugin")
_PLAIN = ("README", "LICENSE", "LICENCE", "CHANGELOG", "NOTICE", "CONTRIBUTING")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything that one bundle contains. All texts are untrusted.

    Attributes:
        name: its name.
        version: its version; may be empty.
        description: its description; may be empty.
        sha256: the hash of all its files.
        root: the absolute path of its private copy, which may not exist yet.
        commands: its commands, named `BUNDLE:NAME`.
        skills: its skills, named `BUNDLE:NAME`.
        agents: its kinds of sub-agents, named `BUNDLE-NAME`.
        servers: its tool servers, named `BUNDLE-NAME`.
        hooks: its hooks.
        notices: what of it is not used, and why.
    """

    name: str
    version: str
    description: str
    sha256: str
    root: str
    commands: tuple[PromptFile, ...] = ()
    skills: tuple[Skill, ...] = ()
    agents: tuple[AgentDefinition, ...] = ()
    servers: tuple[ForeignServer, ...] = ()
    hooks: tuple[Hook, ...] = ()
    notices: tuple[str, ...] = ()


def manifest_of(content: Inventory, folder_name: str) -> BundleManifest:
    """Return the manifest of a bundle. Raise BundleError if a file of the bundle cannot be pinned.

    THREAT T219: a link, a device, a second name of a file or a tree without bounds. One such entry refuses the bundle
    as a whole, because the copy would not be what the folder appears to be.
    """
    if refused := next((each for each in content.entries if each.refused), None):
        what = f"`{one_line(refused.path, 200)}` " if refused.path else "it "
        raise unusable(f"{what}{refused.refused}", "remove it from the folder, or name a folder without it")
    for path in content.contents:
        if path.casefold().split("/")[0] == ".git":
            raise unusable(f"`{one_line(path, 200)}` would be a file of Git in the copy", "remove it")
    return read_manifest(content.contents, folder_name)


def bundle_of(content: Inventory, manifest: BundleManifest, root: str) -> Bundle:
    """Return the bundle with the files of `content`, whose copy is at `root`. Raise BundleError."""
    reader = _Reader(content.contents, manifest, root)
    commands = tuple(reader.commands())
    skills = reader.skills()
    agents = reader.agents()
    servers = tuple(reader.servers())
    hooks = tuple(reader.hooks())
    reader.rest()
    return Bundle(
        manifest.name,
        manifest.version,
        manifest.description,
        content.sha256,
        root,
        commands,
        skills,
        agents,
        servers,
        hooks,
        tuple(reader.notices),
    )


class _Reader:
    """The reader of the parts of one bundle. `notices` grows meanwhile."""

    def __init__(self, files: Mapping[str, bytes], manifest: BundleManifest, root: str) -> None:
        self._files = files
        self._manifest = manifest
        self._name = manifest.name
        self._root = root
        self.notices: list[str] = [f"`{key}` of the manifest is not used" for key in manifest.unused]

    def _rooted(self, text: str) -> str:
        return _ROOT.sub(lambda _: self._root, text)

    def _of_kind(self, kind: str, usual: str) -> dict[str, bytes]:
        """Return the files of the usual folder and of the places that the manifest names, by path."""
        found = {}
        for place in dict.fromkeys((usual, *self._manifest.places.get(kind, ()))):
            below = "" if place == "." else f"{place}/"
            each = {path: data for path, data in self._files.items() if path == place or path.startswith(below)}
            if not each and place != usual:
                self.notices.append(f"`{one_line(place, 200)}` of the manifest is not in the bundle")
            found.update(each)
        return found

    def commands(self) -> Iterator[PromptFile]:
        """Yield the commands."""
        names = set()
        for path, data in sorted(self._of_kind("commands", "commands").items()):
            if not path.endswith(".md"):
                continue
            below = "commands" if path.startswith("commands/") else os.path.dirname(path)
            read = of_contents({path: data}, below)
            self.notices += [f"{notice}" for notice in read.notices]
            for each in read.found:
                name = f"{self._name}:{each.name}"
                if name in names:
                    self.notices.append(f"`{one_line(path, 200)}` is not used: /{name} is another file")
                    continue
                names.add(name)
                if re.search(r"(?m)^!|!`", each.text):
                    self.notices.append(f"`{one_line(path, 200)}`: commands after `!` are not run, but sent as text")
                yield replace(each, name=name, text=self._rooted(each.text), source=self._source(path))

    def skills(self) -> tuple[Skill, ...]:
        """Return the skills. Their paths are those of the copy."""
        files = {
            path: data for path, data in self._of_kind("skills", "skills").items() if PurePosixPath(path).name == FILE
        }
        good, broken = skills_in(files, f"of the bundle {self._name}")
        chosen, unused = choose_skills([good])
        self.notices += [
            f"`{one_line(each.path, 200)}` is not used as a skill: it {each.why}" for each in (*broken, *unused)
        ]
        found = []
        for each in chosen:
            name = f"{self._name}:{each.name}"
            if len(name) > _LONGEST_SKILL:
                self.notices.append(f"`{each.path}` is not used as a skill: its name is too long")
                continue
            found.append(replace(each, name=name, path=f"{self._root}/{each.path}", body=self._rooted(each.body)))
        return tuple(found)

    def agents(self) -> tuple[AgentDefinition, ...]:
        """Return the kinds of sub-agents."""
        files = {path: data for path, data in self._of_kind("agents", "agents").items() if path.endswith(".md")}
        if not files:
            return ()
        from runner.config.agentfiles.definitions.read_definition import read_definition  # imports a YAML parser

        found: dict[str, AgentDefinition] = {}
        for path, data in sorted(files.items()):
            each = read_definition(f"agents/{PurePosixPath(path).name}", data, AgentOwner.BUNDLE, self._source(path))
            if not isinstance(each, AgentDefinition):
                self.notices.append(f"`{one_line(path, 200)}` is not used as an agent: it {each.why}")
                continue
            # Published plug-ins often repeat their name in those of their agents.
            name = each.name if each.name.startswith(f"{self._name}-") else f"{self._name}-{each.name}"
            if not AGENT_NAME.fullmatch(name) or name in found:
                why = "another file has its name" if name in found else "its name is too long"
                self.notices.append(f"`{one_line(path, 200)}` is not used as an agent: {why}")
                continue
            found[name] = replace(each, name=name, prompt=self._rooted(each.prompt))
        return tuple(found.values())

    def servers(self) -> Iterator[ForeignServer]:
        """Yield the tool servers."""
        entries: dict[str, object] = {}
        tables = [(path, json_object(self._files[path], path)) for path in self._json("mcpServers", ".mcp.json")]
        tables.append((CLAUDES, self._manifest.inline.get("mcpServers", {})))
        for path, table in tables:
            servers = table.get("mcpServers", table)
            if not isinstance(servers, dict):
                raise unusable(f"`mcpServers` of `{path}` is not an object", "correct the file")
            for name, entry in servers.items():
                if name in entries:
                    self.notices.append(
                        f"the tool server `{one_line(name, 80)}` of `{path}` is not used: it is there twice"
                    )
                entries.setdefault(name, entry)
        if len(entries) > _MOST_SERVERS:
            raise unusable(f"it has more than {_MOST_SERVERS} tool servers", "use a bundle with fewer")
        if not entries:
            return
        from runner.config.serverfiles.json_servers import ServerForm, json_servers  # few bundles have servers

        for each in json_servers({"mcpServers": self._inserted(entries)}, ServerForm.CLAUDE):
            yield self._server(each)

    def _server(self, each: ForeignServer) -> ForeignServer:
        name = f"{self._name}-{each.name}"
        if each.fault:
            return replace(each, name=name)
        if wrong := name_fault(name):
            return ForeignServer(name, fault=f"{wrong[0]}; {wrong[1]}")
        if len(json.dumps(dict(each.values), default=list)) > _LONGEST_SERVER:
            return ForeignServer(name, fault=f"its texts are longer than {_LONGEST_SERVER:,} characters together")
        values = dict(each.values)
        command = str(values.get("command", ""))
        if "/" in command and not command.startswith(("/", "~", "$")):
            values["command"] = os.path.normpath(f"{self._root}/{command}")
        return replace(each, name=name, values=values)

    def _inserted(self, value: object) -> object:
        """Return a value of a JSON file with the folder of the bundle inserted in each text, but not in keys."""
        if isinstance(value, str):
            return self._rooted(value)
        if isinstance(value, list):
            return [self._inserted(each) for each in value]
        if isinstance(value, dict):
            return {key: self._inserted(each) for key, each in value.items()}
        return value

    def hooks(self) -> Iterator[Hook]:
        """Yield the hooks. A hook that cannot be used refuses the bundle: it may guard something."""
        paths = tuple(self._json("hooks", "hooks/hooks.json"))
        inline = self._manifest.inline.get("hooks")
        if not paths and inline is None:
            return
        from runner.config.hookfiles.json_hooks import json_hooks, table_hooks  # few bundles have hooks

        form, scope, root = HookForm.CLAUDE, HookScope.BUNDLE, self._root
        try:
            found = [json_hooks(self._files[path], self._source(path), form, scope, root=root) for path in paths]
            if inline is not None:
                text, source = self._files[CLAUDES].decode("utf-8-sig"), self._source(CLAUDES)
                found.append(table_hooks(inline.get("hooks", inline), text, source, form, scope, root=root))
        except ValueError as error:
            raise unusable(f"its hooks cannot be read: {error}", "correct the file") from None
        for file in found:
            if file.faults:
                raise unusable(str(file.faults[0]), "correct the file")
            self.notices += file.left
            yield from file.hooks

    def _json(self, kind: str, usual: str) -> Iterator[str]:
        for path in dict.fromkeys((usual, *self._manifest.places.get(kind, ()))):
            if path in self._files:
                yield path
            elif path != usual:
                self.notices.append(f"`{one_line(path, 200)}` of the manifest is not in the bundle")

    def rest(self) -> None:
        """Add a notice about parts of a kind that this version does not know."""
        places = {place.split("/")[0] for each in self._manifest.places.values() for place in each}
        known = {*_KNOWN, OURS, ".mcp.json", *places}
        tops = dict.fromkeys(path.split("/")[0] for path in self._files)
        left = [top for top in tops if top not in known and not top.upper().startswith(_PLAIN)]
        if left:
            shown = ", ".join(f"`{one_line(top, 60)}`" for top in left[:8]) + (", ..." if len(left) > 8 else "")
            self.notices.append(f"only its own parts can use {shown}")

    def _source(self, path: str) -> str:
        return f"bundle {self._name}: {visible(path, lines=False)}"
