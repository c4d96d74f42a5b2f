"""Hunks of the difference between two files, as the lines of a patch."""

from collections.abc import Iterator, Sequence

from policy.model.frozen import dataclass
from sandbox.inside.files.diff import Effort, around, changes, grouped

_USUAL = 4_000_000  # steps for one pair of texts: some seconds


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk of a patch.

    Attributes:
        old: first line in the old text, from 0, and the number of lines.
        new: first line in the new text, from 0, and the number of lines.
        lines: each line after ` `, `-` or `+`. A line has no line break at its end if the file has none there.
    """

    old: tuple[int, int]
    new: tuple[int, int]
    lines: tuple[bytes, ...]


def split(data: bytes) -> list[bytes]:
    """Return the lines with their line breaks, which are `\\n` alone. The last line may have no line break."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(old: Sequence[bytes], new: Sequence[bytes], effort: Effort | None = None) -> Iterator[Hunk]:
    """Yield the hunks that turn `old` into `new`, in order. `effort` is charged for the comparison."""
    own = Effort(_USUAL) if effort is None else Effort(min(_USUAL, effort.left), effort.over)
    given = own.left
    stretches = changes(old, new, own)
    if effort is not None:
        effort.left -= given - own.left
    for group in grouped(stretches):
        start, end, first, last = around(group, len(old))
        lines: list[bytes] = []
        at = start
        for old_start, old_end, new_start, new_end in group:
            lines += [b" " + line for line in old[at:old_start]]
            lines += [b"-" + line for line in old[old_start:old_end]]
            lines += [b"+" + line for line in new[new_start:new_end]]
            at = old_end
        lines += [b" " + line for line in old[at:end]]
        yield Hunk((start, end - start), (first, last - first), tuple(lines))
