"""The use of the model's context window, as an event."""

from collections.abc import Sequence

from runner.engine.context.tokens import ContextMeter
from runner.events import ContextUsed
from runner.messages import Message, Reply


def after(
    reply: Reply, sent: Sequence[Message], gauge: ContextMeter, window: int | None, cost: float | None
) -> ContextUsed:
    """Let `gauge` learn from the reply to a request with `sent`, and return the use of the window from then on.

    `window` is the size of the window in tokens, and `cost` is the cost of the run so far; None if unknown.
    """
    gauge.answered(reply.usage, sent, reply.message)
    return now((*sent, reply.message), gauge, window, cost)


def now(messages: Sequence[Message], gauge: ContextMeter, window: int | None, cost: float | None = None) -> ContextUsed:
    """Return the use of a window of `window` tokens by `messages`."""
    size = gauge.size(messages)
    return ContextUsed(size.tokens, window, size.exact, cost)
