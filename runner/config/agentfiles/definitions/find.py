"""The kinds of sub-agents that a session offers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.config.agentfiles.definitions.definition import (
    BUILT_IN,
    LONGEST,
    AgentDefinition,
    AgentOwner,
    BrokenDefinition,
)
from runner.config.inventory import EntryKind
from runner.state import paths
from runner.text.phrases import os_reason
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor

if TYPE_CHECKING:
    from runner.config.inventory import Inventory

_MOST = 200  # files of one folder
_SUFFIXES = (".md", ".toml")
# Folders of the user below the home, after `agents` of the configuration folder. Of two agents with one name, the first
# is used.
OWN_FOLDERS = (".claude/agents", ".codex/agents", ".gemini/agents", ".config/opencode/agent", ".config/opencode/agents")


@dataclass(frozen=True, slots=True)
class FoundAgents:
    """The definitions that were found.

    Attributes:
        definitions: the kinds, by precedence: those of the user, of the program, of bundles, of the repository.
        broken: the files that define no agent, and those that another definition of the same name hides.
    """

    definitions: tuple[AgentDefinition, ...]
    broken: tuple[BrokenDefinition, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """Return a line for each file that is not used."""
        return tuple(f"`{each.source}` is not used as an agent: it {each.why}" for each in self.broken)


def find_agents(
    inventory: "Inventory | None", environ: Mapping[str, str], bundled: tuple[AgentDefinition, ...] = ()
) -> FoundAgents:
    """Return the kinds of agents. `inventory` is the trusted content of the repository, or None, and `bundled` are the
    kinds of bundles.

    A definition of the user replaces a built-in one. THREAT T221, T222: one of a bundle or a repository replaces no
    other, so that a name that the user knows keeps its meaning.
    """
    own = _read([each for folder in _own_folders(environ) for each in _files(folder)], AgentOwner.USER)
    names = {each.name for each in own.definitions}
    before = (*own.definitions, *(each for each in BUILT_IN if each.name not in names))
    known = {each.name: each.source for each in before}
    taken = [
        BrokenDefinition(each.source, f"has the name `{each.name}` of the agent in `{known[each.name]}`")
        for each in bundled
        if each.name in known
    ]
    before += tuple(each for each in bundled if each.name not in known)
    theirs = repository_agents(inventory, before) if inventory is not None else FoundAgents(())
    return FoundAgents((*before, *theirs.definitions), (*own.broken, *taken, *theirs.broken))


def repository_agents(inventory: "Inventory", before: tuple[AgentDefinition, ...] = BUILT_IN) -> FoundAgents:
    """Return the agents that a repository defines, without those with a name of `before`."""
    files: list[tuple[str, bytes | str]] = []
    for entry in inventory.entries:
        if entry.kind is EntryKind.AGENT and entry.path.endswith(_SUFFIXES):
            data = inventory.contents.get(entry.path)
            files.append((entry.path, data if data is not None else entry.refused or "cannot be read"))
    return _read(files, AgentOwner.REPOSITORY, before)


def _read(
    files: list[tuple[str, bytes | str]], owner: AgentOwner, before: tuple[AgentDefinition, ...] = ()
) -> FoundAgents:
    """Return the definitions in `files`, of which none has a name of `before` or of an earlier file."""
    if not files:  # most users have none: no parser is imported
        return FoundAgents(())
    from runner.config.agentfiles.definitions.read_definition import read_definition

    found = {each.name: each for each in before}
    made: list[AgentDefinition] = []
    broken: list[BrokenDefinition] = []
    for path, data in files:
        one = BrokenDefinition(path, data) if isinstance(data, str) else read_definition(path, data, owner, path)
        if isinstance(one, BrokenDefinition):
            broken.append(one)
        elif other := found.get(one.name):
            broken.append(BrokenDefinition(path, f"has the name `{one.name}` of the agent in `{other.source}`"))
        else:
            found[one.name] = one
            made.append(one)
    return FoundAgents(tuple(made), tuple(broken))


def _own_folders(environ: Mapping[str, str]) -> list[Path]:
    home = Path(paths.home(environ))
    return [paths.config_file(environ).parent / "agents", *(home / below for below in OWN_FOLDERS)]


def _files(folder: Path) -> list[tuple[str, bytes | str]]:
    """Return the agent files of one folder of the user, each with its bytes or the reason why it is not read."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIXES))[:_MOST]
    except OSError:
        return []  # missing or unreadable: the folder contains no agents
    found: list[tuple[str, bytes | str]] = []
    for name in names:
        path = str(folder / name)
        try:
            handle, _ = open_regular(path, follow=True)
            try:
                found.append((path, read_descriptor(handle, LONGEST + 1)))
            finally:
                os.close(handle)
        except NotRegularError:
            found.append((path, "is not a regular file"))
        except OSError as error:
            found.append((path, f"cannot be read: {os_reason(error)}"))
    return found
