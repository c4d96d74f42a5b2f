"""The registry of the `/commands` of one conversation, in the order in which /help lists them.

The built-in commands come first, then the user's own, then those of a trusted repository, then one for each skill.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.config.agentfiles.custom_commands import PromptFile, of_folder
from runner.config.agentfiles.skills import invoked
from runner.frontends.slash import (
    agents,
    conversation,
    files,
    hooks,
    languages,
    memory,
    policy,
    processes,
    servers,
    settings,
    skills,
    tasks,
)
from runner.frontends.slash.command import CommandHost, SlashCommand, find
from runner.state.paths import config_file
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.engine.context.context import Context

COMMANDS: tuple[SlashCommand, ...] = (
    *conversation.COMMANDS[:1],
    *settings.COMMANDS,
    *policy.COMMANDS,
    *files.COMMANDS,
    *agents.COMMANDS,
    *tasks.COMMANDS,
    *processes.COMMANDS,
    *servers.COMMANDS,
    *languages.COMMANDS,
    *memory.COMMANDS,
    *hooks.COMMANDS,
    *skills.COMMANDS,
    *conversation.COMMANDS[1:],
)

_SKILL = "skill:"  # the prefix of every skill's command, and of no other command
_HINT = 200  # characters of a skill's description


@dataclass(frozen=True, slots=True)
class KnownCommands:
    """The commands of one conversation.

    Attributes:
        commands: The commands; of two with the same name, the first one is used.
        notices: One sentence for each file that is invalid, or whose name is reserved or that of a built-in command.
    """

    commands: tuple[SlashCommand, ...]
    notices: tuple[str, ...] = ()


def known(environ: Mapping[str, str], context: "Context") -> KnownCommands:
    """Return every command that the user can type. Read the user's command files from the disk."""
    mine = of_folder(config_file(environ).parent / "commands")
    prompts: dict[str, PromptFile] = {}
    notices = list(mine.notices)
    for file in (*mine.found, *context.commands):
        source = one_line(file.source, 200)
        if file.name.startswith(_SKILL):
            notices.append(f"`{source}` is not used: names that begin with `{_SKILL}` are reserved for skills")
        elif find(file.name, COMMANDS) is None:
            prompts.setdefault(file.name, file)
        else:  # a repository must not describe a built-in command
            notices.append(f"`{source}` is not used: /{file.name} is a built-in command")
    commands = [*COMMANDS]
    commands += (_sending(file.name, file.usage, file.summary, file.source, file.prompt) for file in prompts.values())
    for skill in context.skills:
        hint = one_line(skill.description, _HINT)
        commands.append(_sending(f"{_SKILL}{skill.name}", "[WORDS]", hint, skill.path, partial(invoked, skill)))
    return KnownCommands(tuple(commands), tuple(notices))


def _sending(name: str, usage: str, summary: str, source: str, prompt: Callable[[str], str]) -> SlashCommand:
    """Return a command that sends the prompt which the function `prompt` makes from the user's words."""

    async def run(words: str, host: CommandHost) -> None:
        await host.send(prompt(words), f"/{name} {words}".rstrip())

    return SlashCommand(name, usage, summary, run, source=source, sends=True)
