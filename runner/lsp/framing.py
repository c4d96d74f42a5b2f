"""The messages of a language server, cut out of its standard output, with bounds on what the server sends.

SOURCE: LSP 3.17, base protocol: a header with `Content-Length`, an empty line, and a JSON text of that many bytes.
"""

import json
import re
import time
from typing import Any

LONGEST = 8 << 20  # bytes of one message
_LONGEST_HEADER = 4096  # bytes of all lines of one header
_MOST_INVALID = 100  # messages that are no JSON objects
_WINDOW = 10.0  # seconds in which messages are counted
_MOST_MESSAGES = 20_000  # messages in one window
_MOST_BYTES = 64 << 20  # bytes in one window
_DEEPEST = 200  # arrays and objects in each other
_LENGTH = re.compile(rb"content-length:[ \t]*([0-9]{1,9})[ \t]*", re.IGNORECASE)
_FIELD = re.compile(rb"[A-Za-z-]+:[^\r\n]*")


class MessageReader:
    """A reader of the messages of one server.

    THREAT T260: a server may send a message without an end, a wrong length, deep JSON, or more messages than a session
    should read. Each is bounded, and the connection ends with a reason.

    Attributes:
        fault: Why the connection must end because of what the server sent; empty if it need not.
    """

    def __init__(self) -> None:
        self.fault = ""
        self._buffer = bytearray()
        self._length = -1  # of the body that is being read; -1 while a header is being read
        self._invalid = 0
        self._since, self._messages, self._bytes = time.monotonic(), 0, 0

    def take(self, chunk: bytes) -> list[dict[str, Any]]:
        """Return the messages that are complete with this chunk of output."""
        if self.fault:
            return []
        now = time.monotonic()
        if now - self._since > _WINDOW:
            self._since, self._messages, self._bytes = now, 0, 0
        self._bytes += len(chunk)
        if self._bytes > _MOST_BYTES:
            return self._break(f"it sent more than {_MOST_BYTES >> 20} MiB in {_WINDOW:g} s")
        self._buffer += chunk
        found: list[dict[str, Any]] = []
        while not self.fault and (body := self._next()) is not None:
            self._messages += 1
            if self._messages > _MOST_MESSAGES:
                self._break(f"it sent more than {_MOST_MESSAGES:,} messages in {_WINDOW:g} s")
            elif (message := _parsed(body)) is not None:
                found.append(message)
            else:
                self._invalid += 1
                if self._invalid > _MOST_INVALID:
                    self._break(f"it sent more than {_MOST_INVALID} messages that are no JSON objects")
        return [] if self.fault else found

    def _next(self) -> bytes | None:
        """Return the next complete body, or None."""
        if self._length < 0 and not self._header():
            return None
        if len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length = -1
        return body

    def _header(self) -> bool:
        """Read one header. Return False if it is not complete, or not acceptable."""
        if self._buffer and not _begins_header(bytes(self._buffer[:64])):
            self._break("it wrote text that is no message to its standard output")
            return False
        end = self._buffer.find(b"\r\n\r\n", 0, _LONGEST_HEADER + 4)
        if end < 0:
            if len(self._buffer) > _LONGEST_HEADER:
                self._break("it sent a header that does not end")
            return False
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        lengths = [match[1] for line in lines if (match := _LENGTH.fullmatch(line))]
        if len(lengths) != 1 or not all(map(_FIELD.fullmatch, lines)):
            self._break("it sent a header without exactly one length")
            return False
        self._length = int(lengths[0])
        if self._length > LONGEST:
            self._break(f"it sent a message of more than {LONGEST >> 20} MiB")
            return False
        return True

    def _break(self, why: str) -> list[dict[str, Any]]:
        self.fault = self.fault or why
        self._buffer.clear()
        return []


def _begins_header(text: bytes) -> bool:
    """Return True if `text` may be the beginning of a header."""
    return re.match(rb"(?:[A-Za-z-]+(?::|\Z))", text) is not None


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _shallow(found) else None


def _shallow(value: object) -> bool:
    """Return True if no arrays and objects lie deeper in each other than the library can structure."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return True
    return False


def _inner(value: object) -> list[object]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]
