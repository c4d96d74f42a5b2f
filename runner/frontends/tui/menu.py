"""The completion menu below the input, for a /command or an @file at the cursor, and the search by a few letters."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from policy.model.frozen import dataclass
from runner.frontends.tui.rows import Fragments, fit
from runner.text.sanitize import one_line

T = TypeVar("T")

_BREAKS = "/._- :"  # a character after one of these begins a word
_MOST = 8  # rows


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One proposal.

    Attributes:
        text: The text that replaces the typed word.
        note: A description, shown beside the text, or empty.
        ready: True if the input is complete with this text, so that Enter may send the input.
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
    entries: Sequence[MenuEntry]


ProposalSource = Callable[[str], Proposals | None]  # given the text before the cursor; must be quick


class Menu:
    """The menu of proposals for the text before the cursor. Escape closes the menu until the text changes."""

    def __init__(self, sources: Sequence[ProposalSource]) -> None:
        self._sources = tuple(sources)
        self._proposals: Proposals | None = None
        self._at = 0
        self._moved = False  # True if the user moved the selection
        self._for = ""  # the text that the proposals are for
        self._closed_for: str | None = None

    @property
    def open(self) -> bool:
        return self._proposals is not None

    def follow(self, before: str) -> None:
        """Update the menu after typing; `before` is the text before the cursor."""
        if before == self._closed_for:
            return
        proposals = next((each for source in self._sources if (each := source(before)) is not None), None)
        entries = proposals.entries[:200] if proposals is not None else ()
        self._proposals = Proposals(proposals.start, entries) if proposals is not None and entries else None
        self._for, self._closed_for, self._at, self._moved = before, None, 0, False

    def leave(self, before: str) -> None:
        """Close the menu if `before` is not the text that its proposals are for."""
        if before != self._for:
            self._proposals = None

    def close(self, before: str) -> None:
        self._proposals, self._closed_for = None, before

    def reopen(self) -> None:
        """Allow proposals again for the text for which the menu was closed."""
        self._closed_for = None

    def move(self, by: int) -> None:
        if self._proposals is not None:
            self._at = (self._at + by) % len(self._proposals.entries)
            self._moved = True

    @property
    def chosen(self) -> tuple[int, MenuEntry] | None:
        """Return the start of the replaced text and the selected proposal, or None."""
        return (self._proposals.start, self._proposals.entries[self._at]) if self._proposals is not None else None

    @property
    def meant(self) -> tuple[int, MenuEntry] | None:
        """Return `chosen` for a key that sends, or None if the user neither began to type the proposal nor moved to
        it.
        """
        begun = self._proposals is not None and self._proposals.start < len(self._for)
        return self.chosen if self._moved or begun else None

    def lines(self, width: int, rows: int) -> list[Fragments]:
        if self._proposals is None or rows < 1:
            return []
        entries = self._proposals.entries
        room = min(rows, _MOST)
        if len(entries) > room > 1:  # one row says how many there are
            room -= 1
        first = max(min(self._at - room // 2, len(entries) - room), 0)
        visible = entries[first : first + room]
        column = min(max(len(entry.text) for entry in visible) + 2, 40)
        drawn: list[Fragments] = []
        for place, entry in enumerate(visible, first):
            style = "bold ansicyan" if place == self._at else ""
            text = one_line(entry.text, 200)
            drawn.append([(style, f"  {text.ljust(column)}"), ("dim", one_line(entry.note, 200))])
        if len(visible) < len(entries):
            drawn.append([("dim", f"  {self._at + 1} of {len(entries)}; up and down scroll")])
        return [fit(row, width) for row in drawn]


def score(query: str, text: str) -> int | None:
    """Return the quality of the match of `text` with `query` (more is better), None if letters are missing.

    Case is ignored. The letters of each word of the query must occur in order.
    """
    lower, total = text.lower(), 0
    for word in query.lower().split():
        if (points := _word_score(word, lower)) is None:
            return None
        total += points
    return total


def best(query: str, rows: Iterable[T], text: Callable[[T], str], most: int | None = None) -> list[T]:
    """Return the rows that match `query`, best first, in their original order if they match equally well."""
    if not query.strip():
        return list(rows)[:most]
    scored = [(points, row) for row in rows if (points := score(query, text(row))) is not None]
    scored.sort(key=lambda each: -each[0])
    return [row for _, row in scored[:most]]


def _word_score(word: str, text: str) -> int | None:
    """Return the score of one word. A contiguous match scores more than scattered letters, the beginning of a word more
    than its middle, and a place near the end of a path more than one far from it.
    """
    at = text.rfind(word)
    if at >= 0:
        begins = at == 0 or text[at - 1] in _BREAKS
        return 1000 + 200 * begins + 100 * (at + len(word) == len(text)) - min(len(text) - at, 100)
    points, at = 0, -1
    for char in word:
        next_at = text.find(char, at + 1)
        if next_at < 0:
            return None
        points += 20 if next_at == at + 1 else 10 if next_at == 0 or text[next_at - 1] in _BREAKS else 1
        at = next_at
    return points - min(len(text), 100) // 10
