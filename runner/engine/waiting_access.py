"""The interface to the list of changes that wait for a decision at the end of a turn."""

from typing import TYPE_CHECKING, Protocol

from runner.events import Notice

if TYPE_CHECKING:
    from runner.events import Emit


class WaitingChanges(Protocol):
    """Changes that wait. `runner.engine.waiting.WaitingList` implements it."""

    def discard(self) -> None:
        """Remove them."""

    def set_aside(self) -> str:
        """Remove them after they were stored as a patch for the user, and return in words where it is."""


class TurnTries:
    """The commands that rules try in the turns of one agent.

    Attributes:
        list: The changes that wait for a decision, or None.
        open: True while a turn is in progress.
        asks: True if the user is asked although the turn was stopped: the user stopped it, and stays.
    """

    def __init__(self) -> None:
        self.list: WaitingChanges | None = None
        self.open = False
        self.asks = False
        self._news: list[str] = []

    def begin(self) -> None:
        """Begin a turn."""
        self.open, self.asks = True, False

    def note(self, text: str) -> None:
        """Keep a decision for the model."""
        self._news.append(text)

    def news(self) -> str:
        """Return, once, the decisions that the model was not told of yet, or an empty text."""
        news, self._news = self._news, []
        return "".join(f"\n[note of the program] {each} [end of the note]" for each in news)

    def lose(self, why: str, emit: "Emit") -> None:
        """Discard the changes because of `why`, and report it."""
        if self.list is not None:
            self.list.discard()
            self.list = None
            text = f"the changes of the tried commands of this turn were discarded: {why}"
            self.note(text)
            emit(Notice(text))

    def leave(self, why: str, emit: "Emit") -> None:
        """Discard the changes because no user can be asked, and store them as a patch for the user."""
        if self.list is not None:
            left, self.list = self.list, None
            text = f"nothing of the tried commands of this turn was kept, because {why}; {left.set_aside()}"
            self.note(text)
            emit(Notice(text))
