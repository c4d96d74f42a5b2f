"""Every `/command` of one talk: ours, then your own, then those that a repository brings and you trust, then skills."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.config.agentfiles.custom_commands import PromptFile, of_folder
from runner.frontends.slash.command import Command, CommandHost
from runner.frontends.slash.commands import COMMANDS
from runner.frontends.slash.dispatch import find
from runner.frontends.slash.skills import PREFIX
from runner.frontends.slash.skills import commands as of_skills
from runner.state.paths import config_file
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.engine.context.context import Context


@dataclass(frozen=True, slots=True)
class Known:
    """`notices` say which files are no commands, and why."""

    commands: tuple[Command, ...]
    notices: tuple[str, ...] = ()


def known(environ: Mapping[str, str], context: "Context") -> Known:
    """What can be typed; of two with one name the first is meant. Reads the disk."""
    mine = of_folder(config_file(environ).parent / "commands")
    files: dict[str, PromptFile] = {}
    notices = list(mine.notices)
    for each in (*mine.found, *context.commands):
        if each.name.startswith(PREFIX):
            notices.append(
                f"`{one_line(each.source, 200)}` is not used: names that begin with `{PREFIX}` are those of skills"
            )
        elif find(each.name, COMMANDS) is None:
            files.setdefault(each.name, each)
        else:  # a list must not show a repository's words beside the name of what ours does
            notices.append(f"`{one_line(each.source, 200)}` is not used: /{each.name} is ringfence's own")
    return Known((*COMMANDS, *map(_file, files.values()), *of_skills(context.skills)), tuple(notices))


def _file(made: PromptFile) -> Command:
    async def run(words: str, host: CommandHost) -> None:
        await host.send(made.prompt(words), f"/{made.name} {words}".rstrip())

    return Command(made.name, made.usage, made.summary, run, source=made.source, sends=True)
