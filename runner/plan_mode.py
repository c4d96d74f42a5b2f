"""The end of plan mode: the model hands over its plan, and a person says whether, and how, work begins.

THREAT T102: a model must not talk itself out of plan mode. The only way out is a person's answer: nothing in the plan's
text is an answer, nobody there means no, and what it leaves into is what the person picked.
"""

import time
from typing import TYPE_CHECKING

from policy.record import dataclass
from policy.tier import Mode
from policy.verdict import Problem
from runner.calls import Call
from runner.events import Answered, Changed, Malformed, PlanProposed
from runner.messages import TextBlock, ToolResult, ToolSpec
from runner.reports import Report, refused

if TYPE_CHECKING:
    from runner.world import World

NAME = "propose_plan"
LONGEST = 64 << 10  # characters of a plan: more is no plan
# What may follow plan mode. `dangerously` is not offered here: whoever wants it says /mode.
WAYS = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.TRUST_PROJECT)
# The key that takes each of them: ask, edits, trust. Digits take nothing, and `d` is a no at other questions.
LETTERS = dict(zip("aet", WAYS, strict=True))

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


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits for its answer."""

    call: Call
    plan: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Yes: work on it in `mode`."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Stay:
    """Not yet. `feedback` goes to the model in the person's own words."""

    feedback: str | None = None


PlanAnswer = Leave | Stay


def offered(world: "World") -> tuple[ToolSpec, ...]:
    """The tool, where the mode has an end and somebody can answer."""
    return (SPEC,) if world.mode is Mode.PLAN and not world.unattended else ()


def proposal(call: Call, world: "World") -> Proposal | Report | None:
    """What a call of the tool says; None for any other call, and where the tool is not offered."""
    if call.name != NAME or not offered(world):
        return None
    arguments = call.of.arguments or {}
    plan = arguments.get("plan")
    if not isinstance(plan, str) or not plan.strip() or len(plan) > LONGEST or set(arguments) != {"plan"}:
        why = f"it takes one argument `plan`, a text of 1 to {LONGEST:,} characters"
        problem = Problem("the plan cannot be read", why, f"call `{NAME}` again with the plan alone")
        world.emit(Malformed(call.key, call.name, problem))
        return Report(refused(call, problem, world))
    return Proposal(call, world.redactor.text(plan))


async def propose(asked: Proposal, world: "World") -> Report:
    """Put the plan before the person; a yes changes the mode from the next call on, and not before it is recorded.
    Raises AuditError."""
    from runner.audit.records import Planned  # a terminal asks for its first key before any plan

    world.emit(PlanProposed(asked.call.key, asked.plan))
    began = time.monotonic()
    answer = await world.approver.leave_plan(asked.plan)
    into = answer.mode.value if isinstance(answer, Leave) and answer.mode in WAYS else None
    feedback = answer.feedback if isinstance(answer, Stay) else None
    said = Planned(asked.plan, into, world.approver.name, feedback, time.monotonic() - began)
    world.audit.planned(world.session, said)
    match answer:
        case Leave(mode) if mode in WAYS:
            world.steering.change({"mode": mode})
            world.journal.mode(mode)
            world.emit(Changed("mode", world.mode.value, mode.value, "the plan was accepted"))
            told = f"the user accepted the plan; the mode is now {mode.value}. Begin."
        case Leave(mode):
            raise ValueError(f"a plan cannot be left into {mode}")
        case Stay(feedback):
            world.emit(Answered(asked.call.key, False, feedback))
            told = "the user does not accept the plan yet; you are still in plan mode."
            told += f" They say: {world.redactor.text(feedback)}" if feedback else " Ask them what is missing."
    return Report(ToolResult(asked.call.of.id, (TextBlock(told),)))


def answered(text: str) -> PlanAnswer | None:
    """Parse a typed answer to the question that ends plan mode.

    The letter or the name of one of WAYS is a yes. An empty line, `n` and `no` are a no without a reason. Other words
    are a no with these words as its reason. Returns None for a number and for a yes that names no mode.
    """
    said = text.strip()
    names = [mode.value for mode in WAYS]
    if said in ("", "n", "no"):
        return Stay()
    if said.lower() in ("y", "yes"):
        return None
    if said in LETTERS:
        return Leave(LETTERS[said])
    if said.isnumeric():
        return None
    return Leave(Mode(said)) if said in names else Stay(said)


QUESTION = "begin? " + ", ".join(f"{letter} {mode.value}" for letter, mode in LETTERS.items())
