"""A range of the text of a script."""

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """Half-open range of code points in the script: `script[start:end]`."""

    start: int
    end: int
