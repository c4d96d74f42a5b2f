"""The limits of a sub-agent, which hold in addition to everything that holds for the agent that started it."""

from functools import lru_cache

from policy.model.assessment import RuleKind, RuleRef
from policy.model.frozen import dataclass
from policy.model.profile import REST, Layer, PermissionRule, Tool
from policy.model.tier import Mode, Ruling


@dataclass(frozen=True, slots=True)
class AgentLimit:
    """The limit of one agent. A sub-agent has its own limit and those of all agents above it, so its rights are an
    intersection: no list of limits is looser than a part of the list.

    Attributes:
        agent: the agent that the limit belongs to.
        mode: the mode whose column of the matrix must permit an action, or None for no further mode.
        read_only: True if no action may change a file, in the workspace or outside.
        hosts: host patterns of all hosts that may be contacted, in the form of a rule; None for all hosts that the gate
            permits.
        denied: patterns of commands that are denied, in the form of `run` in a rule: `git push **`.
        asked: patterns of commands that are a question.
        source: the file that states the limit, for refusals; empty for an agent that comes with the program.
    """

    agent: str
    mode: Mode | None = None
    read_only: bool = False
    hosts: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    source: str = ""

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """Return the patterns of commands as rules."""
        return _rules(self)


@lru_cache(maxsize=256)
def _rules(limit: AgentLimit) -> tuple[PermissionRule, ...]:
    ref = RuleRef(RuleKind.USER, limit.source or f"agent {limit.agent}")
    found = []
    for verdict, patterns in ((Ruling.DENY, limit.denied), (Ruling.ASK, limit.asked)):
        for pattern in patterns:
            words = pattern.split()
            more = words[-1:] == [REST]
            run = tuple((word,) for word in (words[:-1] if more else words))
            more = more and bool(run)
            why = f"the definition of the agent `{limit.agent}` restricts `{pattern}`"
            tool = () if run else (Tool.BASH.value,)  # `**` alone is every command
            found.append(PermissionRule(verdict, ref, Layer.TRUSTED, run=run, more=more, tool=tool, why=why))
    return tuple(found)
