"""The renderer below the scrollback: in one write, finished rows are added to it and live rows are drawn again.

The terminal's own history is never cleared, and no scroll region is set, so finished rows stay on every terminal.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.utils import get_cwidth

from runner.frontends.tui.rows import Fragments

# "Synchronized output": a terminal that knows it shows the frame at once, others ignore it (DEC private mode 2026).
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


class Canvas(Vt100_Output):
    """A terminal output that writes a frame at once. `gone` is the error if the terminal is gone, else None."""

    gone: OSError | None = None
    _holding = False

    @property
    def responds_to_cpr(self) -> bool:
        return False  # the position of the cursor is not needed: rows are drawn from where it is

    @contextlib.contextmanager
    def frame(self) -> Iterator[None]:
        """Write everything inside the block to the terminal at once."""
        self._holding = True
        self.write_raw(_BEGIN)
        try:
            yield
        finally:
            self._holding = False
            self.write_raw(_END)
            self.flush()

    def flush(self) -> None:
        if self._holding:
            return
        try:
            super().flush()
        except OSError as error:  # the terminal is gone; the caller checks `gone`
            self.gone = error
            self._buffer.clear()


class Painter(Renderer):
    """The painter of the application below the text that `above` returns: ANSI text of whole lines, or nothing."""

    def __init__(self, style: Any, output: Output, above: Callable[[], str], environ: Mapping[str, str]) -> None:
        self._above = above
        term = environ.get("TERM", "")
        # When a window gets narrower, most terminals wrap rows again; the Linux console cuts them. xterm and mosh cut
        # them too, and are recognized by their replies (`TerminalProbe`).
        self.wraps = term != "linux"
        # rxvt-unicode cuts rows until some have scrolled off its screen, then wraps them (urxvt(1), "rewrapMode").
        self._wraps_late = term.startswith("rxvt")
        self._went_up = 0  # rows that were added to the scrollback
        # When tmux wraps a row, erased cells at its end count as part of it (seen in 3.3a). GNU screen may have
        # the same TERM, and does not do so.
        self._keeps = term.startswith(("tmux", "screen")) and "STY" not in environ
        self._longest: dict[int, int] = {}  # the last column of each row that was painted since the last erase
        super().__init__(style, output)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        text = self._above()
        canvas = self.output
        assert isinstance(canvas, Canvas)  # made by us
        with canvas.frame():
            if text or (self._last_size is not None and self._last_size != canvas.get_size()):
                self.erase()
            if text:
                canvas.write_raw(text)
                self._went_up += text.count("\n")
            super().render(app, layout, is_done)
            if self._keeps and (screen := self._last_screen) is not None:
                for place in range(screen.height):
                    self._longest[place] = max(self._longest.get(place, 0), self._end(screen.data_buffer[place]))

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Erase the drawn rows one by one.

        An "erase below" at the top of the screen would be a clear for tmux, which adds the erased rows to its history.
        """
        where, height = self._where()
        output = self.output
        output.cursor_backward(self._cursor_pos.x)
        output.cursor_up(where)
        # Save and restore the cursor instead of moving up again: in a window made lower, "down" may not have moved it.
        # Erase from the left, not with "erase line": VTE would then treat the row as full of blanks and wrap it.
        output.write_raw("\r\x1b7" + "\x1b[B".join(["\x1b[K"] * height) + "\x1b8")
        output.reset_attributes()
        output.enable_autowrap()
        output.flush()
        self._longest.clear()
        self.reset(leave_alternate_screen=leave_alternate_screen)

    def _where(self) -> tuple[int, int]:
        """Return the row of the cursor in the last drawing, and the number of rows of that drawing, as the terminal
        shows it now.

        A window made narrower wraps the rows that no longer fit, so there are more rows than were drawn.
        """
        screen, size, cursor = self._last_screen, self._last_size, self._cursor_pos
        if screen is None or size is None:
            return cursor.y, 0
        width = self.output.get_size().columns
        cuts = self._wraps_late and self._went_up + screen.height <= size.rows
        if width >= size.columns or width < 1 or cuts or not self.wraps:
            return cursor.y, screen.height
        rows = [screen.data_buffer[place] for place in range(screen.height)]
        ends = [max(self._end(row), self._longest.get(place, 0)) for place, row in enumerate(rows)]
        heights = [_rows([row[at].char for at in range(end + 1)], width) for row, end in zip(rows, ends, strict=True)]
        before = _rows([rows[cursor.y][column].char for column in range(cursor.x)], width) if cursor.x else 1
        inside = max(before - 1, cursor.x // width)
        return sum(heights[: cursor.y]) + inside, max(sum(heights), sum(heights[: cursor.y]) + inside + 1)

    def _end(self, row: Mapping[int, Any]) -> int:
        """Return the last painted column. A blank without a style was not painted, even if the row has an entry for
        it.
        """
        shows = self._style_string_has_style
        painted = (at for at, char in row.items() if char.char != " " or (shows is not None and shows[char.style]))
        return max(painted, default=0)


def _rows(chars: list[str], width: int) -> int:
    """Return the number of rows that the characters take in a terminal of that width."""
    rows, column = 1, 0
    for char in chars:
        size = get_cwidth(char)
        if column + size > width:
            rows, column = rows + 1, 0
        column += size
    return rows


def canvas(environ: Mapping[str, str]) -> Canvas:
    """Return the terminal on standard output."""

    def size() -> Size:
        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns, rows = 0, 0
        return Size(rows=rows or 24, columns=columns or 80)

    depth = ColorDepth.DEPTH_1_BIT if environ.get("NO_COLOR") else ColorDepth.DEPTH_4_BIT
    return Canvas(sys.stdout, size, term=environ.get("TERM"), default_color_depth=depth)


class Frame:
    """The layout below the scrollback: the live rows, the input or a question in its place, and the last lines.

    The rows `above`, `asked` and `below` are set before each drawing. While `asking` is true, `asked` replaces the
    input. `rows` returns the number of rows of the terminal.
    """

    def __init__(self, buffer: Buffer, asking: Callable[[], bool], rows: Callable[[], int]) -> None:
        self.above: list[Fragments] = []
        self.asked: list[Fragments] = []
        self.below: list[Fragments] = []
        self.question = Window(
            FormattedTextControl(lambda: _formatted(self.asked), focusable=True, show_cursor=False),
            dont_extend_height=True,
        )
        self.input = Window(
            BufferControl(buffer, focusable=True),
            get_line_prefix=lambda line, wrap: [("bold ansicyan", "> ")] if line == wrap == 0 else [("", "  ")],
            wrap_lines=True,
            dont_extend_height=True,
            height=lambda: Dimension(min=1, max=max(rows() // 3, 1)),
        )
        above = Window(FormattedTextControl(lambda: _formatted(self.above)), dont_extend_height=True)
        below = Window(FormattedTextControl(lambda: _formatted(self.below)), dont_extend_height=True)
        parts = (
            ConditionalContainer(above, Condition(lambda: bool(self.above))),
            ConditionalContainer(self.question, Condition(asking)),
            ConditionalContainer(self.input, ~Condition(asking)),
            below,
            Window(),  # fills the free rows
        )
        self.layout = Layout(HSplit(parts), self.input)


def _formatted(rows: list[Fragments]) -> StyleAndTextTuples:
    joined: StyleAndTextTuples = []
    for place, row in enumerate(rows):
        joined += [*([("", "\n")] if place else []), *row]
    return joined
