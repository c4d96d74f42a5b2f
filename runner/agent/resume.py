"""The continuation of an earlier session: report what it was, and restore its conversation."""

from runner.agent.conversation import Conversation
from runner.engine.run_context import RunContext
from runner.events import Notice, Resumed
from runner.sessions.open import SessionTarget


def recall(beginning: SessionTarget | None, ctx: RunContext) -> Conversation:
    """Return the conversation that continues, after an event about the earlier session; a new one is empty."""
    before = beginning.past if beginning is not None else None
    if beginning is None or before is None:
        return Conversation(ctx, [])
    opening = ctx.opening()
    then_now = (
        ("workspace", before.workspace, opening.workspace),
        ("folder", before.cwd, ctx.cwd),
        ("mode", before.mode, ctx.live.mode.value),
        ("model", before.model, opening.model),
    )
    changes = [f"{what} was {then}, is {now}" for what, then, now in then_now if then and then != now]
    if before.workspace != opening.workspace:
        changes = [words for words in changes if not words.startswith("folder ")]  # that goes without saying
    if beginning.fork and before.grants:
        changes.append("what was allowed for the old session is not allowed here")
    ctx.emit(
        Resumed(
            session=before.session,
            forked=beginning.fork,
            began=before.began,
            until=before.until,
            prompts=before.prompts,
            turns=before.turns,
            first=before.first,
            last=before.last,
            said=before.said,
            changes=tuple(changes),
        )
    )
    for notice in before.notices:
        ctx.emit(Notice(notice))
    history = list(before.history)
    ctx.view.restore(before.folds, history)
    if (counted := before.counted) is not None and all(place <= counted.sent for place, _ in before.folds):
        ctx.gauge.answered(counted.usage, ctx.view.shown(history[: counted.sent]), counted.answer)
        if counted.model != opening.model:
            ctx.gauge.another()
    return Conversation(ctx, history, before.marks)
