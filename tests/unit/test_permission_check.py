"""Tests of the lint of user rules: rules without effect, duplicates, and rules that open more than they seem to."""

from datetime import date

import pytest

from policy.model.profile import Layer
from policy.permission.dead_rules import RuleFinding, Severity
from policy.permission.lint import check
from tests.support.permission_machine import BOOK, PROFILE, rules
from tests.support.places import ROOT

DAY = date(2026, 6, 1)


def findings(text: str, layer: Layer = Layer.USER) -> tuple[RuleFinding, ...]:
    return check(rules(text, layer), BOOK, DAY, PROFILE)


# fmt: off
ERRORS = [
    # rule, code, a part of what is said, why
    ('allow run=["npm", "**", "x"]',                  "rest",       "no word may follow",      "`**` in the middle"),
    ('allow run=["npm", ["a", "**"]]',                "rest",       "no word may follow",      "as an alternative"),
    ('allow run=["npm test"]',                        "blank",      "no program is named",     "a text instead of words"),
    ('deny run=["git push"]',                         "blank",      "no program is named",     "it would protect nothing"),
    ('allow run=["sudo", "**"]',                      "never",      "tier `dangerous`",        "always asked"),
    ('allow run=["git", "push", "--force"]',          "never",      "`git push --force`",      "a dangerous flag"),
    ('allow run=["ls"] tier=["dangerous"]',           "never",      "no rule allows",          "a tier that no rule lifts"),
    ('allow run=["ls"] tier=["secret"]',              "never",      "no rule allows",          "a floor"),
    ('allow run=["ls"] tier=["denied"]',              "never",      "no rule allows",          "a floor"),
    ('allow run=["timeout", "**"]',                   "never",      "judged separately",       "a wrapper"),
    ('allow run=["env", "**"]',                       "never",      "judged separately",       "another"),
    ('allow run=["bash", "-c", "npm test"]',          "never",      "judged separately",       "a script given as text"),
    ('allow tool=["bash"]',                           "allow-what", "no command, path or host",     "that is a mode, not a rule"),
    ('allow tier=["network"]',                        "allow-what", "no command, path or host",     "so is this"),
    ('allow write=["docs/**"] tier=["execute"]',      "tier",       "none of its tiers",       "paths allow no execution"),
    ('allow run=["ls"] tool=["read"]',                "tool",       "never applies to",        "commands are bash"),
    ('deny write=["docs/**"] tool=["grep"]',          "tool",       "never applies to",        "it writes nothing"),
    ('deny read=["docs/**"] tool=["write"]',          "tool",       "never applies to",        "it reads nothing"),
    ('deny host=["x.org"] tool=["edit"]',             "tool",       "never applies to",        "it connects to nobody"),
    ('deny write=["docs/"]',                          "path",       "docs/**",                 "a folder with a slash"),
    ('deny write=["./docs/**"]',                      "path",       "`..` are resolved",      "paths are resolved"),
    ('deny write=["../x"]',                           "path",       "`..` are resolved",      "paths are resolved"),
    ('deny write=["a//b"]',                           "path",       "it contains `//`",           "never like that"),
    ('deny write=["docs/**.md"]',                     "path",       "whole names",             "`**` in a name"),
    ('deny write=["a/**/**/b"]',                      "path",       "the same as one",         "twice"),
    ('deny write=["~other/x"]',                       "path",       "only your own home",      "another home"),
    ('deny write=["/"]',                              "path",       "root or home folder",     "the root"),
    ('deny host=["https://x.org/a"]',                 "host",       "not the name of a host",  "an address"),
    ('deny host=["x.org/a"]',                         "host",       "not the name of a host",  "with a path"),
    ('deny host=["a b"]',                             "host",       "not the name of a host",  "a blank"),
    ('allow host=["x.org:99999"]',                       "host",        "is not a port",          "no such port"),
    ('allow host=["a*.x.org"]',                          "host",        "not a host name",     "what no proxy holds"),
    ('allow host=["*"]',                                 "host",        "the whole internet",     "everything"),
    ('allow read=["~/.ssh/**"]',                      "secret",     "no rule allows it",    "a secret"),
    ('allow read=["~/.ssh/config"]',                  "secret",     "no rule allows it",    "in a secret folder"),
    ('allow read=["/etc/shadow"]',                    "secret",     "no rule allows it",    "a secret file"),
    ('allow write=[".env"]',                          "secret",     "no rule allows it",    "a secret by its name"),
    ('allow write=["**/id_rsa"]',                     "secret",     "no rule allows it",    "anywhere"),
]
WARNINGS = [
    ('allow run=["*", "**"]',                         "broad",       "every command",          "everything"),
    ('allow run=["python3", "**"]',                   "broad",       "any code",               "an interpreter"),
    ('allow run=["bash", "*"]',                       "broad",       "any code",               "a shell"),
    ('allow run=["ls", "**"] tier=["unknown"]',       "broad",       "no command rule",          "an open end"),
    ('allow write=["**"]',                            "broad",       "every file",             "the workspace"),
    ('allow host=["*.org"]',                          "broad",       "most of the internet",   "a top level"),
    ('allow run=["gti", "log"]',                      "typo",        "`git`",                  "a slip of the finger"),
    ('deny run=["gti", "push"]',                      "typo",        "`git`",                  "protects nothing"),
    ('allow run=["frobnicate", "x"]',                 "no-facts",    "all it does",            "a program of one's own"),
    ('deny run=["frobnicate", "x"]',                  "no-facts",    "options before",         "a program of one's own"),
    ('deny write=["**/*.sql"]',                       "parser-only", "cannot prevent",         "no right says: anywhere"),
    ('deny write=["docs/**"] run=["cp"]',             "parser-only", "cannot prevent",         "other commands may"),
    ('deny read=["src/**/x.py"]',                     "parser-only", "cannot hide",            "no right says it"),
    ('allow run=["npm", "test", "&&", "x"]',          "operator",    "one command",            "never across operators"),
    ('allow run=["echo", "x", ">", "a"]',             "operator",    "one command",            "nor a redirection"),
    ('allow run=["make", "2>", "a"]',                 "operator",    "one command",            "with a number"),
    ('deny write=["{a,b}/x"]',                        "braces",      "not expanded",           "no braces in paths"),
]
QUIET = [
    'allow run=["npm", "run", ["build", "lint"], "**"]',
    'allow run=["./gradlew", "build"]',
    'allow run=["python3", "tools/check.py", "**"]',
    'allow run=["python3", "-m", "pytest", "**"]',
    'allow run=["git", "fetch", "**"] tier=["network"]',
    'allow write=["docs/**", "~/out/*.txt"]',
    'allow read=["/var/log/**"]',
    'allow host=["*.example.com", "10.0.0.1", "[::1]"]',
    'deny write=["migrations/**"]',
    'deny read=["private/**", "**/*.secret", "~/diary/**"]',
    'deny tool=["bash"]',
    'deny tier=["network"]',
    'ask run=["git", "commit", "**"]',
]
# fmt: on


