"""A question whose yes could not be kept is never asked."""

import pytest

from policy.action import RunScript
from policy.assessment import Assessment, Effect, EffectKind, Reason, RuleRef
from policy.matrix import Ruling
from policy.tier import Mode, Tier
from policy.verdict import _MINT, Allow, Ask, Cell, Deny, Permit, Problem, Rights, Terms, Verdict
from runner.reach import within_reach

ACTION = RunScript("curl https://example.com", "/w")
CELL = Cell(Tier.NETWORK, Mode.DEFAULT, Ruling.ASK)
REASON = Reason(Tier.NETWORK, "`curl` talks to example.com", RuleRef("x.toml", 1))


ASSESSED = Assessment(ACTION, (Effect(EffectKind.CONNECTS, "example.com"),), (REASON,))


def verdicts(*hosts: str) -> list[Verdict]:
    terms = Terms(Rights.LOOK, "/w", "/h", hosts=hosts)
    ask = Ask(ASSESSED, terms, CELL, REASON, "?")
    return [Allow(Permit(ACTION, terms, _MINT), CELL, REASON), ask]


@pytest.mark.threat("T06")
@pytest.mark.parametrize("verdict", verdicts("example.com"))
def test_named_hosts_are_refused_before_anybody_is_asked(verdict: Verdict) -> None:
    told = within_reach(verdict, ASSESSED)
    assert isinstance(told, Deny)
    assert "`example.com`" in told.problem.why


@pytest.mark.parametrize("verdict", verdicts())
def test_everything_else_passes_unchanged(verdict: Verdict) -> None:
    assert within_reach(verdict, ASSESSED) is verdict


def test_a_refusal_does_not_send_people_to_a_terminal_where_it_is_refused_too() -> None:
    refused = Deny(Problem("what", "why", "run it at a terminal, where you are asked first"), CELL, REASON)
    told = within_reach(refused, ASSESSED)
    assert isinstance(told, Deny)
    assert "terminal" not in told.problem.fix
    plain = Assessment(ACTION, (), (REASON,))
    assert within_reach(refused, plain) is refused
