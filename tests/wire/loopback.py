"""A real HTTP server on loopback for the provider tests that sends given bytes at given moments.

A reply is a sequence of steps: bytes (sent as they are), a number (seconds of silence), `CLOSE`, `RESET`, or `STALL`
(silence until the client leaves). Every byte that arrives is kept. Below the server: how the tests ask through it.
"""

import asyncio
import itertools
import json
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from runner.messages import Provider, Reply, Request, StreamEvent, TextBlock, UserMessage
from runner.providers.anthropic import AnthropicProvider
from runner.providers.endpoint import Timeouts, parse_endpoint
from runner.providers.gemini import GeminiProvider
from runner.providers.openai import OpenAiProvider
from runner.providers.responses import ResponsesProvider
from runner.secrets.secret import Secret

HERE = Path(__file__).parent


class Step(Enum):
    CLOSE = auto()
    RESET = auto()
    STALL = auto()


CLOSE, RESET, STALL = Step.CLOSE, Step.RESET, Step.STALL
Steps = Sequence["bytes | float | Step"]


@dataclass(frozen=True)
class Received:
    head: bytes
    body: bytes

    @property
    def lines(self) -> list[str]:
        return self.head.decode("latin-1").split("\r\n")

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Loopback:
    """Gives the replies in order, one per request, on however many connections the client uses."""

    replies: list[Steps]
    tls: ssl.SSLContext | None = None
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # a request has come
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client closed its side

    async def __aenter__(self) -> "Loopback":
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left; `left` says so
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self.left.set()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        self.requests.append(Received(head, await reader.readexactly(length)))
        self.asked.set()
        for step in self.replies.pop(0):
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case Step.CLOSE:
                    return False
                case Step.RESET:
                    plain = writer.get_extra_info("socket")
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return False
                case Step.STALL:
                    await reader.read()
                    return False
                case seconds:
                    await asyncio.sleep(seconds)
        return True


def head(status: str = "200 OK", kind: str | None = "text/event-stream; charset=utf-8", *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *([f"content-type: {kind}"] if kind else []), *more]
    return "\r\n".join([*lines, "", ""]).encode()


def chunked(body: bytes, cuts: Sequence[int] = ()) -> list[bytes]:
    """The body in HTTP chunks that end at `cuts`, and the end of the body."""
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(body)}), len(body)]
    parts = [body[start:end] for start, end in itertools.pairwise(places) if start < end]
    return [b"%x\r\n%s\r\n" % (len(part), part) for part in parts] + [b"0\r\n\r\n"]


def stream(body: bytes, cuts: Sequence[int] = ()) -> Steps:
    """A whole, well-formed event stream answer."""
    return [head("200 OK", "text/event-stream; charset=utf-8", "transfer-encoding: chunked"), *chunked(body, cuts)]


def whole(status: str, body: bytes, kind: str = "application/json", *more: str) -> Steps:
    """A whole answer of known length."""
    return [head(status, kind, f"content-length: {len(body)}", *more) + body]


def wire(name: str) -> bytes:
    return (HERE / f"{name}.sse").read_bytes()


def event_data(body: bytes) -> list[str]:
    """The data of each event, read in the simplest way there is: these files have one data line per event."""
    return [line.removeprefix(b"data: ").decode() for line in body.split(b"\n") if line.startswith(b"data: ")]


KEY = "sk-wire-0123456789"
QUICK = Timeouts(connect=20, read=20, total=60)
HELLO = Request("some-model", "", (UserMessage((TextBlock("hello"),)),), ())


def make(name: str, url: str, key: str | None = KEY, timeouts: Timeouts = QUICK) -> Provider:
    secret = Secret(key) if key else None
    match name:
        case "anthropic":
            return AnthropicProvider(parse_endpoint(url), secret, timeouts)
        case "gemini":
            return GeminiProvider(parse_endpoint(url), secret, timeouts)
        case "responses":
            return ResponsesProvider(parse_endpoint(f"{url}/v1"), secret, timeouts)
        case _:
            return OpenAiProvider(parse_endpoint(f"{url}/v1"), secret, timeouts)


async def ask(provider: Provider, request: Request = HELLO) -> list[StreamEvent]:
    return [event async for event in provider.stream(request)]


def exchange(name: str, replies: list, requests: Sequence[Request] = (HELLO,)) -> tuple[list[list[StreamEvent]], list]:
    """Ask once per request; the events of each answer, and what the server received."""

    async def run() -> tuple[list[list[StreamEvent]], list]:
        async with Loopback(replies) as server:
            provider = make(name, server.url)
            try:
                return [await ask(provider, request) for request in requests], server.requests
            finally:
                await provider.close()

    return asyncio.run(run())


def reply_of(events: list[StreamEvent]) -> Reply:
    assert [isinstance(event, Reply) for event in events].index(True) == len(events) - 1, "the Reply is last, once"
    reply = events[-1]
    assert isinstance(reply, Reply)
    return reply