@pytest.mark.threat("T51")
@pytest.mark.parametrize(("text", "code", "said", "why"), ERRORS, ids=[f"{row[0]}-{row[3]}" for row in ERRORS])
def test_a_rule_that_can_never_take_effect_is_an_error(text: str, code: str, said: str, why: str) -> None:
    found = [one for one in findings(text) if one.severity is Severity.ERROR]
    assert [one.code for one in found] == [code], why
    assert said in found[0].text + found[0].fix, why
    assert (found[0].ref.id, found[0].ref.line) == ("c.toml", 1)
    assert found[0].fix


@pytest.mark.parametrize(("text", "code", "said", "why"), WARNINGS, ids=[f"{row[0]}-{row[3]}" for row in WARNINGS])
def test_a_rule_that_says_more_or_less_than_it_seems_to_is_a_warning(text: str, code: str, said: str, why: str) -> None:
    found = [one for one in findings(text) if one.severity is not Severity.NOTICE]
    assert [(one.severity, one.code) for one in found] == [(Severity.WARNING, code)], why
    assert said in found[0].text, why


@pytest.mark.parametrize("text", QUIET)
def test_a_good_rule_is_no_trouble(text: str) -> None:
    assert not [one for one in findings(text) if one.severity is not Severity.NOTICE]


