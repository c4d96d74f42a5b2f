"""The transport HTTP+SSE of servers of before 2025-03, behind the interface of streamable HTTP.

Such a server sends all messages in one stream of events, whose first event names the address for POST requests. Each
POST of the client gets an answer here that contains the events up to the result of that request. A message that no
request waits for goes to the standing stream, which the client opens by GET.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import httpx2

from policy.model.verdict import Problem
from runner.web.pinned_http import (
    EVENTS,
    MESSAGE,
    AnswerBounds,
    BrokenAnswer,
    RemoteRefused,
    error_answer,
    origin_of,
    shown,
    whole,
)

_ENDPOINT = 30.0  # seconds until the server names the address for requests
_WAITING = 256  # messages that wait for one reader
_SERVER = "report this to the operator of the server"

Exchange = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


class OldServer:
    """One server with the transport HTTP+SSE. `answered` sends a request with the headers and the token."""

    def __init__(self, url: httpx2.URL, answered: Exchange, bounds: AnswerBounds) -> None:
        self._url, self._answered, self._bounds = url, answered, bounds
        self._endpoint: asyncio.Future[httpx2.URL] | None = None
        self._opening = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._stream: httpx2.Response | None = None
        self._waiting: dict[str | int, asyncio.Queue[str | None]] = {}
        self._others: asyncio.Queue[str | None] = asyncio.Queue()
        self._broken: Problem | None = None

    async def open(self) -> None:
        """Open the stream of the server and wait for its address for requests. Raises RemoteRefused."""
        async with self._opening:
            if self._endpoint is None:
                await self._open()

    async def _open(self) -> None:
        request = httpx2.Request("GET", self._url, headers={"Accept": EVENTS, "Cache-Control": "no-store"})
        response = await self._answered(request)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != 200 or kind != EVENTS:
            await response.aclose()
            what = f"{shown(self._url)} is not a server of this protocol"
            why = f"it answers POST with an error, and GET with status {response.status_code} and without events"
            raise RemoteRefused(Problem(what, why, "check `url`"))
        self._stream = response
        self._endpoint = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(response))
        try:
            with anyio.fail_after(_ENDPOINT):
                await asyncio.shield(self._endpoint)
        except TimeoutError:
            what = f"{shown(self._url)} does not name the address for requests"
            problem = Problem(what, f"no event `endpoint` came within {_ENDPOINT:g} seconds", _SERVER)
            self._fail(problem)
            raise RemoteRefused(problem) from None

    async def exchange(self, request: httpx2.Request, message: dict[str, object]) -> httpx2.Response:
        """Return the answer to one request of the client. Raises RemoteRefused."""
        if request.method == "DELETE":
            await self.aclose()
            return httpx2.Response(200, request=request)
        if message.get("method") == "server/discover":
            return httpx2.Response(404, request=request)  # such a server knows `initialize` only
        await self.open()
        if request.method == "GET":
            return self._events(request, self._others, None)
        number = message.get("id")
        waits = "method" in message and isinstance(number, str | int)
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        if waits:
            self._waiting[number] = queue  # type: ignore[index]  # `waits` says that it is a number or text
        assert self._endpoint is not None
        sent = httpx2.Request("POST", await self._endpoint, headers=request.headers, content=request.content)
        try:
            if self._broken is not None:
                raise RemoteRefused(self._broken)
            response = await self._answered(sent)
            await whole(response)
        except BaseException:
            self._forget(number)
            raise
        if not 200 <= response.status_code < 300:
            self._forget(number)
            return error_answer(request, f"the server refused the message with status {response.status_code}")
        if not waits:
            return httpx2.Response(202, request=request)
        return self._events(request, queue, number)

    def _events(self, request: httpx2.Request, queue: asyncio.Queue[str | None], number: object) -> httpx2.Response:
        headers = {"content-type": EVENTS}
        if _method_of(request) == "initialize":
            headers["mcp-session-id"] = "http+sse"  # the client opens the standing stream only for a session
        stream = _QueuedEvents(queue, lambda: self._forget(number), None if queue is self._others else self._bounds)
        return httpx2.Response(200, headers=headers, stream=stream, request=request)

    def _forget(self, number: object) -> None:
        if isinstance(number, str | int):
            self._waiting.pop(number, None)

    async def _read(self, response: httpx2.Response) -> None:
        try:
            async for event in httpx2.EventSource(response, max_event_size=MESSAGE):
                if event.event == "endpoint":
                    self._named(event.data)
                elif event.event == "message" and event.data:
                    self._deliver(event.data)
            raise RemoteRefused(Problem("the server closed its stream", "it sends no more answers", "connect again"))
        except (RemoteRefused, BrokenAnswer) as error:
            self._fail(error.problem)
        except httpx2.HTTPError as error:
            self._fail(Problem("the stream of the server broke", str(error), _SERVER))

    def _fail(self, problem: Problem) -> None:
        self._broken = problem
        if self._endpoint is not None and not self._endpoint.done():
            self._endpoint.set_exception(RemoteRefused(problem))
        for number, queue in self._waiting.items():
            error = {"code": -32000, "message": f"{problem.what}: {problem.why}"}
            queue.put_nowait(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))
            queue.put_nowait(None)
        self._others.put_nowait(None)

    def _named(self, text: str) -> None:
        assert self._endpoint is not None
        if self._endpoint.done():
            raise RemoteRefused(Problem("the server names a second address for requests", "one is allowed", _SERVER))
        try:
            target = self._url.join(text.strip())
        except httpx2.InvalidURL:
            raise RemoteRefused(Problem("the server names an invalid address for requests", "", _SERVER)) from None
        if target.userinfo or origin_of(target) != origin_of(self._url):
            what = f"the server names the address {shown(target)} for requests"
            raise RemoteRefused(Problem(what, "it is another origin, which gets no message", _SERVER))
        self._endpoint.set_result(target)

    def _deliver(self, data: str) -> None:
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise RemoteRefused(
                Problem("the server sends an event that is no message", "it is not JSON", _SERVER)
            ) from None
        if not isinstance(message, dict):
            raise RemoteRefused(Problem("the server sends an event that is no message", "it is no object", _SERVER))
        number = message.get("id")
        if "method" not in message:
            queue = self._waiting.get(number) if isinstance(number, str | int) else None
            if queue is None:
                return  # the answer of a call that was given up, or of no call at all
        else:
            queue = next(iter(self._waiting.values()), self._others)
        if queue.qsize() >= _WAITING:
            problem = Problem("the server sends messages faster than they are read", f"{_WAITING} wait", _SERVER)
            raise RemoteRefused(problem)
        queue.put_nowait(data)

    async def aclose(self) -> None:
        """Close the stream of the server."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
        if self._stream is not None:
            await self._stream.aclose()
        self._fail(Problem("the connection was closed", "the session ends", "connect again"))


