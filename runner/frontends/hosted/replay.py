"""The events of a hosted session in condensed form, for clients that attach later.

Pieces of text are joined, and events that a transcript does not show are left out: reasoning, pieces of output, the
fill level of the context. Long results are cut. Only the last events are kept; the session file has everything.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping

MOST = 20_000  # events
_MOST_BYTES = 16 << 20
_LONGEST_TEXT = 16_000  # characters of one text
_LEFT_OUT = frozenset(
    ("thinking", "output", "call_begun", "context", "question_asked", "pick_wanted", "input_wanted", "queued")
)


class CondensedEvents:
    """The condensed events of the current session, as JSON objects.

    Attributes:
        earlier: The number of condensed events that are not kept any more.
    """

    def __init__(self) -> None:
        self.earlier = 0
        self._events: deque[tuple[dict[str, object], int]] = deque()
        self._size = 0
        self._text: list[str] = []  # the pieces of the text that the last event begins

    def add(self, event: Mapping[str, object]) -> None:
        """Add an event in its JSON form. The start of a session removes the events before it."""
        kind = event["type"]
        if kind == "session_started":
            self._events.clear()
            self._text.clear()
            self._size = self.earlier = 0
        if kind in _LEFT_OUT:
            return
        if kind == "text":
            if self._text and self._last("agent") == event.get("agent"):
                self._text.append(str(event.get("text", "")))
                return
            self._join()
            self._text = [str(event.get("text", ""))]
            self._events.append((dict(event), 0))  # its size is counted when it is complete
            return
        self._join()
        self._append(_shortened(event))

    def last(self, most: int | None) -> tuple[list[bytes], int]:
        """Return the last `most` events as lines, and the number of earlier ones; all events for None."""
        self._join()
        events = [event for event, _ in self._events]
        shown = events if most is None else events[max(len(events) - most, 0) :]
        return [line_of(event) for event in shown], self.earlier + len(events) - len(shown)

    def __iter__(self) -> Iterator[dict[str, object]]:
        self._join()
        return (event for event, _ in self._events)

    def _last(self, name: str) -> object:
        return self._events[-1][0].get(name)

    def _join(self) -> None:
        """Complete the text that the last event begins."""
        if self._text:
            event, _ = self._events.pop()
            text, self._text = "".join(self._text), []
            self._append({**event, "text": text})

    def _append(self, event: dict[str, object]) -> None:
        size = sum(len(value) for value in event.values() if isinstance(value, str)) + 200
        self._events.append((event, size))
        self._size += size
        while len(self._events) > MOST or (self._size > _MOST_BYTES and len(self._events) > 1):
            self._size -= self._events.popleft()[1]
            self.earlier += 1


def line_of(event: Mapping[str, object]) -> bytes:
    """Return an event as one line of ASCII."""
    return json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def _shortened(event: Mapping[str, object]) -> dict[str, object]:
    """Return the event with a long `text` cut in its middle."""
    text = event.get("text")
    if event["type"] != "finished" or not isinstance(text, str) or len(text) <= _LONGEST_TEXT:
        return dict(event)
    half = _LONGEST_TEXT // 2
    left_out = f"\n[{len(text) - 2 * half:,} characters left out here]\n"
    return {**event, "text": f"{text[:half]}{left_out}{text[-half:]}"}
