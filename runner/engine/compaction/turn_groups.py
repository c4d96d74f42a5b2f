"""The pieces of a conversation that are never torn: a person's message; a model's, with the results of its calls."""

from collections.abc import Sequence

from runner.engine.context.tokens import weight_of
from runner.messages import Message, ToolMessage


def start(messages: Sequence[Message], at: int) -> int:
    """`at`, or the beginning of the piece that it lies inside of; never outside of `messages`."""
    at = min(max(at, 0), len(messages))
    while 0 < at < len(messages) and isinstance(messages[at], ToolMessage):
        at -= 1
    return at


def kept_from(messages: Sequence[Message], room: float) -> int:
    """Where the last pieces begin that together have at most `room` tokens; the last one is always among them."""
    found = len(messages)
    held = 0.0
    for at in range(len(messages) - 1, -1, -1):
        held += weight_of(messages[at])
        if isinstance(messages[at], ToolMessage):
            continue
        if held > room and found < len(messages):
            break
        found = at
    return found
