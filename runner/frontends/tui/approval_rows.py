"""A card as rows of the screen, and the ends of its parts, which must be seen before an approval counts."""

import re
from collections.abc import Sequence

from policy.model.frozen import dataclass
from policy.model.tier import Tier
from runner.approval.card import squeeze_blanks
from runner.event_values import Card, FileChange, Pick, TriedCommand
from runner.frontends.tui.rows import Fragments, cells, head, wrapped
from runner.frontends.tui.theme import Theme

_INDENT = "  "
_GOES_ON = "↳ "  # marks a row that continues a line, unlike a real newline
_BLANK = 3  # successive empty lines that are shown; more are replaced by their count
_LABEL = 8  # columns
_NAMED = 2  # paths that the summary line and the command name without a list
_SHORT = 7  # rows of a diff that is shown with few unchanged lines
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True, slots=True)
class Content:
    """The scrolling rows of a card.

    `ends` are the names and indices of the rows that must have been on the screen before an approval counts: the ends
    of the summary line, the command, the change, a try, the paths and the rights. An end has the same name at any
    width.
    """

    rows: tuple[Fragments, ...]
    ends: tuple[tuple[str, int], ...] = ()


def content(
    card: Card, again: str, width: int, theme: Theme, *, rest: Sequence[Fragments] = (), script: bool = True
) -> Content:
    """Return the card without badge and answers, in `width` columns.

    `rest` are the rows of the summary line that the rows with the badge do not show. With `script`, the command is one
    of a shell. `again` is a text above the card, or empty. The rights are those that differ from action to action;
    `detail_rows` has all of them.
    """
    rows: list[Fragments] = []
    ends: dict[str, int] = {}
    if again:
        rows += _text_rows(theme.warn, again, width)
    if card.change is None:
        rows += _command(card, width, theme, script=script)
        ends["command"] = len(rows) - 1
    else:  # the right to write names the path of the file
        rows += _change(card.change, width, theme)
        ends["change"] = len(rows) - 1
    if card.tried is not None:
        rows += _tried(card.tried, width, theme)
        ends["tried"] = len(rows) - 1
    for line in card.letters:
        rows += _labelled_rows("letters", line, width, theme.warn, theme)
    if card.special:
        rows += _labelled_rows("why", card.why, width, "", theme)
    elif card.change is None:
        rows += _labelled_rows("why", card.asks, width, "", theme)
    if rest:
        rows += [[("", "  … " if at == 0 else "    "), *row] for at, row in enumerate(rest)]
        ends["line"] = len(rows) - 1
    if len(card.paths) > _NAMED:
        for path in card.paths:
            rows += _text_rows("", path, width)
        ends["paths"] = len(rows) - 1
    for label, words in card.rights:
        rows += _labelled_rows(label, words, width, "", theme)
    for caveat in card.caveats:
        rows += _labelled_rows("but", caveat, width, theme.warn, theme)
    ends["rights"] = len(rows) - 1
    return Content(tuple(rows), tuple(ends.items()))


def detail_rows(card: Card, lines: tuple[str, ...], width: int, theme: Theme) -> tuple[Fragments, ...]:
    """Return the rows of the explanation: the reason, all rights, the answers that can be remembered in full, the other
    reasons, and `lines`, which are safe to show.
    """
    rows = _labelled_rows("why", f"{card.why} ({card.place}); {card.asks}", width, "", theme)
    for label, words in card.terms:
        rows += _labelled_rows(label, words, width, "", theme)
    for pick in card.choices:
        rows += _labelled_rows("/".join(pick.keys), pick_words(pick), width, "", theme)
    for line in ("", *card.more, *([""] if card.more else []), *lines):
        rows += _text_rows("", line, width)
    return tuple(rows)


def pick_words(pick: Pick) -> str:
    """Return exactly what an answer covers, with actions that it does not cover."""
    exceptions = f"; but not {' or '.join(pick.not_covered)}" if pick.not_covered else ""
    return f"{'yes, and' if pick.yes else 'no, and never'} {pick.where}: {pick.words}{exceptions}"


def pieces(card: Card, theme: Theme) -> list[tuple[str, str]]:
    """Return the command with the styles of its marks. A mark that does not match its words is ignored."""
    styled: list[tuple[str, str]] = []
    place = 0
    for mark in card.marks:
        if mark.start < place or card.command[mark.start : mark.end] != mark.text:
            continue
        styled.append(("", card.command[place : mark.start]))
        styled.append((f"{theme.bad if mark.tier >= Tier.DANGEROUS else theme.warn} bold underline", mark.text))
        place = mark.end
    return [(style, text) for style, text in (*styled, ("", card.command[place:])) if text]


def _command(card: Card, width: int, theme: Theme, *, script: bool) -> list[Fragments]:
    rows: list[Fragments] = []
    blank = 0
    lead = "$ " if script else _INDENT
    for line in _lines([(style, squeeze_blanks(text)) for style, text in pieces(card, theme)]):
        blank = blank + 1 if not "".join(text for _, text in line).strip() else 0
        if blank > _BLANK:
            rows[-1] = [(theme.dim, f"{_INDENT}⟨{blank} blank lines⟩")]
            continue
        rows += _broken(line, width, theme, lead)
        lead = _INDENT
    return rows


