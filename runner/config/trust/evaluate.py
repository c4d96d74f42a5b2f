"""What a repository brings, weighed: what of it would count, what was said to it before, and what is other since."""

from policy.model.frozen import dataclass
from runner.config.agentfiles.custom_commands import Read, of_contents
from runner.config.agentfiles.instructions import texts
from runner.config.agentfiles.skills import Broken, Skill, chosen, skills_in
from runner.config.trust.discover import COMMANDS, SKILLS
from runner.config.trust.inventory import Entry, Inventory, Kind, differences
from runner.config.trust.store import Answer
from runner.config.trust.widening import Widening


@dataclass(frozen=True, slots=True)
class Brought:
    """`answers` are those for this workspace, the latest first. `reads` says whether texts for agents are wanted.

    `skilled` says the same of skills. `never` is what its configuration sets and no repository may; `faulty` the files
    of it that cannot be used.
    """

    inventory: Inventory
    widenings: tuple[Widening, ...] = ()
    answers: tuple[Answer, ...] = ()
    reads: bool = True
    never: tuple[Widening, ...] = ()
    faulty: tuple[str, ...] = ()
    skilled: bool = True

    @property
    def answer(self) -> Answer | None:
        """What was said to this very content."""
        return next((each for each in self.answers if each.sha256 == self.inventory.sha256), None)

    @property
    def counts(self) -> tuple[str, ...]:
        """The files of which something depends on the answer. None of them: there is nothing to ask."""
        widening = {each.path for each in self.widenings}
        told = {each.path for each in texts(self.inventory)} if self.reads else set()
        skills = {each.path for each in self.skills[0]} if self.skilled else set()
        prompts = {each.path for each in self.prompts}
        commands = {each.source for each in self.commands.found}
        counting = widening | told | skills | prompts | commands
        return tuple(each.path for each in self.inventory.entries if each.path in counting)

    @property
    def prompts(self) -> tuple[Entry, ...]:
        """The files that would say something in the system prompt."""
        kind, contents = Kind.PROMPT, self.inventory.contents
        return tuple(
            each for each in self.inventory.entries if each.kind is kind and contents.get(each.path, b"").strip()
        )

    @property
    def commands(self) -> Read:
        """The `/commands` that it brings, and files that would be one if nothing were wrong with them."""
        return commands_of(self.inventory)

    @property
    def skills(self) -> tuple[tuple[Skill, ...], tuple[Broken, ...]]:
        """The skills that it brings, and files that would be one if nothing were wrong with them."""
        return skills_of(self.inventory)

    @property
    def since(self) -> tuple[Answer, tuple[tuple[str, str], ...]] | None:
        """The latest yes to another content, and what is other now; None when there was none."""
        before = next((each for each in self.answers if each.yes), None)
        if before is None or before is self.answer:
            return None
        return before, differences(before.entries, self.inventory.entries)


def commands_of(inventory: Inventory) -> Read:
    """The `/commands` of a repository."""
    kinds = {each.path for each in inventory.entries if each.kind is Kind.COMMAND}
    return of_contents({path: data for path, data in inventory.contents.items() if path in kinds}, COMMANDS)


def skills_of(inventory: Inventory) -> tuple[tuple[Skill, ...], tuple[Broken, ...]]:
    """The skills of a repository, those that come first before others of their name."""
    kinds = {each.path for each in inventory.entries if each.kind is Kind.SKILL}
    groups = []
    broken: tuple[Broken, ...] = ()
    for folder in SKILLS:
        files = {path: data for path, data in inventory.contents.items() if path in kinds and _is_one(path, folder)}
        good, bad = skills_in(files, "of the repository")
        groups.append(good)
        broken += bad
    found, left = chosen(groups)
    return found, (*broken, *left)


def _is_one(path: str, folder: str) -> bool:
    """A SKILL.md counts in a folder of its own, right below `folder`."""
    return path.startswith(f"{folder}/") and path.count("/") == folder.count("/") + 2
