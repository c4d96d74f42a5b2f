"""The preparation of the helper for writing commands while the model answers the prompt."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from policy.model.action import RunScript
from policy.model.verdict import Ask, Deny, ProblemError
from runner.engine.judge import evaluate_action
from runner.engine.run_context import RunContext

_AFTER = 0.05  # seconds: the request to the model is sent first
_USUAL = "echo > file"  # a command with the rights that most writing commands need


@contextlib.asynccontextmanager
async def helper_ahead(ctx: RunContext) -> AsyncIterator[None]:
    """Prepare the helper for the transactions of a session in the background, for the duration of the context.

    A helper that was started ends with the sandbox of the session. Without transactions nothing is done.
    """
    task = asyncio.create_task(_prepare(ctx))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


async def _prepare(ctx: RunContext) -> None:
    await asyncio.sleep(_AFTER)
    if ctx.undo is None:
        return
    verdict = evaluate_action(RunScript(_USUAL, ctx.cwd), ctx).verdict
    if isinstance(verdict, Deny):
        return
    terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
    if (state := ctx.undo.place_of_transactions(terms)) is None:
        return
    from runner.changes.transaction.place import made_folder_of
    from runner.changes.transaction.transaction import why_no_layer

    with contextlib.suppress(OSError, ProblemError):  # the command itself will tell of it
        if not await why_no_layer(state, terms, ctx.sandbox):
            ctx.sandbox.prepare(terms, str(made_folder_of(state, terms.workspace)))
