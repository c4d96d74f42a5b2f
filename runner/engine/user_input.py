"""Messages of a user to the model: the text for the model, and the text as typed."""

from collections.abc import Sequence

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class UserInput:
    """One message of a user.

    Attributes:
        text: The text for the model.
        typed: The text that is shown to users, such as a /command whose text is long. Empty if it is the same.
    """

    text: str
    typed: str = ""

    @property
    def shown(self) -> str:
        """Return the text as the user typed it."""
        return self.typed or self.text


def joined(several: Sequence[UserInput]) -> UserInput:
    """Return several messages as one prompt."""
    text = "\n\n".join(each.text for each in several)
    return UserInput(text, "\n\n".join(each.shown for each in several) if any(each.typed for each in several) else "")
