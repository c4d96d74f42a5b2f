"""Conversion of a verdict to the texts that the session file stores. The audit log has the whole decision."""

from policy.model.verdict import Allow
from runner.audit.records import Decision
from runner.engine.tool_calls import Planned
from runner.gate.wording import action_words, cell_words
from runner.sessions.journal import Verdict
from runner.text.sanitize import one_line

_LONGEST = 1000  # characters of an action; the message that proposed it holds all of it


def verdict_of(planned: Planned, decision: Decision, record: int, cwd: str) -> Verdict:
    """Return the journal entry of the decision with the number `record`."""
    verdict, said = decision.verdict, decision.answer
    return Verdict(
        call=planned.call.of.id,
        tool=planned.call.name,
        action=one_line(action_words(planned.action, cwd), _LONGEST),
        tiers=tuple(tier.label for tier in decision.assessment.tiers),
        verdict="allow" if isinstance(verdict, Allow) else "deny",
        why=verdict.reason.text,
        rule=str(verdict.reason.rule),
        cell=cell_words(verdict.cell),
        record=record,
        answer=said.yes if said is not None else None,
        by=said.by if said is not None else None,
        feedback=said.feedback if said is not None else None,
    )
