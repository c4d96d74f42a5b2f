"""The rendering of one block of Markdown as rows.

THREAT T105: the model chooses every byte. Markup is read, HTML is not. A link shows its target and is never a link of
the terminal. An image is shown as its description and its address. The depth and cost of one block are limited. Every
text passes `visible` after the markup was read, so control characters from entities are made visible too.
"""

import contextlib
import itertools
from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from runner.frontends.tui.blocks import LONGEST
from runner.frontends.tui.code import code_rows
from runner.frontends.tui.rows import Fragments, cut, hang, row_cells, safe, wrap
from runner.frontends.tui.theme import Theme
from runner.text.sanitize import visible

_DEEPEST = 20  # levels of nested blocks
_MARKS = 400  # characters that open markup, in one block; a block with more is shown as source text
_COLUMNS = 12  # columns of a table; a wider table is shown as one record after another


@cache
def _parser() -> MarkdownIt:
    # Definitions of link references are not rendered, so their content would be invisible.
    options = {"html": False, "maxNesting": _DEEPEST}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("reference")


def markdown_rows(text: str, width: int, theme: Theme) -> list[Fragments]:
    """Return `text`, one block or a few, as rows of at most `width` cells."""
    tokens: list[Token] = []
    if len(text) <= LONGEST + 1000 and sum(map(text.count, "[]*_`~!<|>&")) <= _MARKS:
        with contextlib.suppress(Exception):  # foreign code reads untrusted text: on failure, it is shown as source
            tokens = _parser().parse(text)
    # The parser drops deeper levels, so text with too many levels is shown as source.
    if not tokens or max(token.level for token in tokens) >= _DEEPEST - 1:
        return wrap(safe(text, prose=True), width)
    return _Rows(theme).blocks(tokens, width)


