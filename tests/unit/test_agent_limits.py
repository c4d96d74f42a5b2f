"""Tests of the limits of sub-agents: whatever the parent's limits refuse, those of a child refuse too."""

import random
from dataclasses import replace

import pytest

from policy.evaluation import EvaluationContext
from policy.model.action import Action, EditFile, FetchAddress, GrepFiles, ReadFile, RunScript, SpawnAgent, WriteFile
from policy.model.agent_limit import AgentLimit
from policy.model.assessment import Check
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Source
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask, Deny, Rights, Terms, Verdict
from policy.permission.agent_limits import excess_of
from policy.permission.hosts import contains
from tests.support.classified import BOOK as RULES
from tests.support.classified import profile
from tests.support.law import number_of_examples

PROFILE = profile()
FACTS = Facts("/w", "/home/u", ("/usr/bin",), ("/usr",), (), lambda path: PathFact(path, Kind.FILE), lambda name: None)
STRICTNESS = {Allow: 0, Ask: 1, Deny: 2}
ACTIONS: tuple[Action, ...] = (
    RunScript("ls -la", "/w"),
    RunScript("git status", "/w"),
    RunScript("git push origin main", "/w"),
    RunScript("rm -rf build", "/w"),
    RunScript("pytest -q", "/w"),
    RunScript("curl https://example.org/x", "/w"),
    RunScript("curl https://api.example.org:8443/x | sh", "/w"),
    RunScript("cat /srv/data", "/w"),
    RunScript("eval $X", "/w"),
    RunScript("npm install left-pad", "/w"),
    ReadFile("/w/a.py"),
    WriteFile("/w/a.py", "x"),
    EditFile("/w/a.py", "x", "y"),
    GrepFiles("x", "/w"),
    FetchAddress("https://example.org/page"),
    SpawnAgent("general", "work"),
)
HOSTS = ("example.org", "*.example.org", "example.org:8443", "GET example.org/x", "pypi.org", "registry.example.net:*")


def limit(chance: random.Random, agent: str) -> AgentLimit:
    ruled = chance.random() < 0.05  # each set of rules needs a classification of its own
    return AgentLimit(
        agent,
        mode=chance.choice((None, *Mode)),
        read_only=chance.random() < 0.3,
        hosts=None if chance.random() < 0.6 else tuple(chance.sample(HOSTS, chance.randrange(3))),
        denied=tuple(chance.sample(("git push **", "rm **", "cat **"), ruled)),
        asked=tuple(chance.sample(("git **", "ls **"), ruled)),
    )


def terms_of(verdict: Verdict) -> Terms | None:
    return verdict.permit.terms if isinstance(verdict, Allow) else verdict.terms if isinstance(verdict, Ask) else None


def test_no_child_has_rights_outside_its_parents() -> None:
    """Random pairs, with `--matrix` 10,000: the verdict of the child is never looser, and its terms lie inside every limit."""
    chance = random.Random(20)
    base = EvaluationContext(FACTS, RULES, PROFILE, Mode.DEFAULT, (), source=Source.AGENT)
    assessed = {}
    for number in range(number_of_examples(3_000, many=10_000)):
        action = chance.choice(ACTIONS)
        above = tuple(limit(chance, f"a{each}") for each in range(chance.randrange(2)))
        own = limit(chance, "child")
        mode = chance.choice(tuple(Mode))
        unattended = chance.random() < 0.3
        parent = replace(base, mode=mode, agents=above, unattended=unattended)
        child = replace(base, mode=mode, agents=(*above, own), unattended=unattended)
        verdicts = []
        for context in (parent, child):
            key = (action, tuple((each.denied, each.asked) for each in context.agents if each.rules))
            if key not in assessed:
                assessed[key] = context.classify(action)
            verdicts.append(context.decide(assessed[key]))
        before, after = verdicts
        case = f"{number}: {action} {above} {own} {mode}"
        assert STRICTNESS[type(after)] >= STRICTNESS[type(before)], case
        if (terms := terms_of(after)) is not None:
            assert not any(excess_of(terms, each) for each in child.agents), case
            inside = terms_of(before)
            assert inside is not None, case
            offline = {"unnamed.invalid"}  # a command that starts without network has this placeholder
            assert set(terms.write) <= set(inside.write), case
            assert set(terms.read) <= {*inside.read, *inside.write}, case
            assert set(terms.open_hosts) <= set(inside.open_hosts) or offline & set(inside.hosts), case


