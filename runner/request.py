"""What a model is sent: the system prompt, the conversation as it is shown, and the tools."""

from collections.abc import Sequence

from runner.context.context import tool_specs
from runner.messages import Message, Request
from runner.world import World


def request_of(sent: Sequence[Message], world: World, most: int) -> Request:
    """A request for an answer of `most` tokens at most to `sent`. The gauge learns what it holds beside that."""
    request = Request(
        model=world.model,
        system=world.context.system(world),
        messages=world.context.told(sent),
        tools=tool_specs(world),
        max_tokens=most,
        thinking=world.thinking,
    )
    world.gauge.fixed(request.system + world.context.before, request.tools)
    return request