class _Rows:
    """A converter of the tokens of one block to rows."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme

    def blocks(self, tokens: Sequence[Token], width: int) -> list[Fragments]:
        """Return the rows of stacked blocks, with an empty row between blocks outside of one tight list."""
        rows: list[Fragments] = []
        place, tight = 0, False
        while place < len(tokens):
            token = tokens[place]
            end = _closing(tokens, place)
            block = self._block(token, tokens[place + 1 : end], width)
            if rows and block and not (token.hidden or tight):
                rows.append([])
            rows += block
            tight = token.hidden  # a paragraph of a tight list
            place = end + 1
        return rows

    def _block(self, token: Token, inner: Sequence[Token], width: int) -> list[Fragments]:
        theme = self._theme
        match token.type:
            case "heading_open":
                level = int(token.tag[1:])
                mark = [(theme.heading, f"{'#' * level} ")] if level > 2 else []
                return wrap([*mark, *self._inline(inner, theme.heading)], width)
            case "fence" | "code_block":
                return code_rows(token.info, token.content.split("\n")[:-1], width, theme)
            case "hr":
                return [[(theme.dim, "─" * min(width, 20))]]
            case "blockquote_open":
                room = max(width - 2, 10)
                return hang(self.blocks(inner, room), (theme.dim, "│ "), (theme.dim, "│ "))
            case "bullet_list_open" | "ordered_list_open":
                return self._list(token, inner, width)
            case "table_open":
                return self._table(inner, width)
            case "paragraph_open":
                return wrap(self._inline(inner, ""), width)
            case _:
                return wrap([("", visible(token.content, prose=True))], width) if token.content else []

    def _list(self, token: Token, inner: Sequence[Token], width: int) -> list[Fragments]:
        rows: list[Fragments] = []
        number = int(token.attrGet("start") or 1) if token.type == "ordered_list_open" else None
        place = 0
        while place < len(inner):
            end = _closing(inner, place)
            body = inner[place + 1 : end]
            lead = "• " if number is None else f"{number}{inner[place].markup or '.'} "
            room = max(width - len(lead), 10)
            item = self.blocks(body, room) or [[]]
            own = (each for each in body if each.type == "paragraph_open" and each.level == inner[place].level + 1)
            if rows and not all(each.hidden for each in own):  # a loose list
                rows.append([])
            rows += hang(item, (self._theme.dim, lead), ("", " " * len(lead)))
            number = None if number is None else number + 1
            place = end + 1
        return rows

    def _table(self, inner: Sequence[Token], width: int) -> list[Fragments]:
        lines: list[list[Fragments]] = []
        right: set[int] = set()
        for token in inner:
            if token.type == "tr_open":
                lines.append([])
            elif token.type == "th_open" and token.attrGet("style") == "text-align:right":
                right.add(len(lines[-1]))
            elif token.type == "inline":
                style = self._theme.strong if len(lines) == 1 else ""
                lines[-1].append(self._inline([token], style))
        columns = max(map(len, lines), default=0)
        if not columns:
            return []
        room = width - 3 * (columns - 1)
        if columns > _COLUMNS or room < columns * 4:  # too narrow for columns: records below each other
            return self._records(lines, width)
        for line in lines:
            line += [[] for _ in range(columns - len(line))]
        widths = _shares([max(row_cells(line[at]) for line in lines) for at in range(columns)], room)
        rows: list[Fragments] = []
        for number, line in enumerate(lines):
            wrapped = [wrap(cell, widths[at]) for at, cell in enumerate(line)]
            for height in range(max(map(len, wrapped))):
                row: Fragments = []
                for at, cell in enumerate(wrapped):
                    part = cell[height] if height < len(cell) else []
                    blank = ("", " " * (widths[at] - row_cells(part)))
                    between = [(self._theme.dim, " │ ")] if at else []
                    row += [*between, blank, *part] if at in right else [*between, *part, blank]
                rows.append(row)
            if number == 0:
                rows.append([(self._theme.dim, "─┼─".join("─" * size for size in widths))])
        return rows

    def _records(self, lines: list[list[Fragments]], width: int) -> list[Fragments]:
        names, *records = lines
        rows: list[Fragments] = []
        for record in records:
            rows += [[]] if rows else []
            for name, cell in zip(names, record, strict=False):
                rows += hang(wrap([*name, ("", ": "), *cell], max(width - 2, 10)), ("", ""), ("", "  "))
        return rows

    def _inline(self, tokens: Sequence[Token], style: str) -> Fragments:
        """Return the inline content of a line, with its styles."""
        row: Fragments = []
        theme = self._theme
        styles = [style]
        links: list[tuple[str, int]] = []
        for token in itertools.chain.from_iterable(each.children or () for each in tokens):
            now = " ".join(dict.fromkeys(" ".join(styles).split()))
            match token.type:
                case "strong_open":
                    styles.append("bold")
                case "em_open":
                    styles.append("italic")
                case "s_open":
                    styles.append("strike")
                case "link_open":
                    styles.append(theme.link)
                    links.append((_leads(token, "href"), len(row)))
                case "link_close":
                    styles.pop()
                    self._target(row, *links.pop())
                case "strong_close" | "em_close" | "s_close":
                    styles.pop()
                case "softbreak":
                    row.append((now, " "))
                case "hardbreak":
                    row.append((now, "\n"))
                case "code_inline":
                    row.append((f"{now} {theme.inline}".strip(), visible(token.content, lines=False)))
                case "image":
                    words = visible(token.content, lines=False, prose=True)
                    row.append((now, f"[image: {words}]" if words else "[image]"))
                    self._target(row, _leads(token, "src"), len(row))
                case _:
                    row.append((now, visible(token.content, lines=False, prose=True)))
        return row

    def _target(self, row: Fragments, target: str, start: int) -> None:
        """Append the target of a link to `row`, unless the text since `start` is the target itself."""
        address = visible(target, lines=False)
        words = "".join(text for _, text in row[start:])
        if address and words not in (address, address.removeprefix("mailto:")):
            row.append((self._theme.dim, f" ({cut(address, 300)})"))


def _leads(token: Token, where: str) -> str:
    """Return the target of a link or an image, with its title."""
    title = token.attrGet("title")
    return str(token.attrGet(where) or "") + (f' "{title}"' if title else "")


def _closing(tokens: Sequence[Token], place: int) -> int:
    """Return the index of the token that closes the one at `place`."""
    depth = 0
    for at in range(place, len(tokens)):
        depth += tokens[at].nesting
        if depth <= 0:
            return at
    return len(tokens)


def _shares(wanted: list[int], room: int) -> list[int]:
    """Return the width of each column: its natural width, or less for the widest columns if there is not enough
    room.
    """
    widths = [max(size, 1) for size in wanted]
    while (over := sum(widths) - room) > 0:
        widest = max(widths)
        second = max((size for size in widths if size < widest), default=1)
        those = [at for at, size in enumerate(widths) if size == widest]
        less = min(max(over // len(those), 1), max(widest - second, 1))
        for at in those[: max(over, 1)]:
            widths[at] -= less
    return widths
