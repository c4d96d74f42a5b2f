"""/skill:NAME: a person hands the model a skill, with what they want of it."""

from collections.abc import Sequence

from runner.config.agentfiles.skills import Skill, invoked
from runner.frontends.slash.command import Command, CommandHost
from runner.text.sanitize import one_line

PREFIX = "skill:"  # of every name; no other command's name begins with it
_HINT = 200  # characters of a description


def commands(skills: Sequence[Skill]) -> tuple[Command, ...]:
    """One for each skill of a session."""
    return tuple(map(_command, skills))


def _command(skill: Skill) -> Command:
    async def run(words: str, host: CommandHost) -> None:
        await host.send(invoked(skill, words), f"/{name} {words}".rstrip())

    name, hint = f"{PREFIX}{skill.name}", one_line(skill.description, _HINT)
    return Command(name, "[WORDS]", hint, run, source=skill.path, sends=True)
