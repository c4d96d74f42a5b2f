"""The messages of the protocol: JSON objects, one on each line, checked before the library of the protocol gets them.

THREAT T287: a client may send lines that are no messages, answers that nobody waits for, or never read. The library
ends the connection at some of them and keeps everything that is not read. Here a line that is no message is answered
with an error, an answer without a valid form is an error for who waits for it, and messages that wait for the client
have a limit.
"""

import asyncio
import contextlib
import json
from collections import deque
from typing import Any

from policy.model.verdict import Problem
from runner.frontends.wire_lines import LONGEST_MESSAGE, WireLines
from runner.problems import Exit, Stopped
from runner.text.strict_json import DuplicateNameError, parse_strictly

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603  # SOURCE: JSON-RPC 2.0, section 5.1
_MOST_WAITING = 64 << 20  # bytes that may wait for the client
_PAUSE = 8 << 20  # waiting bytes from which on no further message is read
_LONGEST_ID = 200  # characters of the id of a request
_LONGEST_ERROR = 500  # characters of the text of a client's error

_UNREAD = Problem(
    "the client does not read",
    f"{_MOST_WAITING >> 20} MiB of messages wait for it",
    "read the standard output of `agent acp` all the time",
)

JsonMessage = dict[str, Any]


class NoMessage(Exception):
    """The error for a line that is no message. `code` is that of JSON-RPC, and the text says why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def message_of(line: bytes) -> JsonMessage | None:
    """Return the message in a line, or None for an answer that cannot belong to a request. Raise NoMessage."""
    if len(line) > LONGEST_MESSAGE:
        raise NoMessage(INVALID_REQUEST, f"the message is longer than {LONGEST_MESSAGE >> 20} MiB")
    try:
        found = parse_strictly(line.decode("utf-8"))
    except DuplicateNameError:
        raise NoMessage(INVALID_REQUEST, "the message has a name twice") from None
    except (ValueError, RecursionError):
        raise NoMessage(PARSE_ERROR, "the line is not JSON") from None
    if not isinstance(found, dict):
        raise NoMessage(INVALID_REQUEST, "the message is not an object; batches are not part of the protocol")
    return _request(found) if found.get("method") is not None else _answer(found)


def _request(found: JsonMessage) -> JsonMessage:
    if not isinstance(found["method"], str):
        raise NoMessage(INVALID_REQUEST, "`method` is not a text")
    if not isinstance(found.get("params"), dict | None):
        raise NoMessage(INVALID_REQUEST, "`params` is not an object")
    id = found.get("id")
    if "id" in found and not (type(id) is int or (isinstance(id, str) and len(id) <= _LONGEST_ID)):
        raise NoMessage(INVALID_REQUEST, "`id` is neither a whole number nor a short text")
    return found


def _answer(found: JsonMessage) -> JsonMessage | None:
    """Return the answer in a form that the library accepts; None if no request of this program has its id."""
    if type(found.get("id")) is not int:
        return None
    answer: JsonMessage = {"jsonrpc": "2.0", "id": found["id"]}
    if "result" in found and "error" not in found:
        return {**answer, "result": found["result"]}
    error = found.get("error")
    code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    return {
        **answer,
        "error": {
            "code": code if type(code) is int else INTERNAL_ERROR,
            "message": text[:_LONGEST_ERROR] if isinstance(text, str) else "the answer has no valid form",
        },
    }


class AcpTransport:
    """The transport of the library of the protocol, over lines. All messages leave in the order of `post`."""

    def __init__(self, wire: WireLines) -> None:
        self._wire = wire
        self._lines: deque[bytes] = deque()
        self._waiting = 0  # bytes that are not written yet
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._line: asyncio.Future[bytes | None] | None = None
        self.failure: Exception | None = None

    def post(self, message: JsonMessage) -> None:
        """Add a message. It is dropped if the connection has ended."""
        if self._closed.is_set():
            return
        line = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
        if self._waiting + len(line) > _MOST_WAITING:
            self._fail(Stopped(_UNREAD, Exit.FAILED))
            return
        self._lines.append(line)
        self._waiting += len(line)
        self._idle.clear()
        self._news.set()

    async def send(self, message: JsonMessage) -> None:
        """Add a message, for the library. Raise ConnectionError if the connection has ended."""
        if self._closed.is_set():
            raise ConnectionError("the client is gone")
        self.post(message)

    async def receive(self) -> JsonMessage | None:
        """Return the next message; None at the end of the input or after a failure."""
        while True:
            line = await self._next_line()
            if line is None:
                return None
            if not line.strip():
                continue
            try:
                message = message_of(line)
            except NoMessage as error:
                refusal = {"code": error.code, "message": str(error)}
                self.post({"jsonrpc": "2.0", "id": None, "error": refusal})
                continue
            if message is not None:
                return message

    async def _next_line(self) -> bytes | None:
        await self.drained()
        self._line = self._line or asyncio.ensure_future(self._wire.line())
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((self._line, closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
        if not self._line.done():
            return None
        line, self._line = self._line.result(), None
        return line

    async def write_all(self) -> None:
        """Write the messages until the transport is closed or fails."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._lines:
                line = self._lines.popleft()
                try:
                    await self._wire.write(line)
                except (OSError, Stopped) as error:
                    self._fail(error)
                    return
                self._waiting -= len(line)
                self._room.set()
            self._idle.set()

    async def drained(self) -> None:
        """Wait until few messages wait for the client, or the connection has ended."""
        while self._waiting > _PAUSE and not self._closed.is_set():
            self._room.clear()
            await self._room.wait()

    async def flush(self, seconds: float) -> None:
        """Wait until every message is written, or the client is gone, at most for `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def close(self) -> None:
        """End the connection."""
        self._closed.set()
        self._room.set()
        if self._line is not None:
            self._line.cancel()

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._lines.clear()
        self._waiting = 0
        self._closed.set()
        self._room.set()
        self._idle.set()
