"""The changes of the information flow of a session, as its session file stores them."""

from enum import StrEnum

from policy.model.frozen import dataclass


class FlowEntryKind(StrEnum):
    """One kind of change of the information flow, as the session file names it."""

    START = "start"  # the flow is recorded from here on
    UNTRUSTED = "untrusted"
    PRIVATE = "private"
    TRUSTED = "trusted"  # words of the user, and destinations that the user approved
    APPROVED = "approved"  # a content of a file that is trusted later
    ENDORSED = "endorsed"  # a result that the user endorsed by its hash


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One change.

    Attributes:
        text: the source in words, the trusted text, or the path of the approved file.
        at: the local time as `14:02`; empty where it does not matter.
        sha256: the hash of the text or the content; empty without one.
    """

    kind: str
    text: str = ""
    at: str = ""
    sha256: str = ""
