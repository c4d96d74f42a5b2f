"""The layout below the scrollback: the live rows, the input or a question in its place, and the last lines."""

from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension

from runner.frontends.tui.fragments import Fragments


class Frame:
    """The rows `above`, `asked` and `below` are set before each drawing; while `asking`, `asked` is in the place of the
    input. `rows`: of the terminal."""

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
        body = HSplit(
            [
                ConditionalContainer(
                    Window(FormattedTextControl(lambda: _formatted(self.above)), dont_extend_height=True),
                    Condition(lambda: bool(self.above)),
                ),
                ConditionalContainer(self.question, Condition(asking)),
                ConditionalContainer(self.input, ~Condition(asking)),
                Window(FormattedTextControl(lambda: _formatted(self.below)), dont_extend_height=True),
                Window(),  # what is left when the rows above become fewer
            ]
        )
        self.layout = Layout(body, self.input)


def _formatted(rows: list[Fragments]) -> StyleAndTextTuples:
    joined: StyleAndTextTuples = []
    for place, row in enumerate(rows):
        joined += [*([("", "\n")] if place else []), *row]
    return joined
