"""A provider that answers with lists of stream events, and the parts of such answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from policy.model.verdict import Problem
from runner.events import Event, ModelText
from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Failure,
    ProviderError,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    Usage,
)
from tests.support.loop_harness import FakeSandbox, Make, busy, stage  # noqa: F401  # the fixture

Wait = Callable[[], Awaitable[object]]


Item = StreamEvent | ProviderError | Wait


class Plays:
    """A provider that answers each request with the next list; then it says that it is done."""

    name = "plays"

    def __init__(self, *answers: Sequence[Item]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        try:
            for item in self.answers.pop(0) if self.answers else says("done"):
                if isinstance(item, ProviderError):
                    raise item
                if callable(item):
                    await item()
                    continue
                yield item
                await asyncio.sleep(0)
        finally:
            self.closed += 1

    async def close(self) -> None:
        return None


def ls(name: str, id: str = "") -> ToolCall:
    return ToolCall(id or f"id-{name}", "bash", {"command": name})


def says(text: str, *calls: ToolCall, stop: Stop | None = None, usage: Usage | None = None) -> list[Item]:
    """A whole answer."""
    content = (*((TextBlock(text),) if text else ()), *calls)
    whole = Reply(
        AssistantMessage(content), stop or (Stop.TOOLS if calls else Stop.END), usage if usage is not None else Usage()
    )
    return [*([TextDelta(text)] if text else []), *writes(*calls), whole]


def writes(*calls: ToolCall) -> list[Item]:
    return [each for call in calls for each in (CallOpened(call.name), CallReady(call))]


def shown(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ModelText))


def fatal() -> ProviderError:
    return ProviderError(Problem("the key is wrong", "401", "another"), failure=Failure.AUTH)
