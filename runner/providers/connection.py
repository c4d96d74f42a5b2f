"""HTTP connection to one provider: a POST request with the key in one header, answered by server-sent events.

Redirects are not followed, because they would carry the key elsewhere. The proxies of the environment are used, except
for servers on this machine: their traffic is not encrypted, so no proxy may see it.

Events are read by the rules of the WHATWG event-stream format. Chunks may end anywhere, also inside a character or
between CR and LF. An event that the stream does not finish with a blank line is never delivered, so a cut stream cannot
pass half an event as a whole one.
"""

import asyncio
import logging
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress

import httpx

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from runner.messages import ProviderError
from runner.providers.failures import Failures, reason_in, wait_of
from runner.secrets.secret import Secret
from runner.text.gunzip import Gunzip, PackedError, PackedTooLarge, layer_of
from runner.text.model_text import wire_json

ANSWER_LIMIT = 64 << 20  # bytes of one whole answer, packed and unpacked
ERROR_LIMIT = 64 << 10  # bytes of an error body that are read
DOCUMENT_LIMIT = 4 << 20  # bytes of a list of models that are read
ERROR_PATIENCE = deadline(10.0)  # seconds for an error body
DRAIN_PATIENCE = deadline(0.25)  # seconds for the end of a body after its last event; then the connection is closed

# THREAT: these loggers write response headers and reason phrases, where a server may echo the key it was sent.
_CHATTY = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks")


for _name in _CHATTY:
    logging.getLogger(_name).addFilter(lambda record: record.levelno >= logging.WARNING)


EVENT_LIMIT = 16 << 20  # bytes; a provider's events are a few hundred

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(Exception):
    """The error for an event that exceeds the limit: the sender is broken or hostile."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    event: str
    data: str


class SseParser:
    """Incremental parser. It keeps at most `limit` bytes of an incomplete event."""

    __slots__ = ("_after_cr", "_data", "_event", "_first", "_limit", "_line", "_size")

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: list[str] = []
        self._event = ""
        self._size = 0  # bytes of the finished lines of the pending event
        self._first = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes, in order. Raises EventTooLarge."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF that the chunk boundary cut
        events: list[SseEvent] = []
        start = 0
        for end in _LINE_END.finditer(chunk):
            self._line += chunk[start : end.start()]
            start = end.end()
            self._check()
            if event := self._take_line():
                events.append(event)
        self._line += chunk[start:]
        self._check()
        if chunk.endswith(b"\r"):
            self._after_cr = True
        return events

    def _check(self) -> None:
        if self._size + len(self._line) > self._limit:
            raise EventTooLarge

    def _take_line(self) -> SseEvent | None:
        raw = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            raw = raw.removeprefix(_BOM)
        if not raw:
            return self._dispatch()
        self._size += len(raw) + 1
        field, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case _:  # a comment (empty field name), `id` and `retry`, which mean nothing to one request, or unknown
                pass
        return None

    def _dispatch(self) -> SseEvent | None:
        data, event = self._data, self._event
        self._data, self._event, self._size = [], "", 0
        return SseEvent(event or "message", "\n".join(data)) if data else None


KeyAdder = Callable[[httpx.Request], httpx.Request]


def key_adder(header: str, prefix: str, secret: Secret) -> KeyAdder:
    """Return the authentication that puts the key into its header at the moment of sending, so that no unsent request
    contains the key.
    """

    def add_key(request: httpx.Request) -> httpx.Request:
        request.headers[header] = prefix + secret.reveal()
        return request

    return add_key


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request to a model in its wire format.

    Attributes:
        model: name of the model, for error messages.
        body: JSON of the request.
        below: text that is appended to the URL.
        headers: headers of this request alone.
    """

    model: str
    body: Mapping[str, object]
    below: str = ""
    headers: Mapping[str, str] | None = None


