"""Tests of approvals: an approval mints exactly what the question named; a refusal reaches the model in the user's
words.
"""

from dataclasses import replace

import pytest

from policy.decide import decide
from policy.grants.resolve import approve, approve_part, refuse
from policy.model.action import RunScript
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Profile
from policy.model.tier import Mode, Tier
from policy.model.verdict import UNNAMED, Ask, Permit

PROFILE = Profile((".ssh",), (), (), (), (), (), (), ())
FACTS = Facts("/w", "/home/u", (), (), (), lambda path: PathFact(path, Kind.FILE), lambda name: None)


def question() -> Ask:
    assessment = Assessment(
        RunScript("curl https://a.b", "/w"),
        (Effect(EffectKind.CONNECTS, "a.b"), Effect(EffectKind.READS, "/srv/x", Scope.OUTSIDE)),
        (Reason(Tier.NETWORK, "connects to a.b", RuleRef(RuleKind.USER, "x", 1)),),
    )
    found = decide(assessment, FACTS, PROFILE, Mode.DEFAULT, unattended=False, environment=())
    assert isinstance(found, Ask)
    return found


@pytest.mark.threat("T38")
def test_a_yes_grants_exactly_what_was_asked() -> None:
    ask = question()
    allowed = approve(ask)
    assert allowed.permit.action == ask.assessment.action
    assert allowed.permit.terms == ask.terms
    assert (allowed.cell, allowed.reason) == (ask.cell, ask.reason)
    assert (ask.terms.hosts, ask.terms.read, ask.terms.write) == (("a.b",), ("/srv/x",), ())


@pytest.mark.threat("T37")
@pytest.mark.parametrize("tier", [Tier.SECRET, Tier.DENIED])
def test_no_yes_lifts_a_floor(tier: Tier) -> None:
    ask = question()
    reason = Reason(tier, "floor", RuleRef(RuleKind.USER, "x", 1))
    forged = [
        replace(ask, assessment=replace(ask.assessment, reasons=(*ask.assessment.reasons, reason))),
        replace(ask, cell=replace(ask.cell, tier=tier)),
    ]
    for each in forged:
        with pytest.raises(ValueError, match="no approval allows"):
            approve(each)


@pytest.mark.parametrize(
    ("feedback", "why", "fix"),
    [
        (None, "the user at the terminal refused", "do it another way"),
        ("", "the user at the terminal refused", "do it another way"),
        ("  \n", "the user at the terminal refused", "do it another way"),
        (
            "use the cache instead",
            "the user at the terminal refused: use the cache instead",
            "follow that answer instead",
        ),
    ],
)
def test_a_no_reaches_the_model_in_the_persons_words(feedback: str | None, why: str, fix: str) -> None:
    ask = question()
    denied = refuse(ask, feedback)
    assert denied.problem.what == "`curl https://a.b` was refused"
    assert denied.problem.why == why
    assert denied.problem.fix.startswith(fix)
    assert (denied.cell, denied.reason) == (ask.cell, ask.reason)


def test_a_no_is_told_as_whose_it_was() -> None:
    assert refuse(question(), None, "program").problem.why == "the program that answers questions here refused"


@pytest.mark.threat("T29")
def test_a_permit_cannot_be_made_by_hand() -> None:
    ask = question()
    with pytest.raises(TypeError, match="minted by"):
        Permit(ask.assessment.action, ask.terms, object())  # type: ignore[arg-type]  # a forger has no mint


@pytest.mark.threat("T168")
def test_a_part_of_the_terms_is_approved_and_no_others() -> None:
    ask = question()
    full = ask.terms
    assert full.hosts
    assert full.read
    part = replace(full, hosts=(UNNAMED,), read=())
    assert approve_part(ask.assessment, ask, part).permit.terms == part
    for more in (
        {"hosts": (*full.hosts, "y.org")},
        {"read": (*full.read, "/srv")},
        {"write": ("/srv",)},
        {"unix": True},
    ):
        with pytest.raises(ValueError, match="terms"):
            approve_part(ask.assessment, ask, replace(full, **more))
