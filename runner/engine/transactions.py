"""Commands of a session that run as transactions: on a layer, whose changes are judged before they are applied."""

from policy.model.verdict import Permit
from runner.changes.transaction.transaction import Transaction
from runner.changes.undo.conclude import Concluded, conclude
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Planned
from runner.events import Notice
from runner.text.phrases import os_reason
from sandbox.workspace.layer import ChangeLayer


class CommandTransaction:
    """The transaction of one command.

    Attributes:
        result: The result of the transaction, empty before `conclude`.
    """

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
        ctx, later = self._ctx, None
        assert ctx.undo is not None  # `open_transaction` checked it
        if ctx.flow is not None and ctx.flow.untrusted:
            from runner.engine.held_changes import held_in_layer  # only after untrusted text was read

            later = held_in_layer(self._permit, self._planned, ctx, self.layer.upper)
        self.result = conclude(ctx.undo, self._transaction, self._permit, self._words, self._planned.call.key, later)
        if (problem := self.result.problem) is not None:
            ctx.emit(Notice(f"{problem.what}: {problem.why}; {problem.fix}"))
        return self.result


async def open_transaction(permit: Permit, planned: Planned, words: str, ctx: RunContext) -> CommandTransaction | None:
    """Return the transaction for a command, or None if the command must run on the workspace itself."""
    folder = ctx.undo.transactions(permit) if ctx.undo is not None else None
    if folder is None or await ctx.sandbox.layered(permit.terms, str(folder)):
        return None
    try:
        transaction = Transaction(folder.parent, permit.terms.workspace)
    except OSError as error:
        ctx.emit(Notice(f"this command runs without a transaction: {os_reason(error)}"))
        return None
    return CommandTransaction(transaction, permit, planned, words, ctx)
