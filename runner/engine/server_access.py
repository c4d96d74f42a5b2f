"""The interface through which the engine reaches the tool servers of a session."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from policy.model.verdict import Permit
    from sandbox.backend import Listener, Outcome


class ServerAccess(Protocol):
    """The tool servers of one session. `runner.mcp.servers.SessionServers` implements it."""

    async def introduction(self) -> str:
        """Wait until every server has started or failed, and return the instructions of the servers that were not
        returned before, marked as text of these servers; empty if there are none.

        A failed server is reported by a notice.
        """
        ...

    async def perform(self, permit: "Permit", listen: "Listener") -> "Outcome":
        """Make the call, or read the resource, that `permit` allows. `listen` is called with reports of progress.

        A server that fails is a Problem of the outcome.
        """
        ...
