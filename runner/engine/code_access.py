"""The interface through which the engine reaches the language servers of a session.

`ctx` is the RunContext of the acting agent, and `call` a ModelCall. A RunContext contains this interface, so that it
does not import their types.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from policy.model.action import EditFile, QueryCode, WriteFile
    from policy.model.verdict import Problem
    from sandbox.backend import Outcome


class EditWatch(Protocol):
    """The diagnostics of one file before an edit."""

    async def new_errors(self, ctx: Any) -> str:
        """Return the errors that the edit added as text for the model; empty if there are none, or they are not known
        within the time of the settings.
        """
        ...


class CodeAccess(Protocol):
    """The language servers of one session. `runner.lsp.session_servers.LanguageServers` implements it."""

    def known(self, action: "QueryCode", ctx: Any) -> "QueryCode | Problem":
        """Return the question, or the Problem that no server can answer it."""
        ...

    async def perform(self, action: "QueryCode", call: Any, ctx: Any) -> "Outcome":
        """Ask a language server, which is started if it does not run. The text of the outcome is for the model."""
        ...

    async def before_edit(self, action: "EditFile | WriteFile", ctx: Any) -> "EditWatch | None":
        """Return the diagnostics before an edit, or None if no running server knows them in time."""
        ...

    def files_changed(self, changed: "tuple[tuple[str, str], ...]") -> None:
        """Tell the running servers which files an action changed: pairs of a path and the kind of the change."""
        ...
