"""Tests of the rule that `agent why` suggests: the narrowest one that really allows the action."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.classify import classify
from policy.decide import decide, open_reasons
from policy.model.action import Action, ReadFile, RunScript, WriteFile
from policy.model.tier import Mode, Tier
from policy.model.verdict import Allow, Verdict
from runner.gate.suggest import no_rule_lifts, read_rules, suggested
from tests.fuzz import fuzz_policy as fuzz
from tests.support.law import examples


def proposal(action: Action) -> str | None:
    assessment = classify(action, fuzz.facts(), fuzz.book(), fuzz.profile())
    return suggested(assessment, open_reasons(assessment, Mode.DEFAULT), fuzz.facts())


def judged_with(text: str, script: str) -> Verdict:
    profile = replace(fuzz.profile(), permissions=read_rules(text))
    assessment = classify(RunScript(script, fuzz.WORK), fuzz.facts(), fuzz.book(), profile)
    return decide(assessment, fuzz.facts(), profile, Mode.DEFAULT, unattended=True, environment=())


# script, the keys of the rules without their heads, a script that is close and must not be allowed by them
RULES = [
    ("npm test", ['run     = ["npm", "test"]'], "npm test -- --x"),
    ("make && pytest -q", ['run     = ["make"]', 'run     = ["pytest", "-q"]'], "make install"),
    ("touch a.txt", ['run     = ["touch", "a.txt"]'], "touch b.txt"),
    ("ls > src/list", ['write   = ["src/list"]'], "ls > list"),
    ("cat /etc/hostname", ['run     = ["cat", "/etc/hostname"]\nread    = ["/etc/hostname"]'], "cat /etc/fstab"),
    (
        "cat ~/letter.txt | wc",
        ['run     = ["cat", "/home/me/letter.txt"]\nread    = ["~/letter.txt"]'],
        "wc ~/letter.txt",
    ),
    ("frobnicate --x", ['run     = ["frobnicate", "--x"]'], "frobnicate"),
    ("echo 'rm \"q\"' | frob 'a b' 'c\"d' 'é'", ['run     = ["frob", "a b", "c\\"d", "é"]'], "frob a b"),
]


@pytest.mark.parametrize(("script", "tables", "close"), RULES, ids=[row[0] for row in RULES])
def test_a_suggested_rule_allows_exactly_that(script: str, tables: list[str], close: str) -> None:
    text = proposal(RunScript(script, fuzz.WORK))
    assert text == "\n\n".join(f'[[rule]]\nverdict = "allow"\n{table}' for table in tables)
    assert isinstance(judged_with(text, script), Allow)
    assert not isinstance(judged_with(text, close), Allow)


def test_a_file_tool_gets_a_rule_for_its_path() -> None:
    assert proposal(WriteFile(f"{fuzz.WORK}/src/new.py", "")) == '[[rule]]\nverdict = "allow"\nwrite   = ["src/new.py"]'
    assert proposal(ReadFile("/etc/hostname")) == '[[rule]]\nverdict = "allow"\nread    = ["/etc/hostname"]'


NONE = [
    ("ls", "allowed already"),
    ("sudo ls", "dangerous"),
    ("rm -rf .", "dangerous"),
    ("cat .env", "a secret"),
    ("npm test; sudo ls", "a part of it is dangerous"),
    ("rm *.log", "a pattern: no rule can name what it meets"),
    ("echo $x | xargs rm", "a path that nobody knows"),
    ("$x", "a program that nobody knows"),
    ("coproc ls", "a script that cannot be read"),
    ("frob ''", "an empty word"),
    ("frob 'a*'", "a word that would mean more in a rule"),
    ("; ".join(f"frob{number}" for number in range(6)), "too many"),
]


@pytest.mark.parametrize(("script", "why"), NONE, ids=[row[1] for row in NONE])
def test_no_rule_is_suggested(script: str, why: str) -> None:
    assert proposal(RunScript(script, fuzz.WORK)) is None, why


def test_what_no_rule_lifts_is_named() -> None:
    assert no_rule_lifts(fuzz.judge("sudo ls; npm test")) is Tier.DANGEROUS
    assert no_rule_lifts(fuzz.judge("cat .env")) is Tier.SECRET
    assert no_rule_lifts(fuzz.judge("npm test")) is None


@examples(150)
@given(st.sampled_from(fuzz.examples()))
def test_every_suggestion_can_be_read_back(script: str) -> None:
    text = proposal(RunScript(script, fuzz.WORK))
    if text is not None:
        assert len(read_rules(text)) == text.count("[[rule]]")
