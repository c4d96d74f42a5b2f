"""The result of reading a program in a small language: the common type of sed, awk and jq."""

from policy.model.frozen import dataclass
from policy.model.tier import Tier


@dataclass(frozen=True, slots=True)
class Reading:
    """The effects of a program. `tier` and `why` are set if it does more than transform its input; files are those that
    the program names.
    """

    tier: Tier = Tier.READ
    why: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


HARMLESS = Reading()


def unknown(why: str) -> Reading:
    return Reading(Tier.UNKNOWN, why)
