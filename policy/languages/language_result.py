"""The result of reading a program in a small language: the common type of sed, awk and jq."""

from policy.model.frozen import dataclass
from policy.model.tier import Tier


@dataclass(frozen=True, slots=True)
class Reading:
    """The effects of a program in a small language.

    Attributes:
        tier: READ if the program only transforms its input, reads and writes files.
        why: the reason for another tier, as a phrase; empty for READ.
        reads: files that the program names and reads, besides its input.
        writes: files that the program names and writes.
    """

    tier: Tier = Tier.READ
    why: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


HARMLESS = Reading()


def unknown_reading(why: str) -> Reading:
    """Return the result for a program that cannot be judged, for the reason `why`."""
    return Reading(Tier.UNKNOWN, why)
