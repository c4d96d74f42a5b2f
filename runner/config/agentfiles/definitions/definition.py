"""The definition of one kind of sub-agent."""

import re
from enum import StrEnum

from policy.model.agent_limit import AgentLimit
from policy.model.frozen import dataclass
from policy.model.tier import Mode

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
LONGEST = 64 << 10  # bytes of a file
LONGEST_DESCRIPTION = 1024  # characters
WORKTREE = "worktree"


class AgentOwner(StrEnum):
    """The author of a definition."""

    PROGRAM = "ringfence"
    USER = "user"
    BUNDLE = "bundle"
    REPOSITORY = "repository"


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """One kind of sub-agent. Everything in it can only take rights away from those of the agent that starts it.

    Attributes:
        name: the name that the model and the user call.
        description: what the kind is for, as the model is told.
        prompt: the text that describes its work, in place of the program's own; empty for the program's own.
        owner: the author.
        source: the file, or `ringfence`.
        tools: patterns of the tools that it may use; empty for those of the agent that starts it.
        without: patterns of the tools that it may not use.
        mode: its mode, or None for that of the agent that starts it.
        read_only: True if it may change no file.
        hosts: the hosts that it may contact; None for all that the gate permits.
        denied: patterns of commands that it may not run.
        asked: patterns of commands about which the user is asked.
        model: its model as `provider:model`; empty for that of the agent that starts it.
        turns: the most requests to the model; 0 for the limit of the agent that starts it.
        isolation: `worktree` or empty.
        background: True if the agent that starts it does not wait for it.
        notices: what the file states that is not used, and why.
    """

    name: str
    description: str
    prompt: str = ""
    owner: AgentOwner = AgentOwner.PROGRAM
    source: str = "ringfence"
    tools: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    mode: Mode | None = None
    read_only: bool = False
    hosts: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    model: str = ""
    turns: int = 0
    isolation: str = ""
    background: bool = False
    notices: tuple[str, ...] = ()

    def limit(self, agent: str) -> AgentLimit:
        """Return the limit of the running agent `agent` of this kind."""
        source = "" if self.owner is AgentOwner.PROGRAM else self.source
        return AgentLimit(agent, self.mode, self.read_only, self.hosts, self.denied, self.asked, source)


@dataclass(frozen=True, slots=True)
class BrokenDefinition:
    """A file that defines no agent, with the reason: a phrase without its subject."""

    source: str
    why: str


_EXPLORE = """\
You search a code base for another agent. You read; you change nothing and run nothing that changes anything.
- Begin broad (`glob`, `grep`), then read the parts that matter. Ask for several reads at once.
- Answer the question that was asked. Name files with line numbers, quote only what is needed, and say what you did not
  find or did not look at.
"""
_PLAN = """\
You plan a change for another agent. You read; you change nothing.
- Read the code that the change touches, its tests and its callers before you decide.
- Answer with a plan: the files to change and how, the order, the tests, the risks, and what is open. Name functions and
  line numbers. Prefer the smallest change that does the job.
"""

BUILT_IN: tuple[AgentDefinition, ...] = (
    AgentDefinition(
        "explore",
        "searches and reads the code base, and changes nothing. For questions such as where or how something is done.",
        _EXPLORE,
        mode=Mode.PLAN,
        tools=("read", "grep", "glob", "ls", "lsp", "bash", "tool_search"),
    ),
    AgentDefinition(
        "plan",
        "reads the code and works out a plan for a change, and changes nothing.",
        _PLAN,
        mode=Mode.PLAN,
        tools=("read", "grep", "glob", "ls", "lsp", "bash", "tool_search"),
    ),
    AgentDefinition("general", "does an independent piece of work with your tools and at most your rights."),
)
