"""Tests of the limits of a backend: no question is asked about rights that the backend could not grant."""

import pytest

from policy.evaluation import within_backend
from policy.model.action import RunScript
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import (
    _MINT,
    Allow,
    Ask,
    Cell,
    Deny,
    Permit,
    Problem,
    Rights,
    Terms,
    Verdict,
)

ACTION = RunScript("curl https://example.com", "/w")
CELL = Cell(Tier.NETWORK, Mode.DEFAULT, Ruling.ASK)
REASON = Reason(Tier.NETWORK, "`curl` connects to example.com", RuleRef(RuleKind.USER, "x.toml", 1))


ASSESSED = Assessment(ACTION, (Effect(EffectKind.CONNECTS, "example.com"),), (REASON,))


def verdicts(*hosts: str, credentials: tuple[str, ...] = ()) -> list[Verdict]:
    terms = Terms(Rights.READ_ONLY, "/w", "/h", hosts=hosts, credentials=credentials)
    ask = Ask(ASSESSED, terms, CELL, REASON, "?")
    return [Allow(Permit(ACTION, terms, _MINT), CELL, REASON), ask]


RAW = Assessment(ACTION, (Effect(EffectKind.CONNECTS, "example.com", exact=False),), (REASON,))


@pytest.mark.threat("T06")
@pytest.mark.parametrize("verdict", verdicts("example.com"))
def test_named_hosts_are_refused_before_anybody_is_asked_where_none_can_be_opened(verdict: Verdict) -> None:
    told = within_backend(verdict, ASSESSED, "T3")
    assert isinstance(told, Deny)
    assert "`example.com`" in told.problem.why


@pytest.mark.parametrize("verdict", [*verdicts(), *verdicts("example.com")])
@pytest.mark.parametrize("backend", ["T1", "T2", "container", None])
def test_everything_else_passes_unchanged(verdict: Verdict, backend: str | None) -> None:
    assert within_backend(verdict, ASSESSED, backend) is verdict


@pytest.mark.threat("T85")
@pytest.mark.parametrize("verdict", verdicts("example.com", credentials=("forge",)))
def test_a_credential_is_not_added_where_others_could_use_it(verdict: Verdict) -> None:
    told = within_backend(verdict, ASSESSED, "seatbelt")
    assert isinstance(told, Deny)
    assert "`forge`" in told.problem.why
    assert within_backend(verdict, ASSESSED, "T1") is verdict


@pytest.mark.parametrize("verdict", verdicts())
def test_what_no_proxy_passes_on_is_refused_everywhere(verdict: Verdict) -> None:
    told = within_backend(verdict, RAW, "T1")
    assert isinstance(told, Deny)
    assert "proxy" in told.problem.why


@pytest.mark.parametrize(("assessed", "backend"), [(ASSESSED, "T3"), (RAW, None), (RAW, "T1")])
def test_a_refusal_does_not_send_people_to_a_terminal_where_it_is_refused_too(
    assessed: Assessment, backend: str | None
) -> None:
    refused = Deny(Problem("what", "why", "run it at a terminal, where you are asked first"), CELL, REASON)
    told = within_backend(refused, assessed, backend)
    assert isinstance(told, Deny)
    assert "terminal" not in told.problem.fix
    plain = Assessment(ACTION, (), (REASON,))
    assert within_backend(refused, plain, backend) is refused
    assert within_backend(refused, ASSESSED, "T1") is refused
