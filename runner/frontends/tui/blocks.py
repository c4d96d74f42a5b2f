"""The blocks of a Markdown text that is still being written: complete blocks, and the open one.

Only the syntax that ends a block is read here (CommonMark 0.31, sections 4 and 5); `markdown.py` renders a block. Each
piece of text is read once, so the time is linear in the length of the text.
"""

import re

from policy.model.frozen import dataclass

_FENCE = re.compile(r"( {0,3})(`{3,40}(?!`)|~{3,40}(?!~))[ \t]*([^`\n]*)$")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")

LONGEST = 8_000  # characters of one block that is read as Markdown; a longer block is returned in pieces
CODE_LINES = 40  # lines of an open code fence that are kept; earlier lines are returned


@dataclass(frozen=True, slots=True)
class Prose:
    """A block of Markdown: a paragraph, a heading, an item of a list with its content, a table, a quote."""

    text: str
    tight: bool = False  # no empty line before it: a further item of a list, or a further piece of a long block


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of one code fence. `info` is the text after the fence, mostly a language; `before` are earlier lines."""

    info: str
    lines: tuple[str, ...]
    before: tuple[str, ...] = ()


RenderedBlock = Prose | Code


class Blocks:
    """A splitter that takes Markdown in pieces and returns each block once."""

    def __init__(self) -> None:
        self._pieces: list[str] = []  # the pieces of the line that is being written
        self._length = 0  # characters of that line
        self._lines: list[str] = []  # the complete lines of the open block
        self._size = 0  # characters of these lines
        self._fence: tuple[str, int, str] | None = None  # the closing fence, its indentation, its info
        self._before: tuple[str, ...] = ()
        self._blank = False  # the last line of a list was empty: the next line decides if the item continues
        self._tight = False
        self._item: int | None = None  # the indentation of the open list item, or None

    def feed(self, text: str) -> list[RenderedBlock]:
        """Add text and return the blocks that it completes."""
        done: list[RenderedBlock] = []
        first, *rest = text.split("\n")
        self._write(first, done)
        for line in rest:
            self._line("".join(self._pieces).removesuffix("\r"), done)
            self._pieces, self._length = [], 0
            self._write(line, done)
        return done

    def end(self) -> list[RenderedBlock]:
        """End the text, return the blocks that are left, and become ready for another text."""
        done: list[RenderedBlock] = []
        if self._pieces:
            self._line("".join(self._pieces), done)
        if self._fence is not None:
            self._code(done, all_of_it=True)
        self._close(done)
        self.__init__()  # type: ignore[misc]  # reset every field
        return done

    @property
    def open(self) -> RenderedBlock | None:
        """Return the part of the incomplete block that was written so far, or None."""
        line = "".join(self._pieces)
        if self._fence is not None:
            return Code(self._fence[2], (*self._lines, *([line] if line else [])), self._before)
        text = "\n".join([*self._lines, line])
        return Prose(text, self._tight) if text.strip() else None

    def _write(self, text: str, done: list[RenderedBlock]) -> None:
        """Add text to the incomplete line. A line longer than LONGEST is handled in pieces."""
        while text:
            room = LONGEST - self._length
            piece, text = text[:room], text[room:]
            if piece:
                self._pieces.append(piece)
                self._length += len(piece)
            if text:
                line = "".join(self._pieces)
                whole = line.rfind(" ", len(line) - 200) + 1 or len(line)
                self._line(line[:whole], done)
                self._pieces, self._length = [line[whole:]], len(line) - whole
                if self._fence is None:
                    self._close(done, goes_on=True)

    def _line(self, line: str, done: list[RenderedBlock]) -> None:
        """Add one complete line, and append the blocks that it completes to `done`."""
        if self._fence is not None:
            mark, indent, _ = self._fence
            stripped = line.strip()
            closes = stripped.startswith(mark) and not stripped.strip(mark[0])
            if closes and len(line) - len(line.lstrip()) < indent + 4:
                self._code(done, all_of_it=True)
                self._fence, self._before = None, ()
                return
            self._lines.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])
            self._size += len(line)
            if len(self._lines) >= CODE_LINES or self._size > LONGEST:
                self._code(done, all_of_it=False)
            return
        if not line.strip():
            if self._item is not None:
                self._blank = True
                self._lines.append("")
            else:
                self._close(done)
            return
        indent = len(line) - len(line.lstrip())
        inside = self._item is not None and indent > self._item
        if self._blank and not inside:
            self._close(done)
        if not inside and (fence := _FENCE.match(line)):
            self._close(done)
            self._fence = (fence[2], len(fence[1]), fence[3].strip())
            return
        if not inside and (_HEADING.match(line) or _RULE.match(line)):
            underline = self._lines and self._item is None and line.lstrip().startswith("-") and " " not in line.strip()
            if not underline:  # an underlined paragraph is a heading
                self._close(done)
            self._lines.append(line)
            self._close(done)
            return
        if not inside and _ITEM.match(line) and (self._item is not None or not self._lines or line[indent] in "-*+1"):
            tight = self._item is not None and not self._blank
            self._close(done)
            self._item, self._tight = indent, tight
        self._blank = False
        self._lines.append(line)
        self._size += len(line) + 1
        if self._size > LONGEST:
            self._close(done, goes_on=True)

    def _code(self, done: list[RenderedBlock], *, all_of_it: bool) -> None:
        """Append lines of the open code fence to `done`: all of them, or all except a few that stay live."""
        count = len(self._lines) if all_of_it else max(len(self._lines) - 3, 1)
        lines, self._lines = tuple(self._lines[:count]), self._lines[count:]
        self._size = sum(map(len, self._lines))
        if lines or all_of_it:
            assert self._fence is not None
            done.append(Code(self._fence[2], lines, self._before))
            self._before = lines[-CODE_LINES:]

    def _close(self, done: list[RenderedBlock], *, goes_on: bool = False) -> None:
        """Append the open block to `done`, or its beginning if it `goes_on` because it is too long."""
        text = "\n".join(self._lines)
        if text.strip():
            done.append(Prose(text.rstrip(), self._tight))
        self._lines, self._size, self._item, self._blank, self._tight = [], 0, None, False, goes_on
