"""A list to choose from: type a few letters, go up and down, Enter takes it, Escape takes nothing."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from policy.model.frozen import dataclass
from runner.frontends.tui.fragments import Fragments, fit
from runner.frontends.tui.fuzzy import best
from runner.frontends.tui.panel import Done, Edit, Stay
from runner.text.sanitize import one_line

T = TypeVar("T")

_LONGEST = 300
_MOST = 15  # rows of the list; a person types a letter rather than scroll further


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One row to choose. `text` is searched, and `note` is shown dim behind it. Both may be untrusted."""

    value: T
    text: str
    note: str = ""


class Picker(Generic[T]):
    """A Panel whose answer is the chosen row's value, or None."""

    def __init__(
        self, title: str, rows: Sequence[Row[T]], *, query: str = "", chosen: int = 0, empty: str = "nothing fits"
    ) -> None:
        self._title = one_line(title, _LONGEST)
        self._rows = [Row(row.value, one_line(row.text, _LONGEST), one_line(row.note, _LONGEST)) for row in rows]
        self._query = query
        self._empty = empty
        self._found = best(query, self._rows, _searched)
        self._at = min(chosen, max(len(self._found) - 1, 0))

    def lines(self, width: int, rows: int) -> list[Fragments]:
        count = f"{len(self._found)} of {len(self._rows)}" if len(self._found) != len(self._rows) else ""
        drawn: list[Fragments] = [[("bold", self._title), ("", "  "), ("dim", count)]]
        drawn.append([("ansicyan", "? "), ("", self._query), ("reverse", " ")])
        room = max(min(rows - 3, _MOST), 1)
        first = max(min(self._at - room // 2, len(self._found) - room), 0)
        for place, row in enumerate(self._found[first : first + room], first):
            here = place == self._at
            drawn.append(
                [("bold ansicyan" if here else "", ("> " if here else "  ") + row.text), ("dim", f"  {row.note}")]
            )
        if not self._found:
            drawn.append([("dim", f"  {self._empty}")])
        drawn.append([("dim", "Enter takes it, Escape leaves, letters search")])
        return [fit(row, width) for row in drawn]

    def key(self, key: str) -> Stay | Done[T | None] | Edit:
        match key:
            case "enter":
                return Done(self._found[self._at].value) if self._found else Stay()
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
        return Stay()

    def edited(self, text: str | None) -> Stay | Done[T | None] | Edit:
        return Stay()

    def _move(self, by: int, *, wrap: bool = True) -> None:
        if count := len(self._found):
            self._at = (self._at + by) % count if wrap else min(max(self._at + by, 0), count - 1)

    def _search(self, query: str) -> None:
        self._query, self._at = query[:_LONGEST], 0
        self._found = best(self._query, self._rows, _searched)


def _searched(row: Row[T]) -> str:
    return f"{row.text} {row.note}" if row.note else row.text
