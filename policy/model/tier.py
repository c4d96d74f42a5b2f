"""The kinds of risk and the modes: the two sides of the matrix."""

from enum import IntEnum, StrEnum


class Tier(IntEnum):
    """One kind of risk. Larger is worse; "I cannot tell" is the largest that a person may still accept.

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
        """The name a user types and reads: `read-outside`, not `READ_OUTSIDE`."""
        return self.name.lower().replace("_", "-")


class Mode(StrEnum):
    """How much a session may do without a question; the columns of the matrix."""

    PLAN = "plan"
    DEFAULT = "default"
    ACCEPT_EDITS = "accept-edits"
    TRUST_PROJECT = "trust-project"
    DONT_ASK = "dont-ask"
    DANGEROUSLY = "dangerously"
