"""A provider that writes the summaries of compaction."""

import asyncio
from collections.abc import AsyncIterator

from runner.messages import (
    AssistantMessage,
    ProviderError,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    Usage,
    UserMessage,
)

MARK = "the tests failed in tests/test_paint.py"


USED = Usage(900, 90)


class SummaryProvider:
    """A provider that answers each request with the next of `answers`, then with the last for ever; or raises it. An
    event is set, and then nothing comes."""

    def __init__(self, *answers: str | ProviderError | asyncio.Event, name: str = "clerk") -> None:
        self.answers = list(answers) or [f"## What was learned\n{MARK}"]
        self.name = name
        self.requests: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        try:
            if isinstance(answer, ProviderError):
                raise answer
            if isinstance(answer, asyncio.Event):
                answer.set()
                await asyncio.Event().wait()
            assert isinstance(answer, str)
            yield Reply(AssistantMessage((TextBlock(answer),)), Stop.END, USED)
        finally:
            self.closed += 1

    async def close(self) -> None:
        return None

    @property
    def asked(self) -> str:
        """Return the text of the last request."""
        return "".join(block.text for message in self.requests[-1].messages for block in message.content)  # type: ignore[union-attr]  # a person's texts


def user_message(text: str) -> UserMessage:
    return UserMessage((TextBlock(text),))
