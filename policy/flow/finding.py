"""A finding of the rules about information flow: untrusted text may have caused what one action does."""

from enum import StrEnum

from policy.model.assessment import Check, Reason, RuleRef
from policy.model.frozen import dataclass
from policy.model.tier import Tier


class Sink(StrEnum):
    """One kind of action that untrusted text must not decide alone."""

    SENDS = "sends"  # data leaves the machine
    TRUSTED_LATER = "trusted-later"  # a file is changed whose content is trusted later
    DANGEROUS = "dangerous"  # the action has the tier dangerous


_RULES: dict[tuple[Sink, bool], RuleRef] = {
    (Sink.SENDS, False): Check.FLOW_NEW_DESTINATION,
    (Sink.SENDS, True): Check.FLOW_PRIVATE_DATA,
    (Sink.TRUSTED_LATER, False): Check.FLOW_TRUSTED_FILE,
    (Sink.TRUSTED_LATER, True): Check.FLOW_TRUSTED_FILE,
    (Sink.DANGEROUS, False): Check.FLOW_DANGEROUS,
    (Sink.DANGEROUS, True): Check.FLOW_DANGEROUS,
}


@dataclass(frozen=True, slots=True)
class FlowFinding:
    """One finding about one action.

    Attributes:
        sink: what the action does.
        what: the destination or the file, as text for the user; empty for a dangerous action.
        because: the source of the untrusted text, with its time.
        private: the source of private data that the session has read; empty if there is none.
    """

    sink: Sink
    what: str
    because: str
    private: str = ""

    @property
    def rule(self) -> RuleRef:
        """Return the rule that the finding is of."""
        return _RULES[self.sink, bool(self.private)]

    @property
    def text(self) -> str:
        """Return the finding as one sentence without its full stop."""
        match self.sink:
            case Sink.SENDS:
                did = f"it sends data to {self.what}, which neither you nor your configuration named"
            case Sink.TRUSTED_LATER:
                did = f"it changes {self.what}, which is trusted later"
            case Sink.DANGEROUS:
                did = "it is dangerous"
        private = f", and has read private data ({self.private})" if self.private else ""
        return f"{did}, after this conversation has read untrusted text ({self.because}){private}"

    @property
    def reason(self) -> Reason:
        """Return the reason of the question that the finding requires."""
        return Reason(Tier.READ, self.text, self.rule)
