"""The tool `skill`: the text of a skill, which says how a kind of task is done."""

from typing import Annotated

from pydantic import Field

from policy.model.action import LoadSkill
from policy.model.verdict import Problem
from tools.paths import SeenFiles
from tools.text_result import TextResultTool
from tools.tool import Arguments


class SkillArgs(Arguments):
    name: Annotated[str, Field(min_length=1, max_length=64, description="The name of a skill from the list of skills.")]


class SkillTool(TextResultTool):
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
