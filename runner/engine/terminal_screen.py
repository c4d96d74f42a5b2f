"""The screen of a process that runs in a terminal, as bounded text. The emulator (pyte) is loaded on the first read.

THREAT T134: the process chooses every byte. Sequences that the emulator does not expect raise exceptions in it, and
strings without an end, combining marks without a limit and huge numbers cost memory and time. Therefore only listed
sequences with small numbers reach the emulator; everything else is dropped. Only the newest output is emulated if more
arrived than `_PENDING` since the last read.
"""

import codecs
import re
import unicodedata
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyte

    from sandbox.backend import TerminalSize

_PENDING = 128 << 10  # characters that one read emulates; pyte takes about a second per MiB
_SCROLLED = 2_000  # lines that have left the top of the screen and are kept
_UNFINISHED = 4_096  # characters of a sequence whose end has not arrived

_NUMBERS = r"[0-9]{0,4}(?:;[0-9]{0,4}){0,15}"
# The text between sequences, one listed sequence (`csi`), or a sequence that is dropped.
_TOKEN = re.compile(
    rf"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    rf"|(?P<move>[\b\t\n\v\f\r])"
    rf"|\x1b\[(?P<private>\??)(?P<numbers>{_NUMBERS})(?P<final>[@-~])"
    rf"|(?P<escape>\x1b[78DEHMc])"
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x18\x1a\x1b\x9c]*(?:\x07|\x1b\\|\x9c|[\x18\x1a]|(?=\x1b[^\\]))"
    rf"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    rf"|\x1b[ -/]*[0-Z\\`-~]"
    rf"|(?P<unfinished>\x1b(?:[\]PX^_][^\x07\x18\x1a\x1b\x9c]*\x1b?|\[[0-?]*[ -/]*|[ -/]*)"
    rf"|[\x90\x98\x9d-\x9f][^\x07\x18\x1a\x1b\x9c]*\x1b?|\x9b[0-?]*[ -/]*)\Z"
    rf"|(?s:.)"
)
_ERASES = frozenset("JK")  # the emulator fails for unknown numbers
_ERASABLE = ("", "0", "1", "2")
_ONE_NUMBER = frozenset("@ABCDEFGLMPXadeg`'")  # final characters of sequences with at most one number
_TWO_NUMBERS = frozenset("Hfr")
_WIDTH_MODE = "3"  # DECCOLM would change the size of the screen


class TerminalScreen:
    """The screen of `size` characters of one process, and the lines that have scrolled off its top.

    Marks that combine with the character before them are shown only where Unicode has one character for both.
    """

    def __init__(self, size: "TerminalSize") -> None:
        self._size = size
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: deque[str] = deque()
        self._length = 0
        self._dropped = False
        self._filter = SequenceFilter()
        self._screen: pyte.Screen | None = None
        self._stream: pyte.Stream | None = None
        self._scrolled: deque[str] = deque(maxlen=_SCROLLED)
        self._count = 0  # lines that have scrolled off since the start

    def feed(self, chunk: bytes) -> None:
        """Take output of the process. It is emulated when the screen is read."""
        text = self._decoder.decode(chunk)
        self._pending.append(text[-_PENDING:])
        self._length += len(self._pending[-1])
        while self._length > _PENDING and len(self._pending) > 1:
            self._length -= len(self._pending.popleft())
            self._dropped = True

    def resize(self, size: "TerminalSize") -> None:
        """Change the size of the screen, after all output so far."""
        self._emulate()
        self._size = size
        if self._screen is not None:
            self._screen.resize(size.rows, size.columns)

    @property
    def scrolled(self) -> int:
        """Return the number of lines that have scrolled off the top since the start."""
        self._emulate()
        return self._count

    def lines(self) -> tuple[str, ...]:
        """Return the lines of the screen without blanks at their ends and without empty lines at the end."""
        self._emulate()
        assert self._screen is not None  # `_emulate` created it
        return _trimmed([_line(self._screen, row) for row in range(self._screen.lines)])

    def history(self, since: int = 0) -> tuple[str, ...]:
        """Return the kept lines that scrolled off the top after the first `since` such lines."""
        new = self.scrolled - since
        return tuple(self._scrolled)[-new:] if new > 0 else ()

    @property
    def cursor(self) -> tuple[int, int]:
        """Return the row and column of the cursor, each from 1."""
        self._emulate()
        assert self._screen is not None  # `_emulate` created it
        return self._screen.cursor.y + 1, self._screen.cursor.x + 1

    def _emulate(self) -> None:
        """Give the emulator the output that has arrived since the last read."""
        if self._screen is None or self._stream is None:
            self._screen, self._stream = self._new_emulator()
        if not self._pending:
            return
        text, dropped = "".join(self._pending), self._dropped
        self._pending.clear()
        self._length, self._dropped = 0, False
        if dropped:
            self._filter = SequenceFilter()  # the beginning of an unfinished sequence belongs to dropped output
        try:
            self._stream.feed(self._filter.safe(text))
        except Exception:  # the named seam: a defect of the emulator may cost the screen, never the session
            self._screen, self._stream = self._new_emulator()

    def _new_emulator(self) -> "tuple[pyte.Screen, pyte.Stream]":
        import pyte

        scrolled = self

        class ScrollingScreen(pyte.Screen):
            """A screen that keeps the line that leaves its top."""

            def index(self) -> None:
                margins = self.margins or pyte.screens.Margins(0, self.lines - 1)
                if self.cursor.y == margins.bottom and margins.top == 0:
                    scrolled._keep(_line(self, 0))
                super().index()

        screen = ScrollingScreen(self._size.columns, self._size.rows)
        return screen, pyte.Stream(screen)

    def _keep(self, line: str) -> None:
        self._scrolled.append(line)
        self._count += 1


class SequenceFilter:
    """A filter of the output of a terminal, across the borders of pieces."""

    def __init__(self) -> None:
        self._rest = ""

    def safe(self, text: str) -> str:
        """Return the text and the listed sequences for the emulator."""
        return "".join(self._parts(text, plain=False))

    def plain(self, text: str) -> str:
        """Return the text without sequences. A carriage return begins a new line."""
        return "".join(self._parts(text, plain=True))

    def _parts(self, text: str, *, plain: bool) -> list[str]:
        text, self._rest = self._rest + text, ""
        parts: list[str] = []
        for token in _TOKEN.finditer(text):
            kind = token.lastgroup
            if kind == "text":
                parts.append(token[0] if plain or token[0].isascii() else _spaced(token[0]))
            elif kind == "move":
                if not plain or token[0] in "\t\n\r":
                    parts.append(token[0])
            elif kind == "unfinished":
                self._rest = token[0] if len(token[0]) <= _UNFINISHED else ""
            elif not plain and kind == "escape":
                parts.append(token[0])
            elif not plain and kind == "final":
                parts.append(_listed(token["private"], token["numbers"], token["final"]))
        return parts


def _listed(private: str, numbers: str, final: str) -> str:
    """Return the sequence with these parts if the emulator takes it, else an empty string."""
    count = numbers.count(";") + 1
    if private:
        fits = final in "hl" and _WIDTH_MODE not in numbers.split(";")
    elif final in _ERASES:
        fits = numbers in _ERASABLE
    elif final in _ONE_NUMBER:
        fits = count == 1
    elif final in _TWO_NUMBERS:
        fits = count <= 2
    else:
        fits = final == "m"
    return f"\x1b[{private}{numbers}{final}" if fits else ""


def _spaced(text: str) -> str:
    """Return composed text without characters that take no room of their own on a line."""
    from wcwidth import wcwidth

    return "".join(char for char in unicodedata.normalize("NFC", text) if wcwidth(char) > 0)


def _line(screen: "pyte.Screen", row: int) -> str:
    """Return a line of the screen. `Screen.display` fails for a wide character that is overwritten in part."""
    cells = screen.buffer[row]
    return "".join(cells[column].data for column in range(screen.columns)).rstrip()


def _trimmed(lines: list[str]) -> tuple[str, ...]:
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)
