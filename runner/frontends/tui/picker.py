"""The panel with a list to choose from: letters search, Enter takes the selected row, Escape closes the list."""

import time
from collections.abc import Callable, Sequence

from runner.frontends.slash.command import Row
from runner.frontends.tui.menu import best
from runner.frontends.tui.panel import Done, Guard, Panel, PanelStep, Unanswered
from runner.frontends.tui.rows import Fragments, cells, cut, fit
from runner.text.sanitize import one_line

_LONGEST = 300  # characters of a text
_MOST = 15  # rows of the list that are shown
_LABELS = 0.6  # of the width: labels are never cut to less than this, however long the details are
_AROUND = 4  # columns before a label, and between a label and its detail
_MOVES = frozenset({"up", "down", "pageup", "pagedown", "tab", "s-tab", "c-p", "c-n"})


class ListGuard:
    """The guard of a list that the user did not ask for, against keys that were typed for something else.

    No key counts until the list has been on the screen for a moment. Enter does not count, either, until a moment after
    the last key that may be a part of a text: a sentence that is being typed ends with it. `clock` returns monotonic
    seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._appeared, self._typed = Guard(clock), Guard(clock)

    def drawn(self) -> None:
        """Note that the list is on the screen now."""
        self._appeared.drawn()
        self._typed.drawn()

    def ignored(self, key: str) -> str:
        """Return why `key` is ignored; empty if it counts."""
        if key not in ("enter", *_MOVES):
            self._typed.pressed()
        if self._appeared.waiting():
            return "it was pressed while the list appeared"
        return "it followed another key at once; press it again" if key == "enter" and self._typed.waiting() else ""


class Picker(Panel[str | None]):
    """A Panel whose answer is the chosen row's value, or None. Labels and details of rows are searched.

    `guard` is for a list that the user did not ask for.
    """

    def __init__(self, title: str, rows: Sequence[Row], *, query: str = "", guard: ListGuard | None = None) -> None:
        self._guard = guard
        self._ignored = ""  # why the last key was ignored
        self._title = one_line(title, _LONGEST)
        self._rows = [_shown(row) for row in rows]
        self._matches: list[Row] = []
        self._at = 0
        self._search(query)
        if not query:
            self._at = next((place for place, row in enumerate(self._rows) if row.now), 0)

    def lines(self, width: int, rows: int) -> list[Fragments]:
        if self._guard is not None:
            self._guard.drawn()
        count = f"{len(self._matches)} of {len(self._rows)}" if len(self._matches) != len(self._rows) else ""
        drawn: list[Fragments] = [[("bold", self._title), ("", "  "), ("dim", count)]]
        drawn.append([("ansicyan", "? "), ("", self._query), ("reverse", " ")])
        room = max(min(rows - 3, _MOST), 1)
        first = max(min(self._at - room // 2, len(self._matches) - room), 0)
        column = self._label_column(width)
        for place, row in enumerate(self._matches[first : first + room], first):
            style, mark = ("bold ansicyan", "> ") if place == self._at else ("", "  ")
            if not row.detail:
                drawn.append([(style, mark + _cut(row.label, width - 2))])
                continue
            label = _cut(row.label, column)
            blanks = " " * (column - cells(label) + 2)
            drawn.append([(style, mark + label), ("dim", blanks + _cut(row.detail, width - column - _AROUND))])
        if not self._matches:
            drawn.append([("dim", "  no matches")])
        foot = ("dim", "Enter selects, Escape cancels, letters search")
        drawn.append([("ansiyellow", f"this key was ignored: {self._ignored}") if self._ignored else foot])
        return [fit(row, width) for row in drawn]

    def key(self, key: str) -> PanelStep[str | None]:
        self._ignored = self._guard.ignored(key) if self._guard is not None and key != "c-c" else ""
        if self._ignored:
            return Unanswered()
        match key:
            case "enter":
                return Done(self._matches[self._at].value) if self._matches else Unanswered()
            case "escape" | "c-c" | "c-d" | "c-g":
                return Done(None)
            case "up" | "c-p" | "s-tab":
                self._move(-1)
            case "down" | "c-n" | "tab":
                self._move(1)
            case "pageup":
                self._move(-_MOST, wrap=False)
            case "pagedown":
                self._move(_MOST, wrap=False)
            case "backspace" | "c-h":
                self._search(self._query[:-1])
            case "c-u" | "c-w":
                self._search("")
            case _ if len(key) == 1 and key.isprintable():
                self._search(self._query + key)
        return Unanswered()

    def _label_column(self, width: int) -> int:
        """Return the width of the labels: the longest label, cut only if that is needed to show more of the details."""
        detailed = [row for row in self._rows if row.detail]
        longest = max((cells(row.label) for row in detailed), default=0)
        details = max((cells(row.detail) for row in detailed), default=0)
        return min(longest, max(int(width * _LABELS), width - _AROUND - details, 1))

    def _move(self, by: int, *, wrap: bool = True) -> None:
        if count := len(self._matches):
            self._at = (self._at + by) % count if wrap else min(max(self._at + by, 0), count - 1)

    def _search(self, query: str) -> None:
        self._query, self._at = query[:_LONGEST], 0
        self._matches = best(
            query[:_LONGEST], self._rows, lambda row: f"{row.label} {row.detail}" if row.detail else row.label
        )


def _shown(row: Row) -> Row:
    """Return `row` with texts that are safe to show, and a mark behind the label of the value in force."""
    label = f"{one_line(row.label, _LONGEST)}{' (now)' if row.now else ''}"
    return Row(row.value, label, one_line(row.detail, _LONGEST), row.now)


def _cut(text: str, room: int) -> str:
    """Return `text` in at most `room` cells, cut behind a word if one ends in the second half of the room."""
    short = cut(text, max(room, 1))
    if short == text:
        return text
    words = short[:-1].rpartition(" ")[0].rstrip()
    return f"{words}…" if cells(words) > room // 2 and not text[len(short) - 1 : len(short)].isspace() else short
