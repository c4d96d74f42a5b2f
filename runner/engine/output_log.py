"""The output of one process that stays: bounded, redacted, and readable from any position.

THREAT T132: a process that never stops printing, or prints faster than a reader reads, must neither fill memory or the
disk nor occupy the program. The newest `MOST` characters stay in memory, the file has a limit of its own, and output
beyond a rate is counted but neither stored nor redacted.
"""

import asyncio
import codecs
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from tools.text import short

if TYPE_CHECKING:
    from runner.secrets.redactor import Redactor
    from runner.state.output_store import OutputFile

MOST = 1 << 20  # characters in memory
_BURST = 8 << 20  # bytes that are taken at any rate
_RATE = 1 << 20  # bytes per second that are taken after a burst
_LONGEST_PATTERN = 1_000  # characters
_PATTERN_MEMORY = 1 << 20  # bytes of a compiled pattern
_LONGEST_LINE = 10_000  # characters of a line that are compared with a pattern


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the output.

    Attributes:
        text: The text.
        end: The position after the text, at which the next read begins.
        lost: The number of characters before the text that are no longer in memory.
    """

    text: str
    end: int
    lost: int = 0


class OutputLog:
    """The output of one process, both streams in the order of arrival, with secrets masked.

    Positions count the characters of the masked output. `file` receives the whole output up to its own limit; None
    stores nothing. The log is used only in the thread of the event loop.
    """

    def __init__(
        self,
        redactor: "Redactor",
        file: "OutputFile | None" = None,
        *,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decoders = {each: codecs.getincrementaldecoder("utf-8")("replace") for each in (1, 2)}
        self._streams = {each: redactor.stream() for each in (1, 2)}
        self._pieces: deque[str] = deque()
        self._kept = 0  # characters in memory
        self._end = 0  # position after the last character
        self._most, self._file, self._clock = most, file, clock
        self._allowed, self._since = float(_BURST), clock()
        self._skipped = 0  # bytes beyond the rate since the last note about them
        self._bytes = [0, 0]
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def end(self) -> int:
        """Return the position after the last character."""
        return self._end

    @property
    def printed(self) -> tuple[int, int]:
        """Return the number of bytes that the process wrote to standard output and to standard error."""
        return self._bytes[0], self._bytes[1]

    @property
    def path(self) -> str:
        """Return the path of the file with the whole output; empty if there is none."""
        return self._file.path if self._file is not None else ""

    def take(self, stream: int, chunk: bytes, plain: Callable[[str], str] = str) -> str:
        """Add a chunk of stream 1 or 2, and return the masked text that was added. `plain` is applied to it first."""
        self._bytes[stream - 1] += len(chunk)
        if not self._within_rate(len(chunk)):
            self._skipped += len(chunk)
            self._changed.set()
            return ""
        note = self._note_skipped()
        return self._add(note + self._streams[stream].feed(plain(self._decoders[stream].decode(chunk))))

    def close(self) -> str:
        """Add the text that was held back, end the log, and return that text."""
        if self._closed:
            return ""
        rest = self._note_skipped()
        for each in (1, 2):
            rest += self._streams[each].feed(self._decoders[each].decode(b"", True)) + self._streams[each].end()
        rest = self._add(rest)
        self._closed = True
        self._changed.set()
        if self._file is not None:
            self._file.close()
        return rest

    def since(self, position: int) -> Piece:
        """Return the text from `position` on, as far as it is still in memory."""
        begin = max(position, self._end - self._kept)
        text = "".join(self._pieces)
        return Piece(text[len(text) - (self._end - begin) :] if begin < self._end else "", self._end, begin - position)

    async def changed(self) -> None:
        """Wait until output arrives or the log ends. Return at once if the log has ended."""
        if not self._closed:
            self._changed.clear()
            await self._changed.wait()

    def _add(self, text: str) -> str:
        if not text:
            return ""
        self._pieces.append(text[-self._most :])
        self._end += len(text)
        self._kept += len(self._pieces[-1])
        while self._kept > self._most:
            first = self._pieces.popleft()
            cut = first[self._kept - self._most :]
            if cut:
                self._pieces.appendleft(cut)
            self._kept -= len(first) - len(cut)
        if len(self._pieces) > 256:  # many short pieces: one text takes less memory
            self._pieces = deque(["".join(self._pieces)])
        if self._file is not None:
            self._file.write(text)
        self._changed.set()
        return text

    def _within_rate(self, size: int) -> bool:
        now = self._clock()
        self._allowed = min(self._allowed + (now - self._since) * _RATE, float(_BURST))
        self._since = now
        if size > self._allowed:
            return False
        self._allowed -= size
        return True

    def _note_skipped(self) -> str:
        count, self._skipped = self._skipped, 0
        return f"\n[{count:,} bytes were printed too fast and are not kept]\n" if count else ""


class LinePattern:
    """A regular expression that is compared with single lines.

    THREAT T133: the pattern comes from a model, which may write one that takes exponential time in a backtracking
    engine. RE2 takes linear time, and the length of the pattern, of its compiled form and of a line are bounded.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def matches(self, line: str) -> bool:
        """Return True if the pattern occurs in the first 10,000 characters of `line`."""
        return self._compiled.search(line[:_LONGEST_LINE]) is not None

    def matching(self, text: str) -> list[str]:
        """Return the lines of `text` that match."""
        return [line for line in text.splitlines() if self.matches(line)]


def line_pattern(pattern: str) -> LinePattern | Problem:
    """Return the pattern compiled for lines, or the problem of a pattern that is invalid or too large."""
    import re2  # only for a call with a pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    what, fix = f"the pattern `{short(pattern)}` cannot be used", "write a pattern in the syntax of RE2, like ripgrep's"
    if len(pattern) > _LONGEST_PATTERN:
        return Problem(what, f"it is longer than {_LONGEST_PATTERN:,} characters", fix)
    try:
        return LinePattern(re2.compile(pattern, options))
    except (re2.error, UnicodeEncodeError) as error:
        why = error.args[0] if error.args else ""
        words = why.decode("utf-8", "replace") if isinstance(why, bytes) else "it is no valid text"
        return Problem(what, words, fix)
