"""The information flow in records: written with a decision, and read again to repeat it."""

from collections.abc import Mapping

from policy.flow.finding import FlowFinding, Sink
from policy.flow.state import FlowMode, FlowState, TextSource
from policy.model.frozen import dataclass
from runner.audit.fields import items, mapping, text

_MOST = 50  # findings of one record
_LONGEST = 500  # characters of one text


@dataclass(frozen=True, slots=True)
class RecordedFlow:
    """The information flow at one decision about an action after untrusted text.

    Attributes:
        mode: what the findings did.
        because: the sources of the untrusted text, in words.
        private: the source of private data that was read last; empty if there was none.
        findings: the findings about the action.
    """

    mode: FlowMode
    because: str
    private: str = ""
    findings: tuple[FlowFinding, ...] = ()

    def body(self) -> dict[str, object]:
        """Return the field `flow` of a decision."""
        return {
            "mode": self.mode.value,
            "because": self.because[:_LONGEST],
            "private": self.private[:_LONGEST],
            "findings": [
                {
                    "rule": str(each.rule),
                    "sink": each.sink.value,
                    "what": each.what[:_LONGEST],
                    "text": each.text[:_LONGEST],
                }
                for each in self.findings[:_MOST]
            ],
        }


def recorded_flow(state: FlowState | None, findings: tuple[FlowFinding, ...]) -> RecordedFlow | None:
    """Return the flow for the record, or None without untrusted text in the conversation."""
    if state is None or not state.untrusted:
        return None
    return RecordedFlow(state.mode, state.because, state.private[-1] if state.private else "", findings)


def flow_state(value: object, mode: FlowMode | None = None) -> FlowState | None:
    """Return the state that repeats the findings of a record, with another `mode` unless it is None. Return None for a
    record without the field. Raise ValueError for another form.
    """
    body: Mapping[str, object] = mapping(value)
    if not body:
        return None
    because, private = text(body.get("because")), text(body.get("private"))
    found = []
    for each in items(body.get("findings")):
        entry = mapping(each)
        sink = Sink(text(entry.get("sink")))
        of_private = private if "private-data" in text(entry.get("rule")) else ""
        found.append(FlowFinding(sink, text(entry.get("what")), because, of_private))
    source = TextSource(because)
    return FlowState(mode or FlowMode(text(body.get("mode"))), (source,), recorded=tuple(found))