# fmt: off
PAIRS = [
    # rules, the finding: code, its line, the line of the other; why
    ('allow run=["npm", "test"]; deny run=["npm"]',                     ("shadowed", 1, 6), "deny is stronger"),
    ('deny run=["npm"]; allow run=["npm", "test"]',                     ("shadowed", 6, 1), "in whatever order"),
    ('allow run=["npm", "test"]; ask run=["npm", "*"]',                 ("shadowed", 1, 6), "ask is stronger, too"),
    ('ask run=["npm", "test"]; deny run=["npm"]',                       ("shadowed", 1, 6), "than a question"),
    ('allow run=["npm", "test"]; allow run=["npm", "**"]',              ("redundant", 1, 6), "a wider one"),
    ('allow run=["npm", "test"]; allow run=["npm", "test"]',            ("redundant", 6, 1), "the same twice"),
    ('allow run=["npm", "test"]; ask run=["npm", "test"]',              ("ambiguous", 6, 1), "two verdicts"),
    ('deny write=["docs/**"]; allow write=["docs/old/**"]',             ("shadowed", 6, 1), "a folder in a folder"),
    ('deny write=["docs/**"]; deny write=["docs/old/x"]',               ("redundant", 6, 1), "the same and more"),
    ('deny run=["npm"] tool=["bash"]; allow run=["npm"] tool=["bash"]', ("ambiguous", 7, 1), "with the same tool"),
    ('deny run=["npm"]; deny run=["npm"] source=["model"]',             ("redundant", 6, 1), "from whomever"),
]
APART = [
    ('allow run=["npm", "test"]; allow run=["npm", "run", "**"]', "other words"),
    ('allow run=["npm", "**"]; deny run=["npm", "publish"]', "an exception is no contradiction"),
    ('deny run=["npm"] source=["model"]; allow run=["npm"]', "a person may"),
    ('deny run=["npm"] tier=["network"]; allow run=["npm"]', "without network it may"),
    ('deny run=["npm"] until=2026-12-31; allow run=["npm", "test"]', "later it may"),
    ('deny run=["npm"] write=["docs/**"]; allow run=["npm", "test"]', "elsewhere it may"),
    ('allow run=["npm", "test"]; allow run=["npm", "test"] tier=["network"]', "another tier"),
    ('allow run=["npm", "**"]; allow run=["npm", "test"] host=["x.org"]', "a host is more"),
    ('allow write=["docs/**"]; allow read=["docs/**"]', "reading is not writing"),
    ('allow run=["npm", "test"]; allow run=["npm", "test", "**"] tool=["bash"]', "nearly the same"),
    ('deny run=["npm"] until=2026-01-01; allow run=["npm", "test"]', "over"),
]
# fmt: on


@pytest.mark.parametrize(("text", "expected", "why"), PAIRS, ids=[f"{row[0]}-{row[2]}" for row in PAIRS])
def test_two_rules_about_the_same(text: str, expected: tuple[str, int, int], why: str) -> None:
    found = [one for one in findings(text) if one.other is not None]
    assert [(one.code, one.ref.line, one.other.line) for one in found if one.other] == [expected], why
    assert "c.toml:" in found[0].text


@pytest.mark.parametrize(("text", "why"), APART, ids=[row[1] for row in APART])
def test_two_rules_that_both_count(text: str, why: str) -> None:
    assert not [one for one in findings(text) if one.other is not None], why


def test_an_allow_of_the_repository_is_an_error_and_its_denial_is_none() -> None:
    found = findings('allow run=["npm", "test"]; deny run=["npm", "publish"]', Layer.REPOSITORY)
    assert [(one.code, one.ref.line) for one in found if one.severity is Severity.ERROR] == [("repository", 1)]


def test_what_is_over_is_a_notice_and_nothing_else() -> None:
    found = findings('allow run=["sudo", "**"] until=2026-05-31')
    assert [(one.severity, one.code) for one in found] == [(Severity.NOTICE, "expired")]
    assert "2026-05-31" in found[0].text


def test_the_worst_comes_first() -> None:
    found = findings('deny run=["git", "push"]; allow run=["*", "**"]; allow run=["sudo", "ls"]')
    assert [one.severity for one in found] == sorted((one.severity for one in found), key=list(Severity).index)
    assert found[0].severity is Severity.ERROR


def test_the_rules_of_the_page_about_permissions_are_good_ones() -> None:
    from policy.permission.file import LISTS, permissions
    from policy.toml.schema import read

    page = (ROOT / "docs/guide/permissions.md").read_text()
    block = page.partition("\n## By rules")[2].partition("```toml\n")[2].partition("```")[0]
    found = permissions(read(block, "permissions.md", {}, LISTS), Layer.USER)
    assert len(found) == 6
    assert not [one for one in check(found, BOOK, DAY, PROFILE) if one.severity is not Severity.NOTICE]
