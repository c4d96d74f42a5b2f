"""A tool call, from the model's words to a judged action."""

import json
from typing import TYPE_CHECKING

from policy.action import Action
from policy.assessment import Assessment
from policy.record import dataclass
from policy.tier import Tier
from policy.verdict import Allow, Problem, Verdict
from runner.messages import ToolCall
from runner.world import World
from tools.arguments import parse
from tools.tool import Tool, find

if TYPE_CHECKING:
    from runner.asking import Early
    from runner.audit.facts import Noting
    from runner.remembered import Recalled

_LONGEST_NAME = 200  # characters


def bounded(name: str) -> str:
    """The name of a tool as a model wrote it, of bounded length: a longer one is of no tool."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of this session. `key` is ours and unique; the id is the provider's and may repeat."""

    key: str
    of: ToolCall

    @property
    def name(self) -> str:
        """What the model called, as it stands in events and records."""
        return bounded(self.of.name)


@dataclass(frozen=True, slots=True)
class Planned:
    """A call that makes sense: `tool` planned `action` from it and will word its result."""

    call: Call
    tool: Tool
    action: Action


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the gate says of one planned call, before anybody was asked. `recalled`: what was answered before. `noted`:
    what was asked of the machine on the way. `early`: what a person answered before this call was due."""

    planned: Planned
    assessment: Assessment
    verdict: Verdict
    recalled: "Recalled"
    noted: "Noting"
    early: "Early | None" = None

    @property
    def only_reads(self) -> bool:
        """Allowed, and unable to change what another call sees: it may run beside its neighbours."""
        return isinstance(self.verdict, Allow) and self.assessment.tiers == (Tier.READ,)


def plan(call: Call, world: World) -> Planned | Problem:
    """What the call asks for, or why it asks for nothing: unknown tool, broken JSON, arguments that do not fit."""
    tool = find(world.tools, call.name)
    if isinstance(tool, Problem):
        return tool
    arguments = parse(tool, call.of.arguments, call.of.raw)
    if isinstance(arguments, Problem):
        return arguments
    action = tool.plan(arguments, world.cwd, world.seen)
    return action if isinstance(action, Problem) else Planned(call, tool, action)


def raw_arguments(call: Call) -> str:
    """The arguments as the model sent them, for the record."""
    return call.of.raw or json.dumps(call.of.arguments, default=str)
