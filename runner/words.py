"""What a person says to the model: the words that go to it, and those that were typed."""

from collections.abc import Sequence

from policy.record import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """`text` goes to the model. `typed` is what stands for it wherever a person reads it: a /command whose text is
    long; empty when it is the same."""

    text: str
    typed: str = ""

    @property
    def shown(self) -> str:
        return self.typed or self.text


def joined(several: Sequence[Words]) -> Words:
    """All of them as one prompt."""
    text = "\n\n".join(each.text for each in several)
    return Words(text, "\n\n".join(each.shown for each in several) if any(each.typed for each in several) else "")
