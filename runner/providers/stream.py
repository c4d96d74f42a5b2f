"""Stream of one answer: requests go out by a connection, stream events and at last a Reply come back."""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace

from runner.messages import ProviderError, Reply, ReplyPiece, Request, StreamEvent, Usage
from runner.providers.connection import ProviderConnection, SseEvent, WireRequest, key_adder
from runner.providers.endpoint import Endpoint, Timeouts
from runner.providers.failures import ErrorReason, Failures, reason_of
from runner.secrets.resolve import FoundKey
from runner.secrets.secret import Secret
from runner.text.model_text import Json, parse_object


def tools_json(request: Request, schema: str) -> list[Json]:
    """Return the tools of `request` as objects whose JSON Schema has the key `schema`."""
    return [{"name": each.name, "description": each.description, schema: each.schema} for each in request.tools]


class AnswerParser(ABC):
    """Parser of one event stream, which accumulates the answer.

    Attributes:
        finished: True if the server has told why the answer ended, so that a broken connection loses no content.
    """

    finished = False

    def __init__(self, failures: Failures, model: str) -> None:
        self._failures = failures
        self._model = model
        self._usage = Usage()

    def is_last(self, event: SseEvent) -> bool:
        """Return True for the last event of the stream. Some servers send none and close the connection."""
        return event.data.strip() == "[DONE]"

    @abstractmethod
    def take(self, event: SseEvent) -> Iterator[ReplyPiece]:
        """Yield the parts of the answer that `event` completes. Raise ProviderError if the event is malformed.

        Unknown events, parts and fields are ignored, as the APIs require of clients.
        """

    @abstractmethod
    def reply(self) -> Reply:
        """Return the whole answer. Raise ProviderError if the stream ended early."""

    def _object(self, event: SseEvent) -> Json:
        content = parse_object(event.data)
        if content is None:
            raise self._failures.malformed("an event in it is not JSON")
        return content

    def _coded_error(self, error: object, known: Mapping[str, int]) -> ProviderError:
        """Return the error for an error object, or text, whose code is an HTTP status or a word in `known`."""
        reason = reason_of(error) if isinstance(error, dict) else ErrorReason(error if isinstance(error, str) else "")
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else reason.status(known)
        return self._failures.status(status, reason, self._model, late=True)


class HttpProvider(ABC):
    """Provider behind one HTTP connection. A subclass translates between messages and the wire format.

    Attributes:
        name: name of the provider in `provider:model`.
        parser: class of the parsers of its answers.
        key_header: header that contains the key, and the text before the key.
        headers: further headers of every request.
        refused_feature: pattern of the error message of a server that refuses the optional feature of the requests.
        reduced: True after such an error; requests then do without the feature.
    """

    name: str
    parser: type[AnswerParser]
    key_header = ("authorization", "Bearer ")
    headers: tuple[tuple[str, str], ...] = ()
    refused_feature: re.Pattern[str] | None = None
    reduced = False

    def __init__(
        self,
        endpoint: Endpoint,
        secret: Secret | None,
        timeouts: Timeouts | None = None,
        *,
        name: str = "",
        found: FoundKey | None = None,
    ) -> None:
        """`name` replaces the name of the class, for a server of others with the same API. `found` is `secret` with its
        source, which errors name.
        """
        self.name = name or self.name
        self._failures = Failures(self.name, endpoint, secret, timeouts or Timeouts(), found)
        self._auth = key_adder(*self.key_header, secret) if secret else None
        self._connection = ProviderConnection(self._failures, self.path(endpoint), self._auth, dict(self.headers))

    @property
    def who(self) -> str:
        """Return the name of the provider or of its server, as errors give it."""
        return self._failures.who

    @abstractmethod
    def path(self, endpoint: Endpoint) -> str:
        """Return the path of requests below `endpoint`."""

    @abstractmethod
    def wire_request(self, request: Request) -> WireRequest:
        """Return `request` in the wire format."""

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Yield text, thinking and calls as they arrive, then the Reply. Closing the generator closes the connection.

        Raise ProviderError without the stack frames that it passed: their variables hold text of the server, which may
        contain the key that was sent, and some tools print the variables of every frame.
        """
        try:
            async with aclosing(self._attempts(request)) as events:
                async for event in events:
                    yield event
            return
        except ProviderError as error:
            failure = error.with_traceback(None)
        raise failure

    def models_path(self, endpoint: Endpoint) -> str:
        """Return the path of the list of models below `endpoint`."""
        return "models"

    async def models(self, timeouts: Timeouts) -> bytes:
        """Return the server's list of models as JSON text. Raise ProviderError.

        The request has a connection of its own, so it may run in another event loop than the requests of `stream`.
        """
        failures = replace(self._failures, timeouts=timeouts)
        path = self.models_path(failures.endpoint)
        connection = ProviderConnection(failures, path, self._auth, dict(self.headers))
        try:
            return await connection.document()
        except ProviderError as error:
            failure = error.with_traceback(None)
        finally:
            await connection.close()
        raise failure

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _attempts(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Send the request. If the server refuses a feature before the answer begins, send it once more without that
        feature.
        """
        begun = False
        while True:
            parser = self.parser(self._failures, request.model)
            try:
                async with aclosing(self._connection.events(self.wire_request(request), parser.is_last)) as events:
                    async for event in events:
                        for piece in parser.take(event):
                            begun = True
                            yield piece
            except ProviderError as error:
                if not parser.finished:
                    feature = self.refused_feature
                    if begun or self.reduced or error.status != 400 or feature is None:
                        raise
                    if not feature.search(error.server_message):
                        raise
                    self.reduced = True
                    continue
            yield parser.reply()
            return
