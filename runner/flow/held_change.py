"""A change of a file that was taken back until the user decides."""

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class HeldChange:
    """A change of a file that was taken back as soon as the action had ended, until the user decides.

    Attributes:
        path: The absolute path.
        text: The new content as text, or None if it is not a text that is stored.
        problem: Why the old content could not be brought back, in words; empty if it is back.
    """

    path: str
    text: str | None = None
    problem: str = ""
