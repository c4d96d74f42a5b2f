"""The tool `skill`: the text of a skill, which says how a kind of task is done."""

from typing import Annotated

from pydantic import Field

from policy.model.action import LoadSkill
from policy.model.verdict import Problem
from tools.file_result import tell
from tools.paths import SeenFiles
from tools.tool import Arguments, Finished, Keep, TextPart


class SkillArgs(Arguments):
    name: Annotated[str, Field(min_length=1, max_length=64, description="The name of a skill from the list of skills.")]


class SkillTool:
    """The tool with which a model loads a skill. The session answers with the text."""

    name = "skill"
    description = (
        "Load a skill from the list of skills: its text says how this kind of task is done. Call it before you begin "
        "such a task. While a skill that names its tools is in force, other tools are refused."
    )
    example = '{"name": "review"}'
    Args = SkillArgs

    def plan(self, args: SkillArgs, cwd: str, seen: SeenFiles) -> LoadSkill | Problem:
        """Return the request. The session adds the source."""
        return LoadSkill(args.name)

    def render(
        self, action: LoadSkill, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        """Return the text of the skill."""
        text = finished.stdout.decode("utf-8", "replace")
        return (TextPart(tell(finished.problem) if finished.problem is not None else text),)
