"""The completion menu for the word at the cursor: /commands and @files, in a list below the input."""

from collections.abc import Callable, Sequence

from policy.model.frozen import dataclass
from runner.frontends.tui.fragments import Fragments, fit
from runner.text.sanitize import one_line

_MOST = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One proposal.

    Attributes:
        text: The text that replaces the typed word.
        ready: True if the input is complete with it, so that Enter may send it.
        more: True if an argument may follow.
    """

    text: str
    note: str = ""
    ready: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Proposals:
    """The proposals for the text from `start` to the cursor."""

    start: int
    entries: Sequence[Entry]


Source = Callable[[str], Proposals | None]  # given the text before the cursor; must be quick


class Menu:
    """Follows what is typed, and nothing else. After Escape it is closed until the text changes."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._found: Proposals | None = None
        self._at = 0
        self._moved = False  # by the person
        self._for = ""  # the text that the proposals are for
        self._closed_for: str | None = None

    @property
    def open(self) -> bool:
        return self._found is not None

    def follow(self, before: str) -> None:
        """Update the menu after typing; `before` is the text before the cursor."""
        if before == self._closed_for:
            return
        found = next((found for source in self._sources if (found := source(before)) is not None), None)
        entries = found.entries[:200] if found is not None else ()
        self._found = Proposals(found.start, entries) if found is not None and entries else None
        self._for, self._closed_for, self._at, self._moved = before, None, 0, False

    def leave(self, before: str) -> None:
        """Close the menu, because the text or the cursor changed otherwise."""
        if before != self._for:
            self._found = None

    def close(self, before: str) -> None:
        self._found, self._closed_for = None, before

    def reopen(self) -> None:
        """Propose again what was closed."""
        self._closed_for = None

    def move(self, by: int) -> None:
        if self._found is not None:
            self._at = (self._at + by) % len(self._found.entries)
            self._moved = True

    @property
    def chosen(self) -> tuple[int, Entry] | None:
        """Return the start of the replaced text and the selected proposal, or None."""
        return (self._found.start, self._found.entries[self._at]) if self._found is not None else None

    @property
    def meant(self) -> tuple[int, Entry] | None:
        """Return `chosen` for a key that sends, or None if the user neither began to type the proposal nor moved to
        it.
        """
        return self.chosen if self._moved or (self._found is not None and self._found.start < len(self._for)) else None

    def lines(self, width: int, rows: int) -> list[Fragments]:
        if self._found is None or rows < 1:
            return []
        room = min(rows, _MOST)
        entries = self._found.entries
        first = max(min(self._at - room // 2, len(entries) - room), 0)
        shown = entries[first : first + room]
        column = min(max(len(entry.text) for entry in shown) + 2, 40)
        drawn: list[Fragments] = []
        for place, entry in enumerate(shown, first):
            style = "bold ansicyan" if place == self._at else ""
            text = one_line(entry.text, 200)
            drawn.append([(style, f"  {text.ljust(column)}"), ("dim", one_line(entry.note, 200))])
        return [fit(row, width) for row in drawn]
