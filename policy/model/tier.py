"""The permission matrix: Tier x Mode -> allow, ask or deny."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class Tier(IntEnum):
    """One kind of risk. Larger is worse; `UNKNOWN` is the largest tier that a user can approve. `SECRET` and `DENIED`
    are always denied: no mode and no grant overrides them.
    """

    __hash__ = int.__hash__  # that of Enum is a Python function

    READ = 0
    WRITE = 1
    EXECUTE = 2
    AGENT_SPAWN = 3
    READ_OUTSIDE = 4
    NETWORK = 5
    WRITE_OUTSIDE = 6
    MCP_EXTERNAL = 7
    DANGEROUS = 8
    UNKNOWN = 9
    SECRET = 10
    DENIED = 11

    @property
    def label(self) -> str:
        """Return the name that a user types and reads: `read-outside`, not `READ_OUTSIDE`."""
        return self.name.lower().replace("_", "-")

    @property
    def shown(self) -> str:
        """Return the name that a user reads: `forbidden` for DENIED, whose label is also the word of a verdict."""
        return "forbidden" if self is Tier.DENIED else self.label

    def __str__(self) -> str:
        return self.label

    def __format__(self, spec: str) -> str:
        return format(self.label, spec)


class Mode(StrEnum):
    """The amount of autonomy of a session; the modes are the columns of the matrix."""

    __hash__ = str.__hash__  # that of Enum is a Python function

    PLAN = "plan"
    DEFAULT = "default"
    ACCEPT_EDITS = "accept-edits"
    TRUST_PROJECT = "trust-project"
    DONT_ASK = "dont-ask"
    DANGEROUSLY = "dangerously"


class Ruling(IntEnum):
    """The content of one cell of the matrix. Larger is stricter; the strictest ruling over all tiers of an action is
    the verdict before the users' rules apply.
    """

    __hash__ = int.__hash__  # that of Enum is a Python function

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


def no_looser(mode: Mode, than: Mode) -> bool:
    """Return True if no cell of `mode` is looser than the cell of `than` for the same tier."""
    return all(row[mode] >= row[than] for row in MATRIX.values())
