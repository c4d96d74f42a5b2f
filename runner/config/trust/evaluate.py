"""Evaluation of a repository's files: their effects if trusted, earlier answers of the user, and changes since."""

from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.config.agentfiles.custom_commands import CommandFiles, of_contents
from runner.config.agentfiles.instructions import read_texts
from runner.config.agentfiles.skills import Broken, Skill, choose_skills, skills_in
from runner.config.inventory import EntryKind, Inventory, InventoryEntry, differences
from runner.config.trust.discover import COMMANDS, FILES_WITH_HOOKS, SKILLS
from runner.config.trust.store import TrustAnswer
from runner.config.trust.widening import Widening

if TYPE_CHECKING:
    from runner.config.agentfiles.definitions.find import FoundAgents
    from runner.config.hookfiles.hook import HookFile
    from runner.config.serverfiles.read_servers import ServerFile


@dataclass(frozen=True, slots=True)
class TrustReview:
    """A repository's files with their effects and earlier answers.

    Attributes:
        inventory: the files.
        widenings: settings that the user's trust would change.
        answers: answers for this workspace, the latest first.
        reads: True if instruction files are wanted.
        never: settings of the repository that no repository may change.
        faulty: configuration files that cannot be used.
        skilled: True if skills are wanted.
    """

    inventory: Inventory
    widenings: tuple[Widening, ...] = ()
    answers: tuple[TrustAnswer, ...] = ()
    reads: bool = True
    never: tuple[Widening, ...] = ()
    faulty: tuple[str, ...] = ()
    skilled: bool = True

    @property
    def answer(self) -> TrustAnswer | None:
        """Return the user's answer to exactly this content; None if there is none."""
        return next((each for each in self.answers if each.sha256 == self.inventory.sha256), None)

    @property
    def counts(self) -> tuple[str, ...]:
        """Return the paths of the files that trust would put into effect. Without such files there is no question."""
        widening = {each.path for each in self.widenings}
        told = {each.path for each in read_texts(self.inventory)} if self.reads else set()
        skills = {each.path for each in self.skills[0]} if self.skilled else set()
        prompts = {each.path for each in self.prompts}
        commands = {each.source for each in self.commands.found}
        started = {each.path for each in self.servers if any(not server.fault for server in each.servers)}
        agents = {each.source for each in self.agents.definitions}
        hooked = {each.path for each in self.hooks if each.hooks}
        counting = widening | told | skills | prompts | commands | started | agents | hooked
        return tuple(each.path for each in self.inventory.entries if each.path in counting)

    @property
    def prompts(self) -> tuple[InventoryEntry, ...]:
        """Return the files that would change the system prompt."""
        kind, contents = EntryKind.PROMPT, self.inventory.contents
        return tuple(
            each for each in self.inventory.entries if each.kind is kind and contents.get(each.path, b"").strip()
        )

    @property
    def commands(self) -> CommandFiles:
        """Return the custom commands of the repository, and files that are faulty commands."""
        return commands_of(self.inventory)

    @property
    def agents(self) -> "FoundAgents":
        """Return the sub-agents that the repository defines, and files that define none."""
        return agents_of(self.inventory)

    @property
    def servers(self) -> "tuple[ServerFile, ...]":
        """Return the files of other clients that configure tool servers."""
        return servers_of(self.inventory)

    @property
    def hooks(self) -> "tuple[HookFile, ...]":
        """Return the files of other programs that configure hooks."""
        return hooks_of(self.inventory)

    @property
    def skills(self) -> tuple[tuple[Skill, ...], tuple[Broken, ...]]:
        """Return the skills of the repository, and files that are faulty skills."""
        return skills_of(self.inventory)

    @property
    def since(self) -> tuple[TrustAnswer, tuple[tuple[str, str], ...]] | None:
        """Return the latest approval and the changes since; None if there was no approval, or if the latest one is for
        this content.
        """
        before = next((each for each in self.answers if each.yes), None)
        if before is None or before is self.answer:
            return None
        return before, differences(before.entries, self.inventory.entries)


def commands_of(inventory: Inventory) -> CommandFiles:
    """Return the custom commands of a repository, and notices about files that are no commands."""
    kinds = {each.path for each in inventory.entries if each.kind is EntryKind.COMMAND}
    return of_contents({path: data for path, data in inventory.contents.items() if path in kinds}, COMMANDS)


def agents_of(inventory: Inventory) -> "FoundAgents":
    """Return the sub-agents that a repository defines, and the files that define none."""
    from runner.config.agentfiles.definitions.find import repository_agents  # few repositories have such a file

    return repository_agents(inventory)


def servers_of(inventory: Inventory) -> "tuple[ServerFile, ...]":
    """Return the files of other clients that configure tool servers."""
    if not inventory.hashes(EntryKind.SERVERS):
        return ()
    from runner.config.serverfiles.read_servers import server_files  # few repositories have such a file

    return server_files(inventory)


def hooks_of(inventory: Inventory) -> "tuple[HookFile, ...]":
    """Return the files of other programs that configure hooks."""
    if not any(path in inventory.contents for path in FILES_WITH_HOOKS):
        return ()
    from runner.config.hookfiles.read_hooks import hook_files  # few repositories have such a file

    return hook_files(inventory)


def skills_of(inventory: Inventory) -> tuple[tuple[Skill, ...], tuple[Broken, ...]]:
    """Return the skills of a repository, and the files that are not used. Of skills with one name the first is used."""
    kinds = {each.path for each in inventory.entries if each.kind is EntryKind.SKILL}
    groups = []
    broken: tuple[Broken, ...] = ()
    for folder in SKILLS:
        files = {path: data for path, data in inventory.contents.items() if path in kinds and _is_one(path, folder)}
        good, bad = skills_in(files, "of the repository")
        groups.append(good)
        broken += bad
    found, unused = choose_skills(groups)
    return found, (*broken, *unused)


def _is_one(path: str, folder: str) -> bool:
    """Return True for a SKILL.md in a folder of its own, directly in `folder`."""
    return path.startswith(f"{folder}/") and path.count("/") == folder.count("/") + 2
