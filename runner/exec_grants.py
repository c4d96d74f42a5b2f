"""Grants for `agent exec` and `agent why`: the store of one action, and the question with what it may leave behind."""

import os

from policy.assessment import Assessment
from policy.grant import MAIN, Key, Span
from policy.permission.rule import Source
from policy.verdict import Verdict
from runner.approval_offer import Offer
from runner.gate import Gate
from runner.grant_store import GrantStore, Keep
from runner.places import state_dir
from runner.problems import say
from runner.remembered import Recalled, keep, offer, recalled

_SPANS = (Span.PROJECT,)  # there is no session that goes on


def recall(gate: Gate, assessment: Assessment, verdict: Verdict, source: Source, *, unattended: bool) -> "Asked":
    """What was answered before to the action of this gate."""
    store = GrantStore(state_dir(os.environ), Key(gate.facts.workspace, MAIN, ""), _notice, redact=_redact)
    context = gate.context(source, unattended=unattended)
    return Asked(store, recalled(context, assessment, verdict, store))


class Asked:
    """A verdict with what was answered before, and the store that an answer goes into."""

    def __init__(self, store: GrantStore, found: Recalled) -> None:
        self.store = store
        self.found = found

    @property
    def offer(self) -> Offer:
        """What the question may leave behind; empty when there is none."""
        question = self.found.question
        return offer(self.found.context, question, _SPANS, self.store) if question else Offer((), None, _SPANS)

    def keep(self, wanted: Keep) -> tuple[tuple[str, ...], str]:
        """Remember an answer; the names of the grants, and what the person is told."""
        assert self.found.question is not None, "an answer belongs to a question"
        return keep(self.found.context, self.found.question, wanted, self.store)


def _notice(text: str) -> None:
    say(f"notice: {text}")


def _redact(text: str) -> str:
    from runner.redactor import Redactor

    return Redactor(live=True, shapes=True).text(text)
