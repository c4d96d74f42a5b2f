"""The panel that replaces the input until the user has answered it: a question, a list, a form."""

from typing import Generic, Protocol, TypeVar

from policy.model.frozen import dataclass
from runner.frontends.tui.fragments import Fragments

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stay:
    """Not answered yet; the panel is drawn again."""


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    """Answered: the panel goes away."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Edit:
    """The step in which the user changes `text` in the input, under `label`. The result goes to `Panel.edited`."""

    text: str
    label: str


Step = Stay | Done[T_co] | Edit


class Panel(Protocol[T_co]):
    """Text in it that was written by others went through `runner.text.sanitize` before it got here."""

    def lines(self, width: int, rows: int) -> list[Fragments]:
        """Return at most `rows` rows of at most `width` columns. Called before each drawing, so it must be fast."""
        ...

    def key(self, key: str) -> Step[T_co]:
        """Handle a key: a character, or prompt_toolkit's name of a key (`enter`, `escape`, `up`, `c-c`, `tab`).

        `c-c` answered with Stay stops the turn that asks, and with it the question.
        """
        ...

    def edited(self, text: str | None) -> Step[T_co]:
        """Take the result of an Edit; None if the user cancelled it."""
        return Stay()
