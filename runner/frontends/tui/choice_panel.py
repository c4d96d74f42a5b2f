"""A question with a few keys for its answers, each said in a row."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from policy.model.frozen import dataclass
from runner.frontends.tui.fragments import Fragments, fit, wrapped
from runner.frontends.tui.keypress_guard import Guard
from runner.frontends.tui.panel import Done, Edit, Stay
from runner.text.sanitize import visible

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way(Generic[T]):
    """One answer. With `edit`, it is a text that the person writes, which `value` is not asked for."""

    key: str
    words: str
    value: T | None = None
    edit: bool = False


class Choice(Generic[T]):
    """A Panel whose answer is a way's value, the text that was written, or `left` for Escape. Enter answers nothing,
    nor does a key that comes before somebody can have read the question."""

    def __init__(self, question: str, ways: Sequence[Way[T]], left: T) -> None:
        self._question = visible(question)
        self._ways = tuple(ways)
        self._left = left
        self._guard = Guard()

    def lines(self, width: int, rows: int) -> list[Fragments]:
        self._guard.drawn()
        room = max(rows - len(self._ways), 1)
        drawn = wrapped("bold", self._question, width)[:room]
        drawn += [[("bold ansicyan", f"  {way.key}"), ("", f"  {way.words}")] for way in self._ways]
        return [fit(row, width) for row in drawn]

    def key(self, key: str) -> Stay | Done[T | str] | Edit:
        if self._guard.early():
            return Stay()
        if key in ("escape", "c-d"):
            return Done(self._left)
        for way in self._ways:
            if key == way.key:
                return Edit("", way.words) if way.edit else Done(way.value if way.value is not None else self._left)
        return Stay()

    def edited(self, text: str | None) -> Stay | Done[T | str] | Edit:
        return Done(text) if text and text.strip() else Stay()
