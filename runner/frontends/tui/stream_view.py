"""The view of the text that the model is writing: a block moves up when it is complete, and an open block is live.

THREAT T105: the model chooses every byte. All of it passes `visible`, here or in the rows of a block.
"""

from collections.abc import Callable
from typing import Protocol

from runner.frontends.tui.blocks import Blocks, Code, RenderedBlock
from runner.frontends.tui.code import code_rows
from runner.frontends.tui.markdown import markdown_rows
from runner.frontends.tui.rows import Fragments, safe, wrap
from runner.frontends.tui.theme import Theme
from runner.text.sanitize import one_line

_OPEN_MOST = 2000  # characters of an open block that are drawn as Markdown each time
_CONTEXT = 12  # lines above the shown lines of an open fence that are read to determine colours
_THOUGHT = 400  # characters that are kept of reasoning of which only the end is shown

Draw = Callable[[int], list[Fragments]]  # returns rows for a width in cells


class Put(Protocol):
    """A function that takes finished rows; with `close`, without an empty row before them."""

    def __call__(self, draw: Draw, *, close: bool = False) -> None: ...


class Writing:
    """The view of one reply after another, in the current theme. With `thinking`, the model's reasoning is shown in
    full.
    """

    def __init__(self, put: Put, theme: Callable[[], Theme], *, thinking: bool) -> None:
        self.thinking = thinking
        self._put = put
        self._theme = theme
        self._blocks = Blocks()
        self._thought = ""
        self._tool = ""  # the tool of the call that is being written
        self._kind = ""  # the kind of text that is being written: text, thought, or empty

    def said(self, text: str) -> None:
        """Add a piece of the model's text."""
        self._write("text", text)

    def thought(self, text: str) -> None:
        """Add a piece of the model's reasoning."""
        if self.thinking:
            self._write("thought", text)
        else:
            self._thought = (self._thought + text)[-_THOUGHT:]

    def calls(self, tool: str) -> None:
        """Note that the model writes a call of `tool`."""
        self.end()
        self._tool = tool

    def end(self) -> None:
        """End the open block, because another event came."""
        self._thought = self._tool = ""
        for block in self._blocks.end():
            self._whole(block)
        self._kind = ""

    def rows(self, width: int, room: int) -> list[Fragments]:
        """Return the open block, in at most `room` rows."""
        theme = self._theme()
        if (block := self._blocks.open) is not None:
            match block:
                case Code():
                    lines = block.lines[-room:]
                    before = (*block.before, *block.lines[: len(block.lines) - len(lines)])[-_CONTEXT:]
                    rows = code_rows(block.info, lines, width, theme, before)
                    return (rows if block.before else [[], *rows])[-room:]
                case _ if len(block.text) > _OPEN_MOST:
                    whole = (
                        (len(block.text) - width * room) // 1000 * 1000
                    )  # in steps, so that the rows do not move with every piece
                    start = max(block.text.find(" ", whole, whole + 200), whole, 0)
                    return wrap(safe(block.text[start:], prose=True), width)[-room:]
                case _:
                    rows = markdown_rows(block.text, width, theme)
                    return (rows if block.tight else [[], *rows])[-room:]
        if self._thought:
            return [[], [(theme.dim, one_line("thinking: " + self._thought[-width:].strip(), width))]]
        if self._tool:
            return [[], safe(f"writes a call: {one_line(self._tool, 40)}", theme.dim)]
        return []

    def _write(self, kind: str, text: str) -> None:
        if kind != self._kind:
            self.end()
            self._kind = kind
        self._thought = self._tool = ""
        for block in self._blocks.feed(text):
            self._whole(block)

    def _whole(self, block: RenderedBlock) -> None:
        theme = self._theme()
        put_block(block, self._put, theme, f"{theme.dim} italic" if self._kind == "thought" else None)


def put_block(block: RenderedBlock, put: Put, theme: Theme, style: str | None = None) -> None:
    """Pass the rows of `block` to `put`. With `style`, prose is shown in that style and not read as Markdown."""
    match block:
        case Code():
            put(lambda width: code_rows(block.info, block.lines, width, theme, block.before), close=bool(block.before))
        case _ if style is not None:
            put(lambda width: wrap(safe(block.text, style, prose=True), width), close=block.tight)
        case _:
            put(lambda width: markdown_rows(block.text, width, theme), close=block.tight)


def put_markdown(text: str, put: Put, theme: Theme) -> None:
    """Pass the rows of a complete text to `put`, block by block."""
    blocks = Blocks()
    for block in (*blocks.feed(text), *blocks.end()):
        put_block(block, put, theme)
