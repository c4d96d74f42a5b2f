"""The command about the skills of the session: /skills."""

from functools import partial

from runner.config.agentfiles.skills import Skill
from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say, table
from runner.text.sanitize import one_line, visible

_LONGEST = 300  # characters of a description


async def _skills(words: str, host: CommandHost) -> None:
    """List the skills, or show one."""
    skills = host.conversation.ctx.context.skills
    if not words:
        rows = [(f"/skill:{each.name}", _about(each)) for each in skills]
        say(host, *(table(rows, host.columns) if rows else ["this session has no skills"]))
        return
    skill = host.conversation.ctx.context.skill(words.removeprefix("skill:"))
    if skill is None:
        names = ", ".join(each.name for each in skills) or "none"
        raise Mistake(visible(f"there is no skill `{one_line(words, 64)}`; the skills are {names}", lines=False))
    say(host, *visible(f"{skill.name}  {_about(skill)}\n{skill.path}\n\n{skill.body}", prose=True).split("\n"))


def _about(skill: Skill) -> str:
    allowed = "" if skill.allowed is None else f" [tools: {', '.join(skill.allowed) or 'none'}]"
    quiet = " [only you]" if skill.quiet else ""
    return one_line(f"({skill.source}){quiet} {skill.description}{allowed}", _LONGEST)


_command = partial(SlashCommand, group="Conversation")

# fmt: off
COMMANDS = (
    _command("skills", "[NAME]", "list the skills of this session, or show one", _skills,
             words=lambda host: [each.name for each in host.conversation.ctx.context.skills]),
)
# fmt: on
