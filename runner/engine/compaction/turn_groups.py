"""Groups of messages that must stay together: a message of the user, or one of the model with the results of its
calls."""

from collections.abc import Sequence

from runner.engine.context.tokens import weight_of
from runner.messages import Message, ToolMessage


def start(messages: Sequence[Message], at: int) -> int:
    """Return `at`, limited to the range of `messages`, or the start of the group that `at` lies in."""
    at = min(max(at, 0), len(messages))
    while 0 < at < len(messages) and isinstance(messages[at], ToolMessage):
        at -= 1
    return at


def kept_from(messages: Sequence[Message], room: float) -> int:
    """Return the start of the last groups that together have at most `room` tokens. The last group is always
    included."""
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
