"""Who an App works with: the one that a person talks to, and the one that draws what was said."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from runner.events import Event
from runner.frontends.tui.fragments import Fragments

if TYPE_CHECKING:
    from runner.frontends.tui.theme import Theme


class Screen(Protocol):
    """What goes up into the scrollback, and what is live above the input."""

    theme: "Theme"  # of what is drawn from now on

    def take(self, event: Event) -> None: ...

    def done(self) -> str:
        """ANSI text of whole lines since the last time; safe to write as it is."""
        ...

    def live(self, width: int, rows: int) -> list[Fragments]:
        """What is not finished, on a terminal of `rows` rows: at most a third of them."""
        ...

    def expand(self) -> bool:
        """Put the whole of what was folded last into `done`; whether there was something."""
        ...

    def halt(self) -> None:
        """Nothing is on its way any more: calls that did not end were stopped."""
        ...


class Host(Protocol):
    """Who the person talks to. Everything is called by the event loop, and returns soon."""

    @property
    def busy(self) -> bool: ...

    @property
    def waiting(self) -> Sequence[str]: ...

    def submit(self, text: str, *, later: bool = False) -> None:
        """A whole input; `later`: behind the turn, where one is on its way."""
        ...

    def interrupt(self) -> bool:
        """Stop what is on its way; whether there was something that was not stopping already."""
        ...

    def take_back(self) -> Sequence[str]: ...

    def cycle_mode(self) -> None: ...
