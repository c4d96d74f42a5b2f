"""The permission matrix: Tier x Mode -> allow, ask or deny."""

from collections.abc import Mapping
from enum import IntEnum

from policy.model.tier import Mode, Tier


class Ruling(IntEnum):
    """One cell of the matrix. Larger is stricter; a verdict is the strictest cell over all tiers of an action."""

    ALLOW = 0
    ASK = 1
    DENY = 2


_A, _Q, _D = Ruling.ALLOW, Ruling.ASK, Ruling.DENY

Matrix = Mapping[Tier, Mapping[Mode, Ruling]]

# fmt: off
MATRIX: Matrix = {
    tier: dict(zip(Mode, row, strict=True))
    for tier, row in {
        #                    plan default accept trust dont-ask dangerously
        Tier.READ:          (_A,  _A,     _A,    _A,   _A,      _A),
        Tier.WRITE:         (_D,  _Q,     _A,    _A,   _A,      _A),
        Tier.EXECUTE:       (_D,  _Q,     _Q,    _A,   _A,      _A),
        Tier.READ_OUTSIDE:  (_D,  _Q,     _Q,    _Q,   _D,      _A),
        Tier.NETWORK:       (_D,  _Q,     _Q,    _Q,   _D,      _A),
        Tier.WRITE_OUTSIDE: (_D,  _Q,     _Q,    _Q,   _D,      _A),
        Tier.DANGEROUS:     (_D,  _Q,     _Q,    _Q,   _D,      _A),
        Tier.UNKNOWN:       (_D,  _Q,     _Q,    _Q,   _D,      _A),
        Tier.MCP_EXTERNAL:  (_D,  _Q,     _Q,    _Q,   _D,      _A),
        Tier.AGENT_SPAWN:   (_D,  _Q,     _Q,    _A,   _A,      _A),
        Tier.SECRET:        (_D,  _D,     _D,    _D,   _D,      _D),
        Tier.DENIED:        (_D,  _D,     _D,    _D,   _D,      _D),
    }.items()
}
# fmt: on
