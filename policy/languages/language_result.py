"""What a program in a small language would do: the common answer of sed, awk and jq."""

from policy.model.frozen import dataclass
from policy.model.tier import Tier


@dataclass(frozen=True, slots=True)
class Reading:
    """`tier` and `why` when it does more than transform its input; the files it names itself."""

    tier: Tier = Tier.READ
    why: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


HARMLESS = Reading()


def unknown(why: str) -> Reading:
    return Reading(Tier.UNKNOWN, why)
