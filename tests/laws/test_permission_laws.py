"""Properties of user rules, for generated rules and scripts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.classify import classify
from policy.decide import decide
from policy.model.abstract_word import AbstractWord, literal
from policy.model.action import RunScript
from policy.model.assessment import Assessment, RuleKind, RuleRef
from policy.model.command_pattern import broad, exact
from policy.model.glob import glob
from policy.model.host_rule import HostRule, authority, host_rule
from policy.model.profile import Layer, PermissionRule, Profile, Source, Tool, narrow
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow
from policy.permission import match
from policy.permission.dead_rules import Severity
from policy.permission.lint import check
from tests.support.command_samples import COMMANDS
from tests.support.law import examples
from tests.support.permission_machine import BOOK, PROFILE, machine, ruling

WORDS = ("npm", "git", "rm", "ls", "test", "run", "build", "push", "-rf", "-r", "commit", "*", "np?", "x", "a", "frobnicate", "touch",
         "docs/x", "bash", "-c", "find", "curl", "tool", "./bin/tool", "cd", "python3", "src/x.py", "sudo", "eval", "tee", "log")  # fmt: skip
PATHS = (
    "docs/**",
    "docs/*",
    "**",
    "**/*.md",
    "src/x",
    "~/out/**",
    "/**",
    "/var/log/**",
    "docs",
    "*/x",
    "~/.ssh/**",
    "~/work/docs/**",
)

joins = st.sampled_from([" ; ", " && ", " || ", " | ", "\n", " & "])
scripts = st.tuples(st.sampled_from(COMMANDS), st.lists(st.tuples(joins, st.sampled_from(COMMANDS)), max_size=2)).map(
    lambda parts: parts[0] + "".join(join + command for join, command in parts[1])
)
some = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(tuple)
paths = st.lists(st.sampled_from(PATHS), max_size=2).map(tuple)
hosts = st.lists(st.sampled_from(["x.org", "*.org", "*"]), max_size=1).map(tuple)
tiers = st.lists(st.sampled_from(Tier), max_size=3).map(tuple)
tools = st.sampled_from([(), (), (Tool.BASH,), (Tool.WRITE,)])
sources = st.sampled_from([(), (), (Source.MODEL,), (Source.PERSON,)])


def rules(*verdicts: Ruling, layer: Layer = Layer.USER) -> st.SearchStrategy[PermissionRule]:
    built = st.builds(
        PermissionRule,
        verdict=st.sampled_from(verdicts),
        ref=st.builds(RuleRef, st.just(RuleKind.USER), st.just("c.toml"), st.integers(1, 99)),
        layer=st.just(layer),
        run=st.lists(some, max_size=3).map(tuple),
        more=st.booleans(),
        tool=tools,
        read=paths,
        write=paths,
        host=hosts,
        tier=tiers,
        source=sources,
        why=st.just("said so"),
    )
    return built.filter(lambda rule: bool(rule.run or rule.tool or rule.read or rule.write or rule.host or rule.tier))


any_rules = st.lists(rules(*Ruling), max_size=3)
SAMPLES = examples(20, many=200)


def profile(given: list[PermissionRule]) -> Profile:
    return replace(PROFILE, permissions=tuple(given))


def assess(script: str, by: Profile) -> Assessment:
    return classify(RunScript(script, machine().workspace), machine(), BOOK, by)


def strictness(script: str, by: Profile, mode: Mode, unattended: bool = False) -> Ruling:
    return ruling(decide(assess(script, by), machine(), by, mode, unattended=unattended, environment=()))


modes = st.sampled_from(Mode)


@pytest.mark.threat("T50")
@SAMPLES
@given(scripts, any_rules, rules(Ruling.ASK, Ruling.DENY), modes, st.booleans())
def test_law_adding_a_denial_or_a_question_never_loosens(
    script: str, base: list[PermissionRule], more: PermissionRule, mode: Mode, unattended: bool
) -> None:
    before = strictness(script, profile(base), mode, unattended)
    for both in ([*base, more], [more, *base]):
        assert strictness(script, profile(both), mode, unattended) >= before


NAMES = ("x.org", "a.x.org", "y.org", "ax.org", "x.org.y.org", "192.0.2.1")
PORTS = ("", ":80", ":443", ":8443", ":*")
allowed = st.tuples(st.sampled_from(["", "GET "]), st.sampled_from(["", "*."]), st.sampled_from(NAMES[:-1]),
                    st.sampled_from(PORTS), st.sampled_from(["", "/a"]), st.sampled_from(["", " private"])).map("".join)  # fmt: skip
addresses = st.tuples(st.sampled_from(["http://", "https://", "ftp://"]), st.sampled_from(NAMES),
                      st.sampled_from(PORTS[:-1])).map("".join)  # fmt: skip


@pytest.mark.threat("T68")
@SAMPLES
@given(st.lists(addresses, min_size=1, max_size=3), st.lists(allowed, max_size=3), st.booleans())
def test_law_an_allowed_host_opens_no_other(urls: list[str], patterns: list[str], named: bool) -> None:
    """Whatever runs without a question reaches only what a rule names, and only what the command names."""
    run = (("curl",),) if named else ()
    rule = PermissionRule(
        Ruling.ALLOW, RuleRef(RuleKind.USER, "c.toml", 1), Layer.USER, run=run, more=named, host=tuple(patterns)
    )
    by = profile([rule] if patterns else [])
    found = assess("curl -s " + " ".join(urls), by)
    verdict = decide(found, machine(), by, Mode.TRUST_PROJECT, unattended=True, environment=())
    if not isinstance(verdict, Allow):
        return
    assert len(verdict.permit.terms.hosts) > 0
    wanted = [authority(url.partition("://")[2]) for url in urls]
    for text in verdict.permit.terms.hosts:
        granted = host_rule(text)
        assert isinstance(granted, HostRule)
        said = [one for one in map(host_rule, patterns) if isinstance(one, HostRule)]
        for name, port in ((name, port) for name in NAMES for port in (21, 22, 80, 443, 8443)):
            if granted.meets(name, port, "GET", "/a/b"):
                assert any(one.meets(name, port, "GET", "/a/b") for one in said), "more than the rules say"
                assert any(host == name for host, _ in filter(None, wanted)), "more than the command says"
            if granted.meets(name, port, "POST", "/c"):
                assert any(one.meets(name, port, "POST", "/c") for one in said), "another method or path"
            if granted.meets(name, port):
                assert any(one.meets(name, port) for one in said), "a tunnel that no rule opens"
        assert not granted.private or any(one.private for one in said)


@pytest.mark.threat("T49")
@SAMPLES
@given(scripts, any_rules, rules(Ruling.ALLOW), modes)
def test_law_an_allow_lifts_no_danger_no_floor_and_no_plan(
    script: str, base: list[PermissionRule], more: PermissionRule, mode: Mode
) -> None:
    before, after = assess(script, profile(base)), assess(script, profile([*base, more]))
    was = decide(before, machine(), profile(base), mode, unattended=False, environment=())
    now = decide(after, machine(), profile([*base, more]), mode, unattended=False, environment=())
    assert ruling(now) <= ruling(was), "nor is it a hindrance"
    if {Tier.DANGEROUS, Tier.SECRET, Tier.DENIED} & set(before.tiers) or mode is Mode.PLAN:
        assert ruling(now) is ruling(was)
    if isinstance(was, Allow) and isinstance(now, Allow):
        assert was.permit.terms == now.permit.terms, "rights come from the effects"


@pytest.mark.threat("T50")
@SAMPLES
@given(scripts, rules(Ruling.ASK, Ruling.DENY))
def test_law_a_rule_that_is_passed_over_would_not_be_met(script: str, rule: PermissionRule) -> None:
    found = assess(script, PROFILE)
    texts = match._texts(found)
    if texts is not None and not match._may_meet(rule, texts):
        assert match._meeting(rule, found, machine(), {}).how is match._Met.NO


@pytest.mark.threat("T23")
@SAMPLES
@given(scripts, any_rules, st.lists(rules(*Ruling, layer=Layer.REPOSITORY), max_size=3), modes)
def test_law_a_rule_of_the_repository_never_widens(
    script: str, base: list[PermissionRule], theirs: list[PermissionRule], mode: Mode
) -> None:
    mine = profile(base)
    both = narrow(mine, replace(mine, permissions=(*mine.permissions, *theirs)))
    assert strictness(script, both, mode) >= strictness(script, mine, mode)


@pytest.mark.threat("T49")
@SAMPLES
@given(scripts, any_rules, st.sampled_from(COMMANDS), st.sampled_from(["; ", "\n", " && ", " | "]), modes)
def test_law_another_command_never_lowers_the_verdict(
    script: str, base: list[PermissionRule], command: str, join: str, mode: Mode
) -> None:
    by = profile(base)
    assert strictness(f"{script}{join}{command}", by, mode) >= strictness(script, by, mode)


@SAMPLES
@given(scripts, any_rules, modes)
def test_law_nobody_is_asked_when_nobody_is_there(script: str, base: list[PermissionRule], mode: Mode) -> None:
    attended = strictness(script, profile(base), mode)
    alone = strictness(script, profile(base), mode, unattended=True)
    assert alone is not Ruling.ASK
    assert alone >= attended


@SAMPLES
@given(st.text(max_size=60), any_rules, modes)
def test_law_rules_are_total_on_any_text(script: str, base: list[PermissionRule], mode: Mode) -> None:
    found = assess(script, profile(base))
    assert not any("failed with an internal error" in reason.text for reason in found.reasons)
    strictness(script, profile(base), mode)


@SAMPLES
@given(st.lists(rules(*Ruling), max_size=6))
def test_law_the_lint_is_total_and_an_error_means_an_error_alone(base: list[PermissionRule]) -> None:
    found = check(base, BOOK, None, PROFILE)
    assert all(one.ref in {rule.ref for rule in base} and one.text and one.fix for one in found)
    faulty = {one.ref for one in found if one.severity is Severity.ERROR}
    for rule in base:
        alone = {one.ref for one in check([rule], BOOK, None, PROFILE) if one.severity is Severity.ERROR}
        assert alone <= faulty


@SAMPLES
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), st.lists(some, min_size=1, max_size=3), st.booleans())
def test_law_what_an_allow_means_a_denial_of_the_same_words_means_too(
    words: list[str], pattern: list[tuple[str, ...]], more: bool
) -> None:
    senses = [literal(word) for word in words]
    if exact(words, tuple(pattern), more=more) and not any(word in ("*", "np?") for text in pattern for word in text):
        assert broad(senses, tuple(pattern))
        for index in range(1, len(senses)):
            unknown = [*senses[:index], AbstractWord(may_split=True)]
            assert broad(unknown, tuple(pattern)), "a word that is not known may be it"


@SAMPLES
@given(st.text("ab?*", max_size=12), st.text("ab?*", max_size=8))
def test_law_globs_are_those_of_fnmatch(text: str, pattern: str) -> None:
    from fnmatch import fnmatchcase

    assert glob(text, pattern) is fnmatchcase(text, pattern)


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not glob("a" * 16_000, "*a" * 200 + "b")
    assert not glob("a" * 16_000, "*a?" * 200 + "b")
