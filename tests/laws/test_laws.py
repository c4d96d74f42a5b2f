"""Properties of every text and every command, beyond the tables. `fuzz_policy.py` explains them."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.model.abstract_word import SourceSpan
from policy.model.action import (
    EditFile,
    GrepFiles,
    ListFolder,
    ReadFile,
    RunArgv,
    RunScript,
    WriteFile,
)
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.profile import Layer, PermissionRule, Profile, Tool
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Ask
from tests.fuzz import fuzz_policy as fuzz
from tests.support.law import examples

LINES = st.sampled_from(fuzz.examples())
SHELL = st.lists(st.sampled_from(fuzz.WORDS + fuzz.GLUE + fuzz.NOISE), min_size=1, max_size=14).map(" ".join)
WRITTEN = st.integers(0, 1 << 32).map(lambda seed: fuzz.Writer(random.Random(seed)).mutated(fuzz.examples()[seed % 97]))
BYTES = st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape"))
TEXTS = LINES | SHELL | WRITTEN | BYTES | st.text(max_size=60)


def faults(found: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(found))


@examples(200)
@given(TEXTS)
@example("cat .env\u202e")  # a refusal repeats the name, which would turn the line around
@example("mvif=.e\u202env=(-0")
@example("set -e X=1 time .. )) if=.env\u200b; cat pushd ")
def test_every_text_gets_an_answer_that_keeps_the_laws(script: str) -> None:
    """Never raises; spans lie inside; no question is asked without a user; rights are what the effects claim."""
    assert faults(fuzz.broken(RunScript(script, fuzz.WORK))) == []


@examples(70)
@given(st.lists(st.text(max_size=12) | st.sampled_from(fuzz.WORDS), max_size=6).map(tuple))
def test_so_does_every_list_of_words(argv: tuple[str, ...]) -> None:
    assert faults(fuzz.broken(RunArgv(argv, fuzz.WORK))) == []


PATHS = st.lists(
    st.sampled_from(["..", ".", "", "a.txt", ".env", "out", "link", "src", ".ssh", "\0", "x" * 300, "é"])
).map("/".join)


@examples(70)
@given(PATHS.map(lambda text: f"{fuzz.WORK}/{text}") | PATHS | st.text(max_size=20), st.text(max_size=10))
def test_so_does_every_file_tool(path: str, text: str) -> None:
    for action in (
        ReadFile(path),
        WriteFile(path, text),
        EditFile(path, text, text),
        ListFolder(path),
        GrepFiles(text, path),
    ):
        assert faults(fuzz.broken(action)) == []


@pytest.mark.parametrize(
    "text",
    ["a" * (1 << 20), "(" * 50_000, "$(" * 5_000, "ls;" * 300_000, "\n" * 100_000, "/x" * 40_000, "\0" * 9, "\ud800"],
)
def test_huge_and_hostile_texts_are_answered(text: str) -> None:
    assert faults(fuzz.broken(RunScript(text, fuzz.WORK))) == []


@examples(60)
@given(LINES | WRITTEN, LINES | SHELL)
def test_adding_a_command_never_lowers_a_verdict(first: str, second: str) -> None:
    assert faults(fuzz.lowered(first, second)) == []


names = st.lists(st.sampled_from(["a.txt", "src", "*.py", ".env", "git", "/usr", "main.*", "notes"]), max_size=3).map(
    tuple
)
denied = st.lists(
    st.lists(st.sampled_from(["git", "rm", "*", "-rf", "ls"]), min_size=1, max_size=3).map(tuple), max_size=2
).map(tuple)
PROFILES = st.builds(Profile, names, names, names, names, names, names, names, names, denied)


@examples(60)
@given(LINES, PROFILES)
def test_settings_of_a_repository_never_widen(script: str, by: Profile) -> None:
    assert faults(fuzz.narrowed(script, by)) == []


ALTERNATIVES = st.lists(
    st.sampled_from(["git", "rm", "ls", "cat", "*", "-rf", "push", "**", "npm"]), min_size=1, max_size=2
).map(tuple)
GLOBS = st.lists(st.sampled_from(["**", "src/**", "~/**", "/etc/*", "*.txt"]), max_size=2).map(tuple)
FORBIDDING = st.builds(
    PermissionRule,
    st.sampled_from([Ruling.ASK, Ruling.DENY]),
    st.just(RuleRef(RuleKind.USER, ".ringfence/config.toml", 3)),
    st.sampled_from(Layer),
    run=st.lists(ALTERNATIVES, max_size=2).map(tuple),
    more=st.booleans(),
    tool=st.sampled_from([(), (Tool.BASH,), (Tool.READ,)]),
    read=GLOBS,
    write=GLOBS,
    host=st.sampled_from([(), ("*.example.com",)]),
    tier=st.sampled_from([(), (Tier.WRITE,), (Tier.READ,)]),
    why=st.just("because"),
)


@examples(70)
@given(LINES | WRITTEN, st.lists(FORBIDDING, min_size=1, max_size=3).map(tuple))
def test_rules_that_ask_or_deny_never_widen(script: str, rules: tuple[PermissionRule, ...]) -> None:
    by = replace(fuzz.profile(), permissions=rules)
    for mode in Mode:
        usual, now = fuzz.verdict(fuzz.judge(script), mode), fuzz.verdict(fuzz.judge(script, by), mode, by=by)
        assert fuzz.strictness(now) >= fuzz.strictness(usual)
        alone = fuzz.verdict(fuzz.judge(script, by), mode, unattended=True, by=by)
        assert not isinstance(alone, Ask)


@examples(50)
@given(LINES)
def test_no_rule_allows_what_is_beyond_rules(script: str) -> None:
    """Law: with every rule that could be written for its words, paths, hosts and tiers, a floor and `dangerous` stay."""
    everything = PermissionRule(
        Ruling.ALLOW,
        RuleRef(RuleKind.USER, "config.toml", 1),
        Layer.USER,
        run=(("*",),),
        more=True,
        tier=tuple(tier for tier in Tier if tier < Tier.SECRET),
    )
    paths = replace(everything, run=(), more=False, tier=(), read=("/**",), write=("/**",), host=("*", "*.*"))
    by = replace(fuzz.profile(), permissions=(everything, paths))
    found = fuzz.judge(script, by)
    for mode in (Mode.PLAN, Mode.DEFAULT, Mode.TRUST_PROJECT):
        if found.tiers[0] in (Tier.DANGEROUS, Tier.SECRET, Tier.DENIED) or mode is Mode.PLAN:
            usual = fuzz.verdict(fuzz.judge(script), mode)
            assert fuzz.strictness(fuzz.verdict(found, mode, by=by)) == fuzz.strictness(usual)


REASONS = st.builds(
    Reason,
    st.sampled_from(Tier),
    st.just("because"),
    st.just(RuleRef(RuleKind.USER, "law", 1)),
    st.none() | st.just(SourceSpan(0, 1)),
)
EFFECTS = st.builds(
    Effect,
    st.sampled_from(EffectKind),
    st.sampled_from(["/home/me/work/a", "/srv/x", "/srv/é\n", "", "h.example", "npm test"]),
    st.sampled_from([Scope.WORKSPACE, Scope.OUTSIDE, Scope.NONE]),
    st.booleans(),
)


@examples(200)
@given(st.lists(REASONS, max_size=4), st.lists(EFFECTS, max_size=5), st.sampled_from(Mode), REASONS)
def test_a_verdict_is_monotone_in_its_tiers(
    reasons: list[Reason], effects: list[Effect], mode: Mode, more: Reason
) -> None:
    before = Assessment(RunScript("x", fuzz.WORK), tuple(effects), tuple(reasons))
    if not reasons:
        before = replace(before, reasons=(Reason(Tier.UNKNOWN, "nothing is known", RuleRef(RuleKind.USER, "law", 1)),))
    after = replace(before, reasons=(*before.reasons, more))
    first, second = fuzz.verdict(before, mode), fuzz.verdict(after, mode)
    assert fuzz.strictness(second) >= fuzz.strictness(first)
    assert not isinstance(fuzz.verdict(after, mode, unattended=True), Ask)


# Answers that break one of the laws above, each of which must be noticed.
def _claimed(tier: Tier, *effects: Effect, span: SourceSpan | None = None) -> Assessment:
    return Assessment(
        RunScript("ls", fuzz.WORK), effects, (Reason(tier, "because", RuleRef(RuleKind.USER, "law", 1), span),)
    )


BREAKS = [
    (fuzz._reasons, _claimed(Tier.READ, span=SourceSpan(0, 9)), "a reason points beside the script"),
    (fuzz._terms, _claimed(Tier.READ, Effect(EffectKind.WRITES, f"{fuzz.WORK}/a", Scope.WORKSPACE)), "yet only a read"),
    (fuzz._terms, _claimed(Tier.WRITE, Effect(EffectKind.WRITES, "/srv/x", Scope.OUTSIDE)), "outside, as write"),
    (fuzz._terms, _claimed(Tier.WRITE, Effect(EffectKind.CONNECTS, "h.example")), "connects to `h.example` as write"),
]


@pytest.mark.parametrize(("law", "seen", "says"), BREAKS, ids=[row[2] for row in BREAKS])
def test_the_laws_notice_what_breaks_them(law: object, seen: Assessment, says: str) -> None:
    assert callable(law)
    found = list(law(seen, "ls") if law is fuzz._reasons else law(seen))
    assert any(says in fault for fault in found), found


def test_a_seed_makes_the_same_texts_again() -> None:
    first, second = (fuzz.Writer(random.Random(5)) for _ in range(2))
    assert [first.script() for _ in range(50)] == [second.script() for _ in range(50)]
