"""The record of a compaction: which parts of a conversation the model is shown in which shortened form."""

from dataclasses import replace

from policy.model.frozen import dataclass

PLACES = ("cut", "lined", "trimmed", "capped")


SPACE = 16_000  # characters of notes, and of the person's own words beside them


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """The shortened form of a conversation. Places are numbers of messages in the history.

    Attributes:
        cut: Messages before this place are replaced by `notes`.
        lined: Results before this place are shortened to one line.
        trimmed: Results before this place lost their middle.
        capped: Texts before this place have at most `cap` characters.
        cap: The largest number of characters of a capped text.
        notes: The notes about the messages before `cut`.
        space: The largest number of characters of the notes, and of the user's texts before `cut`.
    """

    cut: int = 0
    lined: int = 0
    trimmed: int = 0
    capped: int = 0
    cap: int = 0
    notes: str = ""
    space: int = SPACE

    @property
    def end(self) -> int:
        """Return the place from which on the history is sent unchanged."""
        return max(self.cut, self.lined, self.trimmed, self.capped)

    def turned(self, end: int) -> "CompactionRecord":
        """Return a copy with places counted back from `end`, as a session file stores them. Applying it twice gives the
        original.
        """
        return replace(self, **{name: min(max(end - getattr(self, name), 0), end) for name in PLACES})
