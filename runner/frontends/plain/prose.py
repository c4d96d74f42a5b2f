"""Prose that streams onto a terminal or into a file as plain lines."""

import re
from collections.abc import Callable

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from runner.text.sanitize import visible

_PIECES = re.compile(r"\n| |[^ \n]+")


class Flow:
    """A writer that wraps streamed prose at word boundaries. If `width` returns None, nothing is wrapped.

    The time for a piece depends only on its own length, not on the length of the word that it belongs to.
    """

    def __init__(self, console: Console, width: Callable[[], int | None]) -> None:
        self._console = console
        self._width = width
        self._column = 0
        self._word: list[str] = []  # the pieces of the incomplete word, with the blank before it
        self._size = 0  # columns of that word
        self._long = False  # the word is longer than a row, so its pieces are written at once
        self._open = False
        self._last = ""
        self._ready: list[str] = []

    def write(self, text: str) -> None:
        if not self._open:
            self._ready.append("\n")
            self._open = True
        for piece in _PIECES.findall(self._encoded(text)):
            if piece[0] not in " \n":
                self._add(piece)
                continue
            self._put()  # the current word is complete
            self._long = False
            if piece == "\n":
                self._ready.append("\n")
                self._column = 0
            elif self._column:
                self._word, self._size = [" "], 1
            else:  # indentation is kept: it may be code
                self._ready.append(" ")
                self._column = 1
        self._out()

    def _encoded(self, text: str) -> str:
        """Return `text` as it may be shown. Its first character may combine with the last one of the piece before."""
        before = self._last
        self._last = text[-1:] if text[-1:].isprintable() else ""
        return visible(before + text, prose=True)[len(visible(before, prose=True)) :]

    def end(self) -> None:
        """Finish the paragraph, if one is open."""
        if self._open:
            self._put()
            self._ready.append("\n")
            self._out()
        self._open, self._column, self._word, self._size, self._long = False, 0, [], 0, False
        self._last = ""

    def _add(self, piece: str) -> None:
        size = cell_len(piece)
        if self._long:
            self._ready.append(piece)
            self._column += size
            return
        self._word.append(piece)
        self._size += size
        width = self._width()
        if width is None or self._size > width + 1:
            self._put()
            self._long = True

    def _put(self) -> None:
        """Put the pending word (with the blank before it) on this line or the next."""
        blank = self._word[:1] == [" "]
        width = self._width()
        over = width is not None and self._column + self._size > width
        if self._column and over and len(self._word) > blank:
            self._ready.append("\n")
            self._column = 0
            if blank:
                del self._word[0]
                self._size -= 1
        self._ready += self._word
        self._column += self._size
        self._word, self._size = [], 0

    def _out(self) -> None:
        encoding = self._console.encoding or "utf-8"
        text = "".join(self._ready).encode(encoding, "backslashreplace").decode(encoding)
        self._ready = []
        if text:
            self._console.print(Text(text), end="", markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()
