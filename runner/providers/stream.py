"""Stream of one answer: requests go out by a Connection, stream events and at last a Reply come back."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Protocol

from policy.model.frozen import dataclass
from runner.messages import (
    CallOpened,
    CallReady,
    ProviderError,
    Reply,
    Request,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)
from runner.providers.connection import Connection
from runner.providers.failures import unframed
from runner.providers.sse import SseEvent
from runner.text.model_text import wire_json

Piece = TextDelta | ThinkingDelta | CallOpened | CallReady


class AnswerParser(Protocol):
    """Parser of one event stream."""

    @property
    def finished(self) -> bool:
        """Return True if the server has told why the answer ended, so that a broken connection loses no content."""
        ...

    def take(self, event: SseEvent) -> Iterator[Piece]:
        """Yield the parts of the answer that `event` completes. Raise ProviderError if the event is malformed."""
        ...

    def reply(self) -> Reply:
        """Return the whole answer. Raise ProviderError if the stream ended early."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request as HTTP and the parser of its answer.

    Attributes:
        model: name of the model, for error messages.
        body: JSON of the request.
        parser: parser of the answer.
        last: returns True for the last event of the stream.
        below: text that is appended to the URL.
        headers: headers of this request alone.
    """

    model: str
    body: Mapping[str, object]
    parser: AnswerParser
    last: Callable[[SseEvent], bool]
    below: str = ""
    headers: Mapping[str, str] | None = None


async def events_to_reply(connection: Connection, exchange: Exchange) -> AsyncGenerator[StreamEvent, None]:
    """Send the request, yield the parts of the answer as they arrive, then the Reply. Raise ProviderError."""
    body, parser = wire_json(exchange.body), exchange.parser
    try:
        async with aclosing(
            connection.events(body, exchange.model, exchange.last, below=exchange.below, headers=exchange.headers)
        ) as events:
            async for event in events:
                for piece in parser.take(event):
                    yield piece
    except ProviderError:
        if not parser.finished:
            raise
    yield parser.reply()


class HttpProvider(ABC):
    """Provider behind one HTTP connection. A subclass translates between messages and the wire format.

    Attributes:
        name: name of the provider in `provider:model`.
    """

    name: str

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Yield text and thinking as they arrive, then the Reply. Closing the generator closes the connection.

        Raises ProviderError.
        """
        return unframed(self._attempts(request))

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    @abstractmethod
    def exchange(self, request: Request) -> Exchange:
        """Return `request` in the wire format and a new parser for the answer."""

    def retry_without(self, error: ProviderError) -> bool:
        """Return True, and leave a feature out of all later requests, if `error` refuses that feature."""
        return False

    async def _attempts(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Send the request. If the server refuses a feature before the answer begins, send it once more without that
        feature.
        """
        begun = False
        try:
            async with aclosing(events_to_reply(self._connection, self.exchange(request))) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ProviderError as error:
            if begun or not self.retry_without(error):
                raise
        async with aclosing(events_to_reply(self._connection, self.exchange(request))) as events:
            async for event in events:
                yield event
