"""Commands of a session that run as transactions: on a layer, whose changes are judged before they are applied."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from policy.model.verdict import Permit
from runner.changes.transaction.judge import Judged
from runner.changes.transaction.transaction import Transaction, open_transaction
from runner.changes.undo.conclude import Concluded, conclude
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Planned
from runner.events import Notice
from runner.text.phrases import os_reason
from sandbox.workspace.layer import ChangeLayer

if TYPE_CHECKING:
    from sandbox.backend import Outcome


class CommandTransaction:
    """The transaction of one command.

    Attributes:
        result: The result of the transaction, empty before `conclude`.
        ran: The outcome of a command that has run already, or None.
        tried: How much the user kept of a try, `whole` or `part`; empty for other transactions.
        signs: True if the command can get signatures.
    """

    ran: "Outcome | None" = None
    tried = ""
    signs = True

    def __init__(self, transaction: Transaction, permit: Permit, planned: Planned, words: str, ctx: RunContext) -> None:
        self._transaction, self._permit, self._planned = transaction, permit, planned
        self._words, self._ctx = words, ctx
        self.result = Concluded()

    @property
    def layer(self) -> ChangeLayer:
        return self._transaction.layer

    def conclude(self) -> Concluded:
        """Judge and apply the changes of the command, which has ended. A failure is reported, and then nothing was
        applied.
        """
        ctx = self._ctx
        assert ctx.undo is not None  # `transaction_for` checked it
        key, later = self._planned.call.key, self._trusted_later()
        self.result = conclude(
            ctx.undo, self._transaction, self._permit, self._words, key, later, choose=self.choose, tried=self.tried
        )
        if (problem := self.result.problem) is not None:
            ctx.emit(Notice(f"{problem.what}: {problem.why}; {problem.fix}"))
        return self.result

    def choose(self, judged: Judged) -> Judged:
        """Return what is applied of the judged changes. Raise LayerUnreadable: then nothing is."""
        return judged

    def _trusted_later(self) -> Callable[[str], str] | None:
        """Return the function that tells as what a changed file is trusted later; None if no file is held back."""
        ctx = self._ctx
        if ctx.flow is None or not ctx.flow.untrusted:
            return None
        from runner.engine.held_changes import held_in_layer  # only after untrusted text was read

        return held_in_layer(self._permit, self._planned, ctx, self.layer.upper)


async def transaction_for(permit: Permit, planned: Planned, words: str, ctx: RunContext) -> CommandTransaction | None:
    """Return the transaction for a command, or None if the command must run on the workspace itself."""
    state = ctx.undo.transactions(permit) if ctx.undo is not None else None
    if state is None:
        return None
    try:
        transaction = await open_transaction(state, permit.terms, ctx.sandbox)
    except OSError as error:
        ctx.emit(Notice(f"this command runs without a transaction: {os_reason(error)}"))
        return None
    return None if isinstance(transaction, str) else CommandTransaction(transaction, permit, planned, words, ctx)
