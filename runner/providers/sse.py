"""Server-sent events: bytes as they arrive in, events out, by the rules of the WHATWG event-stream format.

Chunks may end anywhere, also inside a character or between CR and LF. An event that the stream does not finish with a
blank line is never delivered, so a cut stream cannot pass half an event as a whole one.
"""

import re

from policy.model.frozen import dataclass

EVENT_LIMIT = 16 << 20  # bytes; a provider's events are a few hundred

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(Exception):
    """One event exceeds the limit: the sender is broken or hostile."""


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
