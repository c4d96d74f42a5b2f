"""How full the window is, as the event that says so."""

from collections.abc import Sequence

from runner.events import ContextUsed
from runner.messages import Message, Reply
from runner.world import World


def after(reply: Reply, sent: Sequence[Message], world: World, cost: float | None) -> ContextUsed:
    """A reply to a request with `sent` came; `cost` is the run's so far. From here on the gauge knows."""
    world.gauge.answered(reply.usage, sent, reply.message)
    return now((*sent, reply.message), world, cost)


def now(messages: Sequence[Message], world: World, cost: float | None = None) -> ContextUsed:
    """How full it is with `messages`."""
    size = world.gauge.size(messages)
    return ContextUsed(size.tokens, world.view.window(world), size.exact, cost)