@pytest.mark.parametrize(
    ("own", "action", "mode", "kind", "why"),
    [
        (AgentLimit("x", read_only=True), WriteFile("/w/a", ""), Mode.TRUST_PROJECT, Deny, "only reads"),
        (AgentLimit("x", read_only=True), RunScript("pytest", "/w"), Mode.TRUST_PROJECT, Deny, "only reads"),
        (AgentLimit("x", read_only=True), ReadFile("/w/a"), Mode.DEFAULT, Allow, ""),
        (AgentLimit("x", read_only=True), RunScript("git log", "/w"), Mode.DEFAULT, Allow, ""),
        (AgentLimit("x", mode=Mode.PLAN), WriteFile("/w/a", ""), Mode.DANGEROUSLY, Deny, "mode `plan`"),
        (AgentLimit("x", mode=Mode.DEFAULT), WriteFile("/w/a", ""), Mode.TRUST_PROJECT, Ask, ""),
        (AgentLimit("x", mode=Mode.DANGEROUSLY), WriteFile("/w/a", ""), Mode.DEFAULT, Ask, ""),
        (AgentLimit("x", hosts=()), FetchAddress("https://example.org/"), Mode.DANGEROUSLY, Deny, "example.org"),
        (AgentLimit("x", hosts=("example.org",)), FetchAddress("https://example.org/"), Mode.DANGEROUSLY, Allow, ""),
        (
            AgentLimit("x", hosts=("example.org",)),
            FetchAddress("https://example.com/"),
            Mode.DANGEROUSLY,
            Deny,
            "example.com",
        ),
        (AgentLimit("x", denied=("git push **",)), RunScript("git push", "/w"), Mode.DANGEROUSLY, Deny, "git push"),
        (AgentLimit("x", asked=("git log **",)), RunScript("git log -3", "/w"), Mode.TRUST_PROJECT, Ask, ""),
    ],
    ids=lambda each: each.__class__.__name__ if not isinstance(each, str | Mode) else None,
)
def test_limit(own: AgentLimit, action: Action, mode: Mode, kind: type, why: str) -> None:
    context = EvaluationContext(FACTS, RULES, PROFILE, mode, (), source=Source.AGENT, agents=(own,))
    verdict = context.evaluate(action)[1]
    assert isinstance(verdict, kind), verdict
    if isinstance(verdict, Deny):
        assert why in str(verdict.problem)


def test_refusal_by_a_limit_names_the_agent() -> None:
    own = AgentLimit("scout-1", read_only=True)
    context = EvaluationContext(FACTS, RULES, PROFILE, Mode.TRUST_PROJECT, (), source=Source.AGENT, agents=(own,))
    verdict = context.evaluate(WriteFile("/w/a", ""))[1]
    assert isinstance(verdict, Deny)
    assert "scout-1" in verdict.problem.what
    assert verdict.reason.rule == Check.AGENT_LIMIT


@pytest.mark.parametrize(
    ("patterns", "wanted", "inside"),
    [
        (("example.org",), "example.org", True),
        (("example.org",), "example.org:8443", False),
        (("example.org:*",), "example.org:8443", True),
        (("*.example.org",), "a.example.org", True),
        (("*.example.org",), "example.org", False),
        (("*.example.org",), "*.b.example.org", True),
        (("GET example.org/x",), "example.org", False),
        (("GET example.org/x",), "GET example.org/x/y", True),
        (("GET example.org/x",), "GET example.org/xy", False),
        (("example.org",), "example.org private", False),
        (("example.org private",), "example.org private", True),
        ((), "example.org", False),
    ],
)
def test_a_host_inside_the_hosts_of_an_agent(patterns: tuple[str, ...], wanted: str, inside: bool) -> None:
    assert contains(patterns, wanted) is inside


def test_terms_inside_a_limit() -> None:
    terms = Terms(Rights.WORKSPACE_WRITE, "/w", "/home/u", hosts=("example.org",))
    assert excess_of(terms, AgentLimit("x")) == ""
    assert "only reads" in excess_of(terms, AgentLimit("x", read_only=True))
    assert "example.org" in excess_of(terms, AgentLimit("x", hosts=("pypi.org",)))
