"""The information-flow state of a session: the sources of untrusted text and of private data in its conversation.

Text is *trusted* (the user's words, configuration and answers), *workspace* (files of the project, and output of
commands without network) or *untrusted* (everything else). The label of a session is the least trusted one of the
labels of all texts in its conversation, and only rises.
"""

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from policy.flow.trusted_text import TrustedText
from policy.model.facts import Remotes
from policy.model.frozen import dataclass, field

if TYPE_CHECKING:
    from policy.flow.finding import FlowFinding


class FlowMode(StrEnum):
    """The effect of the rules about information flow."""

    OFF = "off"  # nothing is labelled
    NOTE = "note"  # labels are shown, and findings are recorded; no verdict changes
    GUARD = "guard"  # findings change verdicts


class Label(IntEnum):
    """The trust in a text. Larger is less trusted; the label of a conversation is the largest one of its texts."""

    TRUSTED = 0  # the user's words, configuration and answers
    WORKSPACE = 1  # files of the project, and output of commands without network over them
    UNTRUSTED = 2  # everything else

    @property
    def word(self) -> str:
        """Return the name that users read."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class TextSource:
    """One source of untrusted text in a conversation.

    Attributes:
        words: what the text is, as text for the user: `the page https://x.org/`.
        at: the local time when the text entered the conversation, as `14:02`; empty if it is not known.
        sha256: the hash of the text, by which the user can endorse it; empty if the text is not one result.
    """

    words: str
    at: str = ""
    sha256: str = ""

    @property
    def said(self) -> str:
        """Return the source with its time: `14:02 the page https://x.org/`."""
        return f"{self.at} {self.words}".strip()


@dataclass(frozen=True, slots=True)
class FlowState:
    """The basis of the rules about information flow, at one moment.

    Attributes:
        mode: what findings do.
        untrusted: the sources of untrusted text in the conversation, in the order of their arrival.
        private: the sources of private data that the session has read, in words.
        trusted: the trusted text: the user's words, the configuration, and the addresses known at the start.
        remotes: the remotes of the workspace's repository at the start of the session, or None if there is none.
        approved: pairs (path, SHA-256 of the content) of files that are trusted later and that the user approved.
        undo: True if what commands change is looked at afterwards, so that it can be taken back.
        copied: True if the workspace is a copy whose changes the user gets as a patch, which shows the change of every
            file that is trusted later.
        recorded: the findings of a recorded decision, in place of computed ones; None outside of a replay.
    """

    mode: FlowMode
    untrusted: tuple[TextSource, ...] = ()
    private: tuple[str, ...] = ()
    trusted: TrustedText = field(default_factory=TrustedText)
    remotes: Remotes | None = None
    approved: frozenset[tuple[str, str]] = frozenset()
    undo: bool = True
    copied: bool = False
    recorded: "tuple[FlowFinding, ...] | None" = None

    @property
    def label(self) -> Label:
        """Return the label of the session. Every session reads the workspace."""
        return Label.UNTRUSTED if self.untrusted else Label.WORKSPACE

    @property
    def because(self) -> str:
        """Return the latest sources of untrusted text in words: `14:02 the page x.org, and 2 more`."""
        latest = [each.said for each in reversed(self.untrusted)]
        more = len(latest) - 1
        return f"{latest[0]}{f', and {more} more' if more else ''}" if latest else ""