class _QueuedEvents(httpx2.AsyncByteStream):
    """An answer that consists of the messages of one queue, until the client closes it or the server ends.

    Without `bounds` it waits for messages without a limit of time.
    """

    def __init__(
        self, queue: "asyncio.Queue[str | None]", closed: Callable[[], None], bounds: AnswerBounds | None
    ) -> None:
        self._queue, self._closed, self._bounds = queue, closed, bounds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        last = time.monotonic() + (self._bounds.longest if self._bounds else 0)
        idle = self._bounds.idle if self._bounds else 0.0
        while True:
            left = max(0.0, min(idle, last - time.monotonic())) if self._bounds else None
            try:
                with anyio.fail_after(left):
                    data = await self._queue.get()
            except TimeoutError:
                why = "the limit of time was reached"
                raise BrokenAnswer(Problem("the server did not complete its answer in time", why, _SERVER)) from None
            if data is None:
                return
            if self._bounds and "elicitation/create" in data:  # the user is asked, and thinks
                idle = self._bounds.longest
            yield ("event: message\n" + "".join(f"data: {line}\n" for line in data.split("\n")) + "\n").encode()

    async def aclose(self) -> None:
        self._closed()


def _method_of(request: httpx2.Request) -> object:
    if request.method != "POST":
        return None
    with contextlib.suppress(ValueError):
        message = json.loads(request.content)
        return message.get("method") if isinstance(message, dict) else None
    return None
