"""Tests of rules with the verdict `try`: what they replace, and what they never weaken."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.decide import preview_of
from policy.evaluation import EvaluationContext
from policy.model.action import RunScript
from policy.model.assessment import Check
from policy.model.profile import Layer
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Allow, Ask, Deny, Verdict
from policy.permission.file import read_permissions
from policy.toml.schema import TomlError
from tests.support.grant_questions import evaluation_context
from tests.support.permission_machine import PROFILE, machine, rules

HERE = machine().workspace
TRY = 'try run=["npm", "run", "build", "**"]'


def context(text: str, mode: Mode = Mode.DEFAULT, layer: Layer = Layer.USER) -> EvaluationContext:
    base = evaluation_context(mode, "", machine())
    return replace(base, profile=replace(PROFILE, permissions=rules(text, layer)))


def word(verdict: Verdict) -> str:
    if isinstance(verdict, Ask):
        return "try" if verdict.tries else "ask"
    return "allow" if isinstance(verdict, Allow) else "deny"


def decided(text: str, script: str, mode: Mode = Mode.DEFAULT, layer: Layer = Layer.USER) -> str:
    return word(context(text, mode, layer).evaluate(RunScript(script, HERE))[1])


# fmt: off
ROWS: list[tuple[str, str, Mode, Layer, str, str]] = [
    (TRY, "npm run build",                     Mode.DEFAULT,       Layer.USER,       "try",   "in place of a question"),
    (TRY, "npm run build --watch",             Mode.DEFAULT,       Layer.USER,       "try",   "with further words"),
    (TRY, "npm run build",                     Mode.TRUST_PROJECT, Layer.USER,       "try",   "in place of an allow of the mode"),
    (TRY, "npm run build",                     Mode.DANGEROUSLY,   Layer.USER,       "try",   "in every mode that allows"),
    (TRY, "npm run build",                     Mode.PLAN,          Layer.USER,       "deny",  "never in place of a denial"),
    (TRY, "npm run build",                     Mode.DONT_ASK,      Layer.USER,       "deny",  "a mode that never asks asks nothing afterwards"),
    (TRY, "npm test",                          Mode.DEFAULT,       Layer.USER,       "ask",   "another command"),
    (TRY, "npm test",                          Mode.TRUST_PROJECT, Layer.USER,       "allow", "another command"),
    (TRY, "npm run build && npm test",         Mode.DEFAULT,       Layer.USER,       "ask",   "a command beside it that the rule does not name"),
    (TRY, "npm run build && npm test",         Mode.TRUST_PROJECT, Layer.USER,       "try",   "all of which the mode allows"),
    (TRY, "npm run build; echo x > ~/out/f",   Mode.DEFAULT,       Layer.USER,       "ask",   "a change outside"),
    (TRY, "npm run build | sh",                Mode.DEFAULT,       Layer.USER,       "ask",   "what cannot be read"),
    (TRY, "npm run build; cat ~/.ssh/id_rsa",  Mode.DEFAULT,       Layer.USER,       "deny",  "a secret"),
    (TRY, "npm run build; curl https://x.org", Mode.TRUST_PROJECT, Layer.USER,       "ask",   "a host"),
    (TRY, 'X=$(cat f); npm run "$X"',          Mode.DEFAULT,       Layer.USER,       "ask",   "a word known only at run time"),
    (TRY, "npm run build",                     Mode.DEFAULT,       Layer.REPOSITORY, "ask",   "a repository does not replace a question"),
    (TRY, "npm run build",                     Mode.TRUST_PROJECT, Layer.REPOSITORY, "try",   "but narrows an allow"),
    (TRY, "npm run build",                     Mode.DEFAULT,       Layer.TRUSTED,    "try",   "unless its content is trusted"),
    (f'{TRY}; ask run=["npm"]',                "npm run build", Mode.DEFAULT, Layer.USER, "ask",  "a question is stronger"),
    (f'{TRY}; deny run=["npm"]',               "npm run build", Mode.DEFAULT, Layer.USER, "deny", "and so is a denial"),
    (f'{TRY}; allow run=["npm", "**"]',        "npm run build", Mode.DEFAULT, Layer.USER, "try",  "an allow is weaker"),
    (f'{TRY}; allow run=["npm", "**"]',        "npm run build && npm test", Mode.DEFAULT, Layer.USER, "try", "and covers the rest"),
    (f'{TRY}; deny write=["docs/**"]',         "npm run build; touch docs/x", Mode.TRUST_PROJECT, Layer.USER, "deny", "a denied path"),
    ('try run=["npm", "ci"] tier=["write", "execute", "network"]', "npm ci", Mode.DEFAULT, Layer.USER, "try", "without the network it may fail"),
    ('try run=["npm", "ci"]',                  "npm ci", Mode.DEFAULT, Layer.USER, "ask", "unless the tier is named"),
    ('try run=["git", "reset", "**"]',         "git reset --hard", Mode.DEFAULT, Layer.USER, "ask", "never what is dangerous"),
    ('try run=["npm", "run", "build"] source=["person"]', "npm run build", Mode.DEFAULT, Layer.USER, "ask", "of another source"),
]
# fmt: on


@pytest.mark.threat("T313")
@pytest.mark.parametrize(("text", "script", "mode", "layer", "expected", "why"), ROWS, ids=[row[-1] for row in ROWS])
def test_what_a_rule_tries(text: str, script: str, mode: Mode, layer: Layer, expected: str, why: str) -> None:
    assert decided(text, script, mode, layer) == expected, why


SCRIPTS = ("npm run build", "npm run build x", "npm test", "npm run build && npm test", "npm run build > docs/a.md",
           "npm run build | sh", "cd docs && npm run build", "npm ci", "sh -c 'npm run build'", "FOO=1 npm run build",
           "npm run build; curl https://x.org", "rm -rf src; npm run build")  # fmt: skip
ORDER = {"allow": 0, "try": 1, "ask": 2, "deny": 3}


@pytest.mark.threat("T313")
@given(
    st.sampled_from(SCRIPTS),
    st.sampled_from(Mode),
    st.sampled_from(['ask run=["npm"]', 'allow run=["npm", "**"]', 'deny run=["npm", "test"]', ""]),
    st.sampled_from([Layer.USER, Layer.REPOSITORY]),
)
def test_a_try_is_never_looser_than_a_rule_that_allows_and_of_a_repository_than_none(
    script: str, mode: Mode, other: str, layer: Layer
) -> None:
    base = context(other, mode)
    tried = base.with_rules(rules(TRY, layer)).evaluate(RunScript(script, HERE))[1]
    if layer is Layer.REPOSITORY:
        without = base.evaluate(RunScript(script, HERE))[1]
    else:
        without = base.with_rules(rules(TRY.replace("try", "allow"))).evaluate(RunScript(script, HERE))[1]
    assert ORDER[word(tried)] >= ORDER[word(without)]
    if isinstance(tried, Ask) and tried.tries:
        shown = preview_of(tried)
        assert shown.reason.rule == Check.TRIED
        assert (shown.permit.terms.hosts, shown.permit.terms.credentials) == ((), ())


def test_it_is_a_question_where_nothing_can_be_tried() -> None:
    """The verdict is an Ask, so that a caller which knows nothing of tries asks before anything runs."""
    verdict = context(TRY).evaluate(RunScript("npm run build", HERE))[1]
    assert isinstance(verdict, Ask)
    assert verdict.cell.ruling is Ruling.ASK
    assert "tries `npm run build **`: said so" in verdict.question
    assert isinstance(context(TRY).evaluate(RunScript("npm run build", HERE), unattended=True)[1], Deny)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ('run = ["make"]\nhost = ["x.org"]', "no network and no path outside"),
        ('run = ["make"]\nwrite = ["docs/**"]', "no network and no path outside"),
        ('run = ["make", "a"]\nrights = ["--host x.org"]', "only a rule that allows can add rights"),
        ('tool = ["bash"]', "no network and no path outside"),
        ('tier = ["execute"]', "only a command can be tried"),
    ],
)
def test_a_rule_names_a_command_and_nothing_else(keys: str, why: str) -> None:
    with pytest.raises(TomlError, match=why):
        read_permissions(f'[[rule]]\nverdict = "try"\nwhy = "w"\n{keys}\n', "f", Layer.USER)


def test_the_reason_is_needed() -> None:
    with pytest.raises(TomlError, match="`why` is missing"):
        read_permissions('[[rule]]\nverdict = "try"\nrun = ["make"]\n', "f", Layer.USER)