class ProviderConnection:
    """A connection pool for one URL below an endpoint. Connections are kept and reused until `close`."""

    def __init__(self, failures: Failures, path: str, auth: KeyAdder | None, headers: Mapping[str, str]) -> None:
        self.failures = failures
        self._url = f"{failures.endpoint.url}/{path}"
        self._auth = auth
        self._headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "ringfence",
            **headers,
        }
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def events(self, request: WireRequest, last: Callable[[SseEvent], bool]) -> AsyncGenerator[SseEvent, None]:
        """Yield the events of one answer, up to the one that `last` recognizes or the end of the stream.

        Closing the generator or cancelling the task closes the connection. Raises ProviderError.
        """
        failure: ProviderError
        try:
            async with aclosing(self._exchange(request, last)) as events:
                async for event in events:
                    yield event
            return
        except (EventTooLarge, PackedTooLarge):
            failure = self.failures.malformed("it is larger than the limit for one answer")
        except PackedError as error:
            failure = self.failures.malformed(f"it {error}")
        except TimeoutError:
            failure = self.failures.overtime()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            failure = self.failures.transport(error)
        # Raised here, where no exception is being handled: a library's exception refers to the request, which contains
        # the key, so it must not become the context of the new exception.
        raise failure

    async def document(self) -> bytes:
        """Return the body of a GET request, at most DOCUMENT_LIMIT bytes. Raises ProviderError."""
        failure: ProviderError
        try:
            async with asyncio.timeout(self.failures.timeouts.total):
                headers = {**self._headers, "accept": "application/json"}
                get = self._open().build_request("GET", self._url, headers=headers)
                response = await self._open().send(get, stream=True, auth=self._auth, follow_redirects=False)
                try:
                    if 300 <= response.status_code < 400:
                        raise self.failures.redirect(response.status_code)
                    if response.status_code != 200:
                        reason = reason_in(await _start_of(response))
                        raise self.failures.status(response.status_code, reason, "", wait=None)
                    return await _start_of(response, DOCUMENT_LIMIT)
                finally:
                    await response.aclose()
        except TimeoutError:
            failure = self.failures.overtime()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            failure = self.failures.transport(error)
        raise failure  # outside of the handlers, as in `events`

    async def _exchange(self, request: WireRequest, last: Callable[[SseEvent], bool]) -> AsyncGenerator[SseEvent, None]:
        content = wire_json(request.body)
        client = self._open()
        deadline = asyncio.get_running_loop().time() + self.failures.timeouts.total
        headers = {**self._headers, **(request.headers or {})}
        post = client.build_request("POST", f"{self._url}{request.below}", content=content, headers=headers)
        async with asyncio.timeout_at(deadline):
            response = await client.send(post, stream=True, auth=self._auth, follow_redirects=False)
        try:
            await self._check(response, request.model)
            parser = SseParser()
            async with aclosing(_unpacked(response)) as chunks:
                while True:
                    async with asyncio.timeout_at(deadline):
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        return
                    for event in parser.feed(chunk):
                        yield event
                        if last(event):
                            await _drain(chunks)
                            return
        finally:
            await response.aclose()

    async def _check(self, response: httpx.Response, model: str) -> None:
        """Raise ProviderError unless `response` is an event stream."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code == 200 and kind in ("text/event-stream", ""):
            return
        if 300 <= response.status_code < 400:
            raise self.failures.redirect(response.status_code)
        body = await _start_of(response)
        if response.status_code == 200:
            raise self.failures.not_a_stream(kind, body, model)
        wait = wait_of(response.headers, time.time())
        raise self.failures.status(response.status_code, reason_in(body), model, wait=wait)

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            endpoint, timeouts = self.failures.endpoint, self.failures.timeouts
            # The messages of these exceptions may quote a proxy URL with its password, so they are dropped.
            with suppress(ImportError, ValueError, OSError, httpx.InvalidURL):
                self._client = httpx.AsyncClient(
                    # Loading the certificate store takes tens of milliseconds; plain http needs none, and gets a
                    # context without trusted certificates.
                    verify=httpx.create_ssl_context() if endpoint.secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                    timeout=httpx.Timeout(timeouts.read, connect=timeouts.connect, pool=timeouts.connect),
                    trust_env=not endpoint.loopback,
                    follow_redirects=False,
                )
        if self._client is None:
            raise self.failures.settings()
        return self._client


async def _unpacked(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield the body in pieces of at most 64 KiB, unpacked where it is packed once with gzip.

    httpx would unpack every layer of a piece at once, without a bound. Between the steps of one piece the event loop
    runs, so that timeouts and signals hold. Raises PackedError for another coding, damaged data or several layers, and
    PackedTooLarge when more than ANSWER_LIMIT bytes arrive or come out.
    """
    packed = layer_of(response.headers.get_list("content-encoding"))
    if packed is None:
        raise PackedError("is compressed with a method that was not requested")
    stream, received = Gunzip(ANSWER_LIMIT) if packed else None, 0
    async for raw in response.aiter_raw():
        received += len(raw)
        if received > ANSWER_LIMIT:
            raise PackedTooLarge("is too long")
        for piece in stream.feed(raw) if stream is not None else (raw,):
            yield piece
            await asyncio.sleep(0)


async def _start_of(response: httpx.Response, limit: int = ERROR_LIMIT) -> bytes:
    """Read up to `limit` bytes of a body. If unpacking fails, return the bytes before."""
    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_PATIENCE), aclosing(_unpacked(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= limit:
                    break
    except (httpx.HTTPError, httpx.StreamError, PackedError, TimeoutError):
        pass  # the status says what matters; the body only adds words to it
    return bytes(body[:limit])


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the rest of the body after the last event, so that the connection can serve the next request."""
    try:
        async with asyncio.timeout(DRAIN_PATIENCE):
            while await anext(chunks, None) is not None:
                pass
    except (httpx.HTTPError, PackedError, TimeoutError):
        pass  # the answer is complete; a connection that does not end cleanly is simply not reused
