"""The record of a compaction: which parts of a conversation the model is shown in which shortened form."""

from dataclasses import replace

from policy.model.frozen import dataclass

PLACES = ("cut", "lined", "trimmed", "capped")


SPACE = 16_000  # characters of notes, and of the person's own words beside them


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """Places are counted in the history. What lies before `cut` is told by `notes` alone; before `lined`, results are
    one line; before `trimmed`, they lost their middle; before `capped`, nothing has more than `cap` characters.
    `space` is what notes have, in characters, and the same what the person said before `cut`."""

    cut: int = 0
    lined: int = 0
    trimmed: int = 0
    capped: int = 0
    cap: int = 0
    notes: str = ""
    space: int = SPACE

    @property
    def end(self) -> int:
        """From here on the history is shown as it is."""
        return max(self.cut, self.lined, self.trimmed, self.capped)

    def turned(self, end: int) -> "CompactionRecord":
        """The same with places counted back from `end`, as a session file has them; and from those again as here."""
        return replace(self, **{name: min(max(end - getattr(self, name), 0), end) for name in PLACES})
