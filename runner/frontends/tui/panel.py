"""The panel that replaces the input until the user has answered it, and the guard against keys that were typed for
something else.
"""

import time
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, TypeVar

from policy.model.frozen import dataclass
from runner.frontends.tui.rows import Fragments

T_co = TypeVar("T_co", covariant=True)

GUARD, CAREFUL = 0.5, 1.0  # seconds without a key before a key answers; CAREFUL for a dangerous or unknown tier


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The step of a key that answered nothing. The panel is drawn again."""


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    """The step of an answer. The panel goes away."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Edit:
    """The step in which the user changes `text` in the input, under `label`. The result goes to `Panel.edited`."""

    text: str
    label: str


PanelStep = Unanswered | Done[T_co] | Edit


class Panel(Protocol[T_co]):
    """A question, a list or a form. A panel sanitizes untrusted text (`runner.text.sanitize`) before showing it.

    `alone` is True if a key that other keys follow at once must not count as an answer.
    """

    alone: ClassVar[bool] = False

    def lines(self, width: int, rows: int) -> list[Fragments]:
        """Return at most `rows` rows of at most `width` columns. Called before each drawing, so it must be fast."""
        ...

    def key(self, key: str) -> PanelStep[T_co]:
        """Handle a key: a character, or prompt_toolkit's name of a key (`enter`, `escape`, `up`, `c-c`, `tab`).

        If the step for `c-c` is Unanswered, the turn that asked the question is stopped.
        """
        ...

    def edited(self, text: str | None) -> PanelStep[T_co]:
        """Take the result of an Edit; None if the user cancelled it."""
        return Unanswered()


class Guard:
    """The time that a question has been on the screen without a key press. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet: float | None = None  # None: not on the screen yet

    def drawn(self) -> None:
        """Note that the question is on the screen now."""
        if self._quiet is None:
            self._quiet = self._clock()

    def hidden(self) -> None:
        """Note that the question, or another one in its place, must be drawn before it can be answered."""
        self._quiet = None

    def pressed(self) -> None:
        """Note a key that answers nothing: it may be a part of a text that is being typed."""
        if self._quiet is not None:
            self._quiet = self._clock()

    def early(self, seconds: float = GUARD) -> bool:
        """Return True if a key that is pressed now is ignored. Each ignored key restarts the wait of `seconds`."""
        early = self.waiting(seconds)
        self.pressed()
        return early

    def waiting(self, seconds: float = GUARD) -> bool:
        """Return True if the wait of `seconds` is not over. It goes on as if no key had been pressed."""
        return self._quiet is None or self._clock() - self._quiet < seconds
