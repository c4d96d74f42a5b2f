"""The tool by which a model hands over its plan, offered in plan mode when a person can answer."""

from policy.model.tier import Mode
from runner.messages import ToolSpec

NAME = "propose_plan"
LONGEST = 64 << 10  # characters of a plan; a longer text is refused

SPEC = ToolSpec(
    NAME,
    "Hand your finished plan to the user and ask to leave plan mode. Call it once you have looked at everything that "
    "matters. The plan is Markdown: what you will change and where, in which order, how you will check it, and what is "
    "open. The user reads it and says yes, or what to change.",
    {
        "type": "object",
        "properties": {"plan": {"type": "string", "description": "The plan, as Markdown."}},
        "required": ["plan"],
        "additionalProperties": False,
    },
)


def plan_tool(mode: Mode, *, unattended: bool) -> tuple[ToolSpec, ...]:
    """Return the specification of the tool in plan mode if a person can answer, else an empty tuple."""
    return (SPEC,) if mode is Mode.PLAN and not unattended else ()
