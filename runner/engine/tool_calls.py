"""Tool calls of a model, from their arguments to a judged action."""

import json
from typing import TYPE_CHECKING

from policy.model.action import Action
from policy.model.frozen import dataclass
from policy.model.tier import Tier
from policy.model.verdict import Allow, Problem
from runner.engine.run_context import RunContext
from runner.messages import ToolCall
from tools.arguments import parse
from tools.tool import Tool, find

if TYPE_CHECKING:
    from runner.engine.authorize import EarlyAnswer, Evaluation

_LONGEST_NAME = 200  # characters


def bounded(name: str) -> str:
    """Return the name of a tool as the model wrote it, shortened. No tool has a longer name."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a session.

    Attributes:
        key: The unique key of the call in the session. The id of the provider may repeat.
        of: The call as the provider sent it.
    """

    key: str
    of: ToolCall

    @property
    def name(self) -> str:
        """Return the name of the called tool for events and records."""
        return bounded(self.of.name)


@dataclass(frozen=True, slots=True)
class Planned:
    """A call with the action that `tool` planned. The tool renders the outcome for the model."""

    call: ModelCall
    tool: Tool
    action: Action


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one planned call, before a user is asked.

    Attributes:
        planned: The planned call.
        evaluation: The verdict on its action.
        model: The model that made the call, as `provider:model`.
        early: The answer that the user gave before the call was due, or None.
    """

    planned: Planned
    evaluation: "Evaluation"
    model: str
    early: "EarlyAnswer | None" = None

    @property
    def only_reads(self) -> bool:
        """Return True if the action is allowed and cannot change what another call sees. Such calls may run at once."""
        evaluation = self.evaluation
        return isinstance(evaluation.verdict, Allow) and evaluation.assessment.tiers == (Tier.READ,)


def plan(call: ModelCall, ctx: RunContext) -> Planned | Problem:
    """Return the action that `call` asks for, or the problem: an unknown tool, broken JSON, or unfit arguments."""
    tool = find(ctx.tools, call.name)
    if isinstance(tool, Problem):
        return tool
    arguments = parse(tool, call.of.arguments, call.of.raw)
    if isinstance(arguments, Problem):
        return arguments
    action = tool.plan(arguments, ctx.cwd, ctx.seen)
    return action if isinstance(action, Problem) else Planned(call, tool, action)


def raw_arguments(call: ModelCall) -> str:
    """Return the arguments as the model sent them, for the record."""
    return call.of.raw or json.dumps(call.of.arguments, default=str)
