"""Tests of `[[rule]]` in files: the resulting rule, and the message for each mistake, with file and line."""

from datetime import date

import pytest

from policy.model.assessment import RuleKind, RuleRef
from policy.model.profile import Layer, PermissionRule, Source, Tool, narrow
from policy.model.tier import Ruling, Tier
from policy.permission.file import LISTS, permissions
from policy.toml.profile import parse_profile
from policy.toml.schema import TomlError, read
from tests.support.places import ROOT

PROFILE = parse_profile((ROOT / "profiles" / "default.toml").read_text(), "profiles/default.toml")


def rules(text: str, layer: Layer = Layer.USER) -> tuple[PermissionRule, ...]:
    return permissions(read(text, "c.toml", {}, LISTS), layer)


def test_every_key_of_a_rule_arrives() -> None:
    (rule,) = rules(
        """
[[rule]]
verdict = "allow"
run     = ["npm", "run", ["build", "lint"], "**"]
tool    = ["bash"]
read    = ["docs/**"]
write   = ["build/**", "~/out/*.txt"]
host    = ["*.Example.com"]
tier    = ["network", "read-outside"]
source  = ["model"]
why     = " the build is ours "
until   = 2026-12-31
"""
    )
    assert rule == PermissionRule(
        verdict=Ruling.ALLOW,
        ref=RuleRef(RuleKind.USER, "c.toml", 2),
        layer=Layer.USER,
        run=(("npm",), ("run",), ("build", "lint")),
        more=True,
        tool=(Tool.BASH,),
        read=("docs/**",),
        write=("build/**", "~/out/*.txt"),
        host=("*.example.com",),
        tier=(Tier.NETWORK, Tier.READ_OUTSIDE),
        source=(Source.MODEL,),
        why="the build is ours",
        until=date(2026, 12, 31),
    )
    assert rule.pattern == "npm run {build,lint} **"


def test_each_rule_has_its_own_line() -> None:
    text = '# one\n[[rule]] # first\nverdict="allow"\nrun=["a"]\n\n\n[[ rule ]]\nverdict="allow"\nrun=[\n "b",\n]\n'
    assert [rule.ref.line for rule in rules(text)] == [2, 7]


# fmt: off
MISTAKES = [
    # the rule, line of the complaint, a part of it, why it is a mistake
    ('verdict = "alow"\nrun = ["a"]',                         2, "no verdict `alow`",        "a typo"),
    ('run = ["a"]',                                           1, "`verdict` is missing",     "the verdict is missing"),
    ('verdict = "allow"',                                     1, "names no action",          "it would be about everything"),
    ('verdict = "allow"\nwhy = "x"',                          1, "names no action",          "a reason is no pattern"),
    ('verdict = "allow"\nrun = []',                           3, "must be a list of words",  "an empty pattern"),
    ('verdict = "allow"\nrun = ["**"]',                       3, "names no program",         "every command there is"),
    ('verdict = "allow"\nrun = ["a", []]',                    3, "must be a list of words",  "a word with no alternative"),
    ('verdict = "allow"\nrun = ["a", ""]',                    3, "must be a list of words",  "an empty word"),
    ('verdict = "allow"\nrun = "npm test"',                   3, "must be a list of words",  "a text instead of words"),
    ('verdict = "allow"\nrun = ["a", 1]',                     3, "must be a list of words",  "a number is no word"),
    ('verdict = "deny"\nrun = ["a"]',                         1, "`why` is missing",         "who is stopped must be told"),
    ('verdict = "ask"\nrun = ["a"]\nwhy = "  "',              1, "`why` is missing",         "a blank reason"),
    ('verdict = "deny"\nrun = ["a"]\nwhy = "a\\u001b[2J"',    4, "printable",                "it would move the cursor of the reader"),
    ('verdict = "allow"\nrunn = ["a"]',                       3, "did you mean `run`",       "an unknown key"),
    ('verdict = "allow"\ntool = ["bsh"]',                     3, "did you mean `bash`",      "an unknown tool"),
    ('verdict = "allow"\ntier = ["net"]',                     3, "no tier `net`",            "an unknown tier"),
    ('verdict = "allow"\nrun = ["a"]\nsource = ["me"]',       4, "no source `me`",           "an unknown source"),
    ('verdict = "allow"\nrun = ["a"]\ntool = []',             4, "list is empty",            "matches nothing"),
    ('verdict = "allow"\nrun = ["a"]\nuntil = "2026-12-31"',  4, "must be a date",           "a date in quotes"),
    ('verdict = "allow"\nrun = ["a"]\nuntil = 2026-12-31T00:00:00Z', 4, "must be a date",    "a moment is no day"),
]
# fmt: on


@pytest.mark.parametrize(("text", "line", "said", "why"), MISTAKES, ids=[row[3] for row in MISTAKES])
def test_a_mistake_is_named_with_file_and_line(text: str, line: int, said: str, why: str) -> None:
    with pytest.raises(TomlError) as caught:
        rules(f"[[rule]]\n{text}\n")
    assert said in str(caught.value), why
    assert str(caught.value).startswith(f"c.toml:{line}: "), why


@pytest.mark.parametrize("text", ["rule = 3", 'rule = "x"', "[rule]\nverdict = 'allow'", "rule = [1]"])
def test_a_rule_is_a_list_of_tables(text: str) -> None:
    with pytest.raises(TomlError, match=r"write `\[\[rule\]\]`"):
        rules(text)


def test_a_misspelled_table_is_named() -> None:
    with pytest.raises(TomlError, match=r"did you mean `\[\[rule\]\]`"):
        rules("[[rules]]\nverdict = 'allow'\n")


def test_rules_written_in_one_line_have_its_line() -> None:
    found = rules('\nrule = [{verdict = "allow", run = ["a"]}, {verdict = "allow", run = ["b"]}]\n')
    assert [(rule.ref.line, rule.pattern) for rule in found] == [(2, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("verdict", "until", "today", "over", "why"),
    [
        (Ruling.ALLOW, date(2026, 1, 31), date(2026, 1, 31), False, "the last day counts"),
        (Ruling.ALLOW, date(2026, 1, 31), date(2026, 2, 1), True, "the day after"),
        (Ruling.DENY, date(2026, 1, 31), date(2026, 2, 1), True, "denials end, too"),
        (Ruling.ALLOW, None, date(2026, 2, 1), False, "no end"),
        (Ruling.ALLOW, date(2026, 1, 31), None, True, "an unknown day must not widen"),
        (Ruling.DENY, date(2026, 1, 31), None, False, "nor end what forbids"),
        (Ruling.ASK, date(2026, 1, 31), None, False, "nor what asks"),
    ],
)
def test_a_rule_ends_with_its_last_day(
    verdict: Ruling, until: date | None, today: date | None, over: bool, why: str
) -> None:
    rule = PermissionRule(verdict, RuleRef(RuleKind.USER, "c.toml", 1), Layer.USER, run=(("a",),), until=until)
    assert rule.expired(today) is over, why


def test_narrowing_takes_denials_and_questions_and_drops_what_allows() -> None:
    from dataclasses import replace

    text = "".join(f'[[rule]]\nverdict = "{name}"\nrun = ["x"]\nwhy = "y"\n' for name in ("allow", "ask", "deny"))
    by = replace(PROFILE, permissions=rules(text, Layer.REPOSITORY))
    assert [rule.verdict for rule in narrow(PROFILE, by).permissions] == [Ruling.ASK, Ruling.DENY]