def _lines(fragments: list[tuple[str, str]]) -> list[Fragments]:
    lines: list[Fragments] = [[]]
    for style, text in fragments:
        first, *rest = text.split("\n")
        lines[-1].append((style, first))
        lines += [[(style, each)] for each in rest]
    return lines


def _broken(line: Fragments, width: int, theme: Theme, lead: str = _INDENT) -> list[Fragments]:
    """Break one line into as many rows as it needs, without losing a character. Takes time linear in its length."""
    room = max(width - len(_INDENT), 2)
    rows: list[Fragments] = [[(theme.dim, lead)]]
    free = room
    for style, text in line:
        at = 0
        while at < len(text):
            piece = text[at : at + free] if text.isascii() else head(text, free, at)
            if not piece:
                rows.append([(theme.dim, _GOES_ON)])
                free = room
                piece = head(text, free, at) or text[at]
            rows[-1].append((style, piece))
            free -= cells(piece)
            at += len(piece)
    return rows


def counts(change: FileChange) -> str:
    """Return the number of changed lines, to follow the summary line. Return nothing if no line changes."""
    if not change.new and not change.diff:
        return ""
    return f"  +{change.added}" if change.new else f"  +{change.added} -{change.removed}"


def _change(change: FileChange, width: int, theme: Theme) -> list[Fragments]:
    rows = _text_rows(theme.warn, change.note, width) if change.note else []
    styles = {"+": theme.added, "-": theme.removed, "@": theme.hunk}
    for line in brief_diff(change.diff):
        rows += _broken([(styles.get(line[:1], ""), line)], width, theme)
    if not change.diff and not change.note:
        rows += _text_rows(theme.dim, "an empty file" if change.new else "no line changes", width)
    return rows


def _tried(tried: TriedCommand, width: int, theme: Theme) -> list[Fragments]:
    """Return what a tried command printed, what it changed, and what can be kept."""
    rows: list[Fragments] = []
    for number, words in enumerate(tried.commands if len(tried.commands) > 1 else (), 1):
        rows += _broken([(theme.strong, f"command {number}: "), ("", words)], width, theme)
    for line in tried.output:
        rows += _broken([(theme.dim, "| "), ("", line)], width, theme)
    styles = {"+": theme.added, "-": theme.removed, "@": theme.hunk}
    for line in tried.diff:
        rows += _broken([(styles.get(line[:1], ""), line)], width, theme)
    for line in tried.notes:
        rows += _text_rows(theme.warn, line, width)
    for number, words in enumerate(tried.items, 1):
        rows += _broken([(theme.strong, f"{number:>4}"), ("", f"  {words}")], width, theme)
    return rows


def brief_diff(diff: tuple[str, ...]) -> tuple[str, ...]:
    """Return a diff with fewer unchanged lines, so that a short change needs few rows.

    The result has the most unchanged lines around each change, up to three, with which it takes at most `_SHORT` rows;
    a longer diff has one. Each hunk begins with the number of its first line in the new file.
    """
    if not any(map(_HUNK.match, diff)):  # a new file
        return diff
    for around in (3, 2, 1, 0):
        shorter = hunks_around(diff, around)
        if len(shorter) <= _SHORT:
            return shorter
    return hunks_around(diff, 1)


def hunks_around(diff: tuple[str, ...], around: int) -> tuple[str, ...]:
    """Return the diff with at most `around` unchanged lines before and after each change."""
    changed = [at for at, row in enumerate(diff) if row[:1] in "+-"]
    near = {at + off for at in changed for off in range(-around, around + 1)}
    rows: list[str] = []
    number, open_ = 1, False  # the number is 0 if it is unknown
    for at, row in enumerate(diff):
        if (begins := _HUNK.match(row)) is not None:
            number, open_ = int(begins[1]), False
        elif row.startswith("@"):  # the count of lines that are not shown
            rows.append(row)
            number, open_ = 0, False
        else:
            if row[:1] in "+-" or at in near:
                rows += [] if open_ else [f"@@ line {number} @@" if number else "@@ @@"]
                rows.append(row)
                open_ = True
            else:
                open_ = False
            number += row[:1] != "-" and number > 0
    return tuple(rows)


def _text_rows(style: str, text: str, width: int) -> list[Fragments]:
    return [[("", _INDENT), *row] for row in wrapped(style, text, width - len(_INDENT))]


def _labelled_rows(label: str, text: str, width: int, style: str, theme: Theme) -> list[Fragments]:
    rows = wrapped(style, text, max(width - len(_INDENT) - _LABEL - 1, 2))
    lead = [f"{label:<{_LABEL}} ", *[" " * (_LABEL + 1)] * (len(rows) - 1)]
    return [[("", _INDENT), (theme.dim, begin), *row] for begin, row in zip(lead, rows, strict=True)]
