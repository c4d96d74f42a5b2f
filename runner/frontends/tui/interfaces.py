"""The interfaces that an App works with: the host of the conversation, and the screen that draws its events."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from runner.events import Event
from runner.frontends.tui.fragments import Fragments

if TYPE_CHECKING:
    from runner.frontends.tui.theme import Theme


class Screen(Protocol):
    """The renderer of the rows for the scrollback, and of the live rows above the input."""

    theme: "Theme"  # of what is drawn from now on

    def take(self, event: Event) -> None: ...

    def done(self) -> str:
        """ANSI text of whole lines since the last time; safe to write as it is."""
        ...

    def live(self, width: int, rows: int) -> list[Fragments]:
        """Return the unfinished rows: at most a third of the `rows` rows of the terminal."""
        ...

    def expand(self) -> bool:
        """Put the whole of what was folded last into `done`; whether there was something."""
        ...

    def halt(self) -> None:
        """End the live rows: calls that did not end were stopped."""
        ...


class Host(Protocol):
    """The host of the conversation. The event loop calls every method, and each of them returns soon."""

    @property
    def busy(self) -> bool: ...

    @property
    def waiting(self) -> Sequence[str]: ...

    def submit(self, text: str, *, later: bool = False) -> None:
        """Send a whole input; with `later`, behind the turn in progress."""
        ...

    def interrupt(self) -> bool:
        """Stop what is on its way; whether there was something that was not stopping already."""
        ...

    def take_back(self) -> Sequence[str]: ...

    def cycle_mode(self) -> None: ...
