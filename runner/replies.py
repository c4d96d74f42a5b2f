"""One answer of the model, streamed; asked for again when the provider says that waiting may help."""

import asyncio

from policy.verdict import Problem
from runner.context.context import tool_specs
from runner.events import CallBegun, Notice, Said, Thought
from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Failure,
    Message,
    ProviderError,
    Reply,
    Request,
    TextBlock,
    TextDelta,
    ThinkingDelta,
)
from runner.world import World


async def reply_to(messages: list[Message], world: World, most: int) -> Reply:
    """Stream one reply of `most` tokens at most. Raises ProviderError. When cancelled, what the model had said so far
    joins `messages`, the whole history; sent is what `world.view` shows of it."""
    request = Request(
        model=world.model,
        system=world.context.system(world),
        messages=world.context.told(world.view.shown(messages)),
        tools=tool_specs(world),
        max_tokens=most,
        thinking=world.thinking,
    )
    world.gauge.fixed(request.system + world.context.before, request.tools)
    pauses = iter(world.bounds.pauses)
    while True:
        said: list[str] = []
        try:
            return await _stream(request, world, said)
        except ProviderError as error:
            pause = next(pauses, None)
            if pause is None or said or not error.retryable:  # what was shown cannot be taken back, so no second try
                raise
            world.emit(Notice(f"{error.problem.what}; asking again in {pause:g} s"))
            await asyncio.sleep(pause)
        except asyncio.CancelledError:
            text = "".join(said)
            if text.strip():
                stopped = AssistantMessage((TextBlock(f"{text}\n[stopped by the user]"),))
                messages.append(stopped)
                world.journal.message(stopped)
            raise


async def _stream(request: Request, world: World, said: list[str]) -> Reply:
    reply: Reply | None = None
    async for event in world.provider.stream(request):
        match event:
            case TextDelta(text):
                said.append(text)
                world.emit(Said(text))
            case ThinkingDelta(text):
                world.emit(Thought(text))
            case CallOpened(tool):
                world.emit(CallBegun(tool))
            case CallReady():
                pass
            case Reply():
                reply = event
    if reply is None:
        why = "the stream ended before the answer did"
        problem = Problem(
            f"`{world.provider.name}` broke off its answer", why, "run it again; nothing half-done was kept"
        )
        raise ProviderError(problem, failure=Failure.RETRYABLE)
    return reply
