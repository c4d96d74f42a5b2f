"""The interface through which the engine reaches the sub-agents of a session."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from policy.model.verdict import Permit
    from sandbox.backend import Outcome


class AgentAccess(Protocol):
    """The sub-agents of one session. `runner.children.session_agents.SessionAgents` implements it."""

    @property
    def working(self) -> bool:
        """Return True while a sub-agent works."""
        ...

    async def perform(self, permit: "Permit", agent: str) -> "Outcome":
        """Start a sub-agent of `agent`, or do with one what `permit` allows.

        A sub-agent that cannot be started is a Problem of the outcome.
        """
        ...

    def note(self, agent: str) -> str:
        """Return the note for `agent` about its sub-agents that have ended since the last note; empty if none has."""
        ...
