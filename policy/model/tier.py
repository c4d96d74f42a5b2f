"""The kinds of risk and the modes: the two sides of the matrix."""

from enum import IntEnum, StrEnum


class Tier(IntEnum):
    """One kind of risk. Larger is worse; `UNKNOWN` is the largest that a person can approve.

    `SECRET` and `DENIED` are floors: no mode and no grant lifts them.
    """

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


class Mode(StrEnum):
    """The amount of autonomy of a session; the modes are the columns of the matrix."""

    PLAN = "plan"
    DEFAULT = "default"
    ACCEPT_EDITS = "accept-edits"
    TRUST_PROJECT = "trust-project"
    DONT_ASK = "dont-ask"
    DANGEROUSLY = "dangerously"
