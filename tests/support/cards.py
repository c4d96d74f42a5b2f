"""The approval card of an action."""

from policy.grants.grant import GrantHolder, GrantScope
from policy.model.tier import Mode
from runner.approval.card import card
from runner.approval.remembered import offer
from runner.event_values import Card
from runner.gate.grants.store import GrantStore
from tests.support.grant_questions import evaluation_context, question
from tests.support.permission_machine import machine

HERE = machine().workspace


def card_of(given: object, mode: Mode = Mode.DEFAULT, before: str | None = None) -> Card:
    """The card of a question as the gate would put it."""
    at = evaluation_context(mode)
    ask = question(given, at)  # type: ignore[arg-type]  # a script or an action
    store = GrantStore(None, GrantHolder(HERE, "main", "s"), lambda text: None)
    return card(ask, offer(at, ask, (GrantScope.SESSION, GrantScope.PROJECT), store), around=at.facts, before=before)
