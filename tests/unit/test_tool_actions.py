"""Tests of calls of servers, agents and web tools: tiers, rules about tools and arguments, grants, cards, records."""

import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.grants.grant import GrantScope
from policy.grants.offers import choices, draft_grant, never
from policy.model.action import (
    ACTIONS,
    Action,
    AskUser,
    CallServerTool,
    FetchAddress,
    LoadSkill,
    ManageAgent,
    ManageTasks,
    QueryCode,
    ReadServerResource,
    RunScript,
    ScheduleJob,
    SearchNotes,
    SearchTools,
    SearchWeb,
    SpawnAgent,
    ToolAction,
)
from policy.model.profile import Source
from policy.model.tier import MATRIX, Mode, Ruling, Tier
from policy.model.tool_arguments import argument_values, canonical, parsed
from policy.model.tool_names import covers_names, names_tool
from policy.model.verdict import Allow, Ask, Deny, Rights
from policy.permission.dead_rules import Severity, faults
from policy.permission.lint import check
from policy.toml.schema import TomlError
from runner.approval.card import card
from runner.audit.decode import action_of
from runner.audit.records import action_body
from runner.audit.reports.replay import _action
from runner.event_values import json_value
from runner.gate.grants.codec import from_json, to_json
from runner.gate.suggest import read_rules, suggested
from runner.gate.wording import action_words
from tests.support.grant_questions import evaluation_context, question, resolution
from tests.support.law import examples
from tests.support.permission_machine import BOOK, assess, judge, machine, rules, ruling

A, Q, D = Ruling.ALLOW, Ruling.ASK, Ruling.DENY
ISSUE = CallServerTool("github", "create_issue", canonical({"repo": "acme/web", "title": "x", "draft": False, "n": 1}))
GITHUB = 'tool=["mcp__github__*"]'
EXPLORE = SpawnAgent("explore", "Find the tests")
PAGE = FetchAddress("https://docs.example.org/a")

# fmt: off
TIERS: list[tuple[Action, Tier, str]] = [
    (ISSUE,                                                     Tier.MCP_EXTERNAL, "a tool of a server"),
    (replace(ISSUE, hints=("read-only",)),                      Tier.MCP_EXTERNAL, "a hint makes nothing looser"),
    (replace(ISSUE, hints=("destructive",)),                    Tier.DANGEROUS,    "a hint makes a call stricter"),
    (replace(ISSUE, server="a__b"),                             Tier.UNKNOWN,      "a server whose name may be two"),
    (replace(ISSUE, server="a_"),                               Tier.UNKNOWN,      "a name that ends like the separator"),
    (replace(ISSUE, name="x*"),                                 Tier.UNKNOWN,      "a wildcard in a name"),
    (replace(ISSUE, name="@resource"),                          Tier.UNKNOWN,      "the name of resources"),
    (replace(ISSUE, arguments='{"a":1,"a":2}'),                 Tier.UNKNOWN,      "the same key twice"),
    (replace(ISSUE, arguments='{"a": 1}'),                      Tier.UNKNOWN,      "not the canonical form"),
    (replace(ISSUE, arguments='[1]'),                           Tier.UNKNOWN,      "not an object"),
    (replace(ISSUE, arguments='{"a":' + "[" * 9000 + "}"),      Tier.UNKNOWN,      "nested without end"),
    (replace(ISSUE, tier="read"),                               Tier.READ,         "a tier that the user chose"),
    (replace(ISSUE, tier="write"),                              Tier.WRITE,        "another one"),
    (replace(ISSUE, tier="network"),                            Tier.NETWORK,      "one that connects"),
    (replace(ISSUE, tier="dangerous"),                          Tier.DANGEROUS,    "the strictest choice"),
    (replace(ISSUE, tier="read", hints=("destructive",)),       Tier.DANGEROUS,    "a hint is stronger than the choice"),
    (replace(ISSUE, tier="read", name="x*"),                    Tier.UNKNOWN,      "so is a name that is not certain"),
    (replace(ISSUE, tier="READ"),                               Tier.UNKNOWN,      "no tier has that label"),
    (replace(ISSUE, tier="execute"),                            Tier.UNKNOWN,      "a tier that no tool can have"),
    (ReadServerResource("github", "repo://acme/web"),           Tier.MCP_EXTERNAL, "a resource of a server"),
    (ReadServerResource("a__b", "repo://acme/web"),             Tier.UNKNOWN,      "of a server whose name may be two"),
    (AskUser("[]"),                                             Tier.UNKNOWN,      "no question"),
    (AskUser('[{"choices":[],"question":"?","several":false,"title":""}]'), Tier.READ, "a question to the user"),
    (EXPLORE,                                                   Tier.AGENT_SPAWN,  "another agent"),
    (replace(EXPLORE, mode="plan"),                             Tier.AGENT_SPAWN,  "in a mode"),
    (replace(EXPLORE, mode="yolo"),                             Tier.UNKNOWN,      "in no mode"),
    (replace(EXPLORE, agent="a b"),                             Tier.UNKNOWN,      "a name with a blank"),
    (PAGE,                                                      Tier.NETWORK,      "a page"),
    (FetchAddress("file:///etc/passwd"),                        Tier.UNKNOWN,      "a file is no page"),
    (FetchAddress("https://a.example\\@b.example/"),            Tier.UNKNOWN,      "programs disagree about the host"),
    (FetchAddress("https://\u0430.example/"),                   Tier.UNKNOWN,      "letters that look like others"),
    (SearchWeb("bash arrays", "brave", "api.search.brave.com"), Tier.NETWORK,      "a search"),
    (SearchWeb("bash arrays", "brave"),                         Tier.NETWORK,      "at a host that is not known"),
    (SearchTools("issues"),                                     Tier.READ,         "a search in descriptions"),
    (SearchNotes("deploy"),                                     Tier.READ,         "a search in notes"),
    (LoadSkill("commit", "built in"),                           Tier.READ,         "a skill"),
    (ScheduleJob("list"),                                       Tier.READ,         "a list of jobs"),
]
# fmt: on


@pytest.mark.threat("T145")
@pytest.mark.threat("T146")
@pytest.mark.threat("T149")
@pytest.mark.parametrize(("action", "tier", "why"), TIERS, ids=[row[-1] for row in TIERS])
def test_the_worst_tier(action: Action, tier: Tier, why: str) -> None:
    found = assess(action, "")
    assert found.tiers[0] is tier, found.reasons
    for mode in Mode:
        assert ruling(judge(action, "", mode)) is max(MATRIX[each][mode] for each in found.tiers), why


# fmt: off
RULES: list[tuple[str, Action, Ruling, str]] = [
    (f"allow {GITHUB}",                                        ISSUE, A, "a pattern"),
    ('allow tool=["mcp__github__create_issue"]',               ISSUE, A, "the exact name"),
    ('allow tool=["mcp__github__create_[hij]ssue"]',           ISSUE, A, "a set of characters"),
    ('allow tool=["mcp__github__create_[!i]ssue"]',            ISSUE, Q, "a set without it"),
    ('allow tool=["mcp__github__create_issu?"]',               ISSUE, A, "one character"),
    ('allow tool=["mcp__github__create"]',                     ISSUE, Q, "never by the beginning"),
    ('allow tool=["mcp__GitHub__*"]',                          ISSUE, Q, "an approval with another case"),
    ('deny tool=["mcp__GitHub__*"]',                           ISSUE, D, "a denial ignores case"),
    ('allow tool=["mcp__git__*"]',                             ISSUE, Q, "another server"),
    ('allow tool=["mcp__*"]; deny tool=["mcp__github__*"]',    ISSUE, D, "a denial is stronger"),
    ('allow tool=["mcp__*"]; ask tool=["mcp__github__*"]',     ISSUE, Q, "so is a question"),
    ('allow tool=["mcp__*"] tier=["mcp-external"]',            ISSUE, A, "with its tier"),
    (f"allow {GITHUB}", replace(ISSUE, hints=("destructive",)),       Q, "never what is dangerous"),
    (f"allow {GITHUB}", replace(ISSUE, name="x*"),                    Q, "never a name that is not certain"),
    (f"allow {GITHUB}", replace(ISSUE, arguments='{"a":1,"a":2}'),    Q, "never arguments that cannot be read"),
    (f"allow {GITHUB}", ReadServerResource("github", "a://b"),        A, "resources, too"),
    (f"allow {GITHUB}", replace(ISSUE, tier="network"),               A, "with a chosen tier"),
    ('allow tool=["mcp__*"] tier=["mcp-external"]', replace(ISSUE, tier="network"), Q, "with another tier"),
    ('allow tool=["mcp__*"] tier=["network"]', replace(ISSUE, tier="network"),      A, "with the chosen tier by name"),
    ('allow host=["*.example.org"]', replace(ISSUE, name="x.example.org", tier="network"), Q, "a tool named as a host"),
    ('deny tier=["mcp-external"]', replace(ISSUE, tier="read"),       D, "a call of a server remains one"),
    ('deny tier=["network"]', replace(ISSUE, tier="network"),         D, "a denial of the chosen tier"),
    (f"deny {GITHUB}", replace(ISSUE, tier="read"),                   D, "a denial of a tool with a chosen tier"),
    (f"deny {GITHUB}",  ReadServerResource("github", "a://b"),        D, "and their denial"),
    ('allow tool=["agent"]',                                 EXPLORE, A, "agents"),
    ('allow tool=["agent"] arguments={agent="explore"}',     EXPLORE, A, "one agent"),
    ('allow tool=["agent"] arguments={agent="review"}',      EXPLORE, Q, "another agent"),
    ('deny tool=["agent"] arguments={agent="EXPLORE"}',      EXPLORE, D, "a denial of one agent"),
    ('allow host=["docs.example.org"]',                         PAGE, A, "a page by its host"),
    ('allow host=["docs.example.org"] tool=["web_fetch"]',      PAGE, A, "with the tool"),
    ('allow host=["docs.example.org"] tool=["bash"]',           PAGE, Q, "with another tool"),
    ('allow host=["docs.example.org"] tool=["web_fetch"] arguments={url="https://docs.example.org/b*"}', PAGE, Q,
     "another page of the host"),
    ('deny host=["docs.example.org"]',                          PAGE, D, "a host is denied to all tools"),
    ('deny tool=["web_*"]',                                     PAGE, D, "web tools"),
    # conditions on arguments
    (f'allow {GITHUB} arguments={{repo="acme/*"}}',            ISSUE, A, "an argument"),
    (f'allow {GITHUB} arguments={{repo="acme/*", draft="false"}}', ISSUE, A, "two arguments"),
    (f'allow {GITHUB} arguments={{repo="acme/*", draft="true"}}',  ISSUE, Q, "all of them must match"),
    (f'allow {GITHUB} arguments={{repo="other/*"}}',           ISSUE, Q, "another value"),
    (f'allow {GITHUB} arguments={{owner="*"}}',                ISSUE, Q, "an argument that is not there"),
    (f'deny {GITHUB} arguments={{repo="ACME/*"}}',             ISSUE, D, "a denial ignores case"),
    (f'deny {GITHUB} arguments={{repo="other/*"}}',            ISSUE, Q, "a denial of another value"),
    (f'deny {GITHUB} arguments={{owner="*"}}',                 ISSUE, Q, "a denial without the argument"),
    (f'allow {GITHUB} arguments={{n="1.0"}}',                  ISSUE, Q, "an approval needs every spelling"),
    (f'allow {GITHUB} arguments={{n="1*"}}',                   ISSUE, A, "which a pattern can match"),
    (f'allow {GITHUB} values={{repo="acme/web", n=1, draft=false}}', ISSUE, A, "exact values"),
    (f'allow {GITHUB} values={{n=1.0}}',                       ISSUE, Q, "another spelling of a number"),
    (f'allow {GITHUB} values={{draft="false"}}',               ISSUE, Q, "a text that reads like a truth value"),
    (f'allow {GITHUB} values={{owner="x"}}',                   ISSUE, Q, "a value that is not there"),
    (f'allow {GITHUB} values={{l=["a", [1]]}}', replace(ISSUE, arguments='{"l":["a",[1]]}'), A, "a list"),
    (f'allow {GITHUB} only=["repo", "title", "draft", "n"]',   ISSUE, A, "all of its arguments are named"),
    (f'allow {GITHUB} only=["repo", "title", "draft", "n", "x"]', ISSUE, A, "one more is named"),
    (f'allow {GITHUB} only=["repo", "title", "draft"]',        ISSUE, Q, "one is not named"),
    (f'allow {GITHUB} only=["REPO", "title", "draft", "n"]',   ISSUE, Q, "another case"),
    (f'allow {GITHUB} only=[]',                                ISSUE, Q, "no argument"),
    (f'allow {GITHUB} only=[]', replace(ISSUE, arguments="{}"),       A, "none of none"),
    (f'allow {GITHUB} only=[]', replace(ISSUE, arguments="[]"),       Q, "arguments that cannot be read"),
    (f'allow {GITHUB} below={{repo="acme"}}',                  ISSUE, A, "a path below a folder"),
    (f'allow {GITHUB} below={{repo="acm"}}',                   ISSUE, Q, "never by the beginning of a name"),
    (f'allow {GITHUB} below={{n="acme"}}',                     ISSUE, Q, "a number is no path"),
    ('allow tool=["*"] only=["agent", "mode"]',              EXPLORE, Q, "an agent has no such arguments"),
]
# fmt: on


@pytest.mark.threat("T147")
@pytest.mark.parametrize(("text", "action", "expected", "why"), RULES, ids=[row[-1] for row in RULES])
def test_rules_about_calls(text: str, action: Action, expected: Ruling, why: str) -> None:
    assert ruling(judge(action, text)) is expected, why


HELD = [
    ('deny tool=["mcp__github__*"] arguments={n="1"}', {"n": 1.0}, D, "a number with a fraction of zero"),
    ('deny tool=["mcp__github__*"] arguments={n="100"}', {"n": 1e2}, D, "an exponent"),
    ('deny tool=["mcp__github__*"] arguments={n="TRUE"}', {"n": True}, D, "a truth value"),
    ('deny tool=["mcp__github__*"] arguments={n="a"}', {"n": ["a"]}, Q, "a list asks"),
    ('deny tool=["mcp__github__*"] arguments={n="a"}', {"n": None}, Q, "null asks"),
    ('deny tool=["mcp__github__*"] arguments={n="a", m="b"}', {"n": ["a"], "m": "c"}, A, "beside a value that differs"),
]


@pytest.mark.threat("T147")
@pytest.mark.parametrize(("text", "given", "expected", "why"), HELD, ids=[row[-1] for row in HELD])
def test_another_spelling_of_a_value_is_denied_as_well(
    text: str, given: dict[str, object], expected: Ruling, why: str
) -> None:
    action = replace(ISSUE, arguments=canonical(given))
    assert ruling(judge(action, f'allow tool=["mcp__github__*"]; {text}')) is expected, why
    if expected is Q:
        assert ruling(judge(action, text, Mode.DANGEROUSLY)) is Q


@pytest.mark.parametrize("mode", Mode)
def test_a_denial_holds_in_every_mode_and_an_approval_not_in_plan_mode(mode: Mode) -> None:
    assert ruling(judge(ISSUE, f"deny {GITHUB}", mode)) is D
    assert ruling(judge(ISSUE, f"allow {GITHUB}", mode)) is (D if mode is Mode.PLAN else A)
    hinted = replace(ISSUE, hints=("destructive",))
    assert ruling(judge(hinted, f"allow {GITHUB}", mode)) is MATRIX[Tier.DANGEROUS][mode]


SOURCES = [
    ('deny tool=["mcp__*"] source=["model"]', Source.AGENT, D, "a denial for the model holds for its agents"),
    ('deny tool=["mcp__*"] source=["model"]', Source.JOB, D, "and for jobs"),
    ('deny tool=["mcp__*"] source=["model"]', Source.HOOK, Q, "a hook is not the model"),
    ('allow tool=["mcp__*"] source=["model"]', Source.AGENT, Q, "an approval for the model is for it alone"),
    ('allow tool=["mcp__*"] source=["agent"]', Source.AGENT, A, "an approval for agents"),
    ('allow tool=["mcp__*"] source=["agent", "job"]', Source.MODEL, Q, "is not for the model"),
    ('deny tool=["mcp__*"] source=["hook"]', Source.HOOK, D, "hooks"),
]


@pytest.mark.threat("T149")
@pytest.mark.parametrize(("text", "source", "expected", "why"), SOURCES, ids=[row[-1] for row in SOURCES])
def test_rules_about_the_author_of_a_call(text: str, source: Source, expected: Ruling, why: str) -> None:
    assert ruling(judge(ISSUE, text, source=source)) is expected, why


# fmt: off
FAULTS = [
    ('allow tool=["mcp__github__*"] tier=["execute"]',           "tier",       "calls of a server have another tier"),
    ('allow tool=["mcp__github__*", "read"]',                    "allow-what", "a file tool is not called"),
    ('allow tool=["mcp__github__*"] run=["ls"]',                 "tool",       "a server runs no command"),
    ('deny tool=["mcp__github__*"] write=["docs/**"]',           "tool",       "nor writes a path"),
    ('deny tool=["bash"] arguments={command="x"}',               "arguments",  "a command has words"),
    ('deny run=["ls"] arguments={command="x"}',                  "arguments",  "also by its words"),
    ('deny tier=["network"] arguments={url="x"}',                "arguments",  "without a tool"),
    ('deny tool=["web_fetch"] arguments={uri="x"}',              "arguments",  "an argument that the tool does not have"),
    ('allow tool=["agent"] tier=["dangerous"]',                  "tier",       "no rule allows it"),
]
UNKNOWN = [
    ('allow tool=["mcp__github"]',      "`mcp__github__*`",   "a server without its tools"),
    ('deny tool=["mcp_github_*"]',      "`mcp__SERVER__TOOL`", "one line too few"),
    ('deny tool=["web_fetsh"]',         "did you mean `web_fetch`", "a slip"),
    ('deny tool=["x*"]',                "the names are",      "a pattern that matches no tool"),
    ('deny tool=["mcp___x__*"]',        "mcp__SERVER__TOOL", "no name of a server"),
    ('deny tool=["mcp__a__*"] only=["x"]',                "use patterns",   "a denial needs patterns"),
    ('ask tool=["mcp__a__*"] values={x=1}',               "use patterns",   "so does a question"),
    ('allow tool=["web_fetch"] below={url="https://a.b/"}', "only tools of", "bounds of a tool of the program"),
    ('allow only=["x"] host=["a.example"]',               "only tools of",  "bounds without a tool"),
    ('allow tool=["mcp__a__*"] below={path="../x"}',      "name a folder",  "a folder with a step up"),
    ('allow tool=["mcp__a__*"] below={path="/"}',         "name a folder",  "the whole disk"),
    ('allow tool=["mcp__a__*"] below={path="~/x"}',       "name a folder",  "a home that the server may not know"),
    ('allow tool=["mcp__a__*"] below={path="https://a.b/c"}', "name a folder", "a part of a site"),
    ('allow tool=["mcp__a__*"] only=[] below={path="x"}', "name all",       "a bound of an argument that may not exist"),
    ('allow tool=["mcp__a__*"] values={x={y=1}}',         "draft = false",  "a table as a value"),
]
LINT = [
    ('allow tool=["mcp__*"]',                                                 "broad",     "the tools of every server"),
    ('allow tool=["mcp__git*__*"]',                                           "broad",     "of several servers"),
    ('deny tool=["mcp__a__*"]; allow tool=["mcp__a__x"]',                     "shadowed",  "a denial of all tools"),
    ('allow tool=["mcp__a__*"]; allow tool=["mcp__a__x*"]',                   "redundant", "a wider pattern"),
    ('allow tool=["mcp__a__*"]; allow tool=["mcp__a__*"] arguments={x="1"}',  "redundant", "without a condition"),
    ('allow tool=["mcp__a__*"] only=["x"]; allow tool=["mcp__a__*"] only=[]', "redundant", "fewer arguments"),
    ('allow tool=["mcp__a__*"]; allow tool=["mcp__a__*"] values={x=1}',       "redundant", "without an exact value"),
    ('allow tool=["mcp__a__*"]; allow tool=["mcp__a__*"] below={x="y"}',      "redundant", "without a bound"),
]
# fmt: on


@pytest.mark.parametrize(("text", "code", "why"), FAULTS, ids=[row[-1] for row in FAULTS])
def test_a_rule_that_never_takes_effect_is_an_error(text: str, code: str, why: str) -> None:
    (rule,) = rules(text)
    assert {each.code for each in faults(rule, BOOK)} == {code}, why


@pytest.mark.parametrize(("text", "told", "why"), UNKNOWN, ids=[row[-1] for row in UNKNOWN])
def test_the_name_of_no_tool_is_an_error_with_a_suggestion(text: str, told: str, why: str) -> None:
    with pytest.raises(TomlError) as found:
        rules(text)
    assert told in found.value.problem.fix, why


@pytest.mark.parametrize(("text", "code", "why"), LINT, ids=[row[-1] for row in LINT])
def test_the_linter_finds(text: str, code: str, why: str) -> None:
    found = check(rules(text), BOOK)
    assert code in {each.code for each in found}, why
    assert not [each for each in found if each.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        ("mcp__*", "mcp__a__*", True),
        ("mcp__a__*", "mcp__*", False),
        ("mcp__a__?", "mcp__a__*", False),
        ("*", "bash", True),
        ("mcp__a__[xy]", "mcp__a__x", True),
    ],
)
def test_patterns_that_cover_others(wide: str, narrow: str, covers: bool) -> None:
    assert names_tool(wide)
    assert covers_names((wide,), narrow) is covers


# Grants

# fmt: off
OFFERS: list[tuple[ToolAction, str, tuple[ToolAction, ...], tuple[ToolAction, ...]]] = [
    (ISSUE, "`mcp__github__create_issue` with any arguments",
     (replace(ISSUE, arguments='{"a":2}'),),
     (replace(ISSUE, name="create_issues"), replace(ISSUE, server="gitlab"), replace(ISSUE, hints=("destructive",)))),
    (replace(ISSUE, tier="write"), "`mcp__github__create_issue` with any arguments",
     (replace(ISSUE, arguments='{"a":2}', tier="write"),),
     (replace(ISSUE, name="create_issues", tier="write"), ISSUE, replace(ISSUE, tier="network"))),
    (ReadServerResource("github", "a://b"), "`mcp__github__@resource` with any arguments",
     (ReadServerResource("github", "c://d"),),
     (ISSUE, ReadServerResource("gitlab", "a://b"))),
    (EXPLORE, "`agent` with agent `explore`",
     (replace(EXPLORE, prompt="Another task"),),
     (replace(EXPLORE, agent="review"), replace(EXPLORE, mode="dangerously"))),
    (PAGE, "`web_fetch` on docs.example.org",
     (FetchAddress("https://docs.example.org/b"),),
     (FetchAddress("https://docs.example.com/a"), SearchWeb("x", "y", "docs.example.org"))),
]
# fmt: on


@pytest.mark.parametrize(
    ("action", "words", "covered", "others"),
    OFFERS,
    ids=[f"{row[0].kind}{getattr(row[0], 'tier', '')}" for row in OFFERS],
)
def test_a_grant_covers_the_exact_tool(
    action: ToolAction, words: str, covered: tuple[ToolAction, ...], others: tuple[ToolAction, ...]
) -> None:
    choice = choices(evaluation_context(), question(action))[-1]
    assert (choice.words, choice.label) == (words, words)
    assert choice.not_covered
    grants = [replace(draft_grant(what, "g0123abcd"), agent="main", span=GrantScope.USER) for what in choice.whats]
    assert [from_json(json.loads(json.dumps(to_json(each)))) for each in grants] == grants
    for each in (action, *covered):
        assert isinstance(resolution(each, grants).verdict, Allow), each
    for each in others:
        assert not isinstance(resolution(each, grants).verdict, Allow), each


@pytest.mark.parametrize(
    ("action", "words", "covered", "others"),
    OFFERS,
    ids=[f"{row[0].kind}{getattr(row[0], 'tier', '')}" for row in OFFERS],
)
def test_a_remembered_refusal_holds_in_every_mode(
    action: ToolAction, words: str, covered: tuple[ToolAction, ...], others: tuple[ToolAction, ...]
) -> None:
    found = never(evaluation_context(), question(action))
    assert found is not None
    no = replace(draft_grant(found.whats[0], "g7"), ruling=Ruling.DENY)
    for each in (action, *covered):
        assert isinstance(resolution(each, (no,), evaluation_context(Mode.DANGEROUSLY)).verdict, Deny), each
    assert not isinstance(resolution(others[0], (no,), evaluation_context(Mode.DANGEROUSLY)).verdict, Deny)


# The choices for a call, narrowest first: the words, other arguments that are covered, and some that are not.
# fmt: off
BOUNDED: list[tuple[dict[str, object], str, list[dict[str, object]], list[dict[str, object]]]] = [
    ({"repo": "acme/web", "title": "x", "draft": False},
     '`mcp__s__t` with exactly draft false, repo "acme/web" and title "x"', [],
     [{"repo": "acme/web", "title": "x"}, {"repo": "acme/web", "title": "y", "draft": False},
      {"repo": "acme/web", "title": "x", "draft": False, "more": 1}, {"repo": "acme/web", "title": "x", "draft": 0}]),
    ({"repo": "acme/web", "title": "x", "draft": False, "n": 1},
     '`mcp__s__t` with draft false and repo "acme/web", any or no n, any or no title, and no other argument',
     [{"repo": "acme/web", "title": "y", "draft": False}, {"repo": "acme/web", "n": [2], "draft": False}],
     [{"repo": "acme/api", "title": "x", "draft": False}, {"title": "x", "draft": False},
      {"repo": "acme/web", "draft": True}, {"repo": "acme/web", "draft": False, "owner": "other"}]),
    ({"path": "@/docs/a.md", "content": "hi"},
     "`mcp__s__t` with path in @/docs/, any or no content, and no other argument",
     [{"path": "@/docs/old/b.md"}, {"path": "@/docs"}, {"path": "@/docs/new/x.txt", "content": "other"}],
     [{"path": "@/src/x.py"}, {"path": "@/docs/../src/x.py"}, {"path": "@/docs/leak/x.py"}, {"path": "@/docs/away/x"},
      {"path": "@/docs2/a.md"}, {"content": "hi"}, {"path": ["@/docs/a.md", "@/src/x.py"]}, {"path": []},
      {"path": "@/docs/a.md,/etc/passwd"}, {"path": "@/docs/a.md /etc/passwd"}, {"path": "@/docs//etc/passwd"}, {"path": "@/docs/[.][.]/x"},
      {"path": "@/docs/%2e%2e/x"}, {"path": "@/docs/\uff0e\uff0e/x"}, {"path": "@/docs/..\\x"}, {"path": "docs/a.md"},
      {"path": "@/docs/\u2488/x"}, {"path": "@/docs/a\n/etc/passwd"}, {"path": {"x": "@/docs/a.md"}}]),
    ({"paths": ["@/docs/a.md", "@/docs/old/b.md"]}, "`mcp__s__t` with paths in @/docs/, and no other argument",
     [{"paths": ["@/docs/b.md"]}, {"paths": "@/docs/old"}], [{"paths": ["@/docs/b.md", "@/notes.txt"]}]),
    ({"url": "https://docs.example.org/a", "max_length": 5000},
     "`mcp__s__t` with url in https://docs.example.org/, any or no max_length, and no other argument",
     [{"url": "https://docs.example.org/b?x=1"}],
     [{"url": "https://docs.example.org.evil.example/"}, {"url": "https://docs.example.org@evil.example/"},
      {"url": "https://docs.example.org:8443/"}, {"url": "http://docs.example.org/"},
      {"url": "https://docs.example.org/\\@evil.example/"}, {"url": "https://docs.example.org/a b"}]),
    ({"account": "a", "amount": 5, "comment": "rent"},
     '`mcp__s__t` with account "a" and amount 5, any or no comment, and no other argument',
     [{"account": "a", "amount": 5}], [{"account": "a", "amount": 6, "comment": "rent"}]),
    ({}, "`mcp__s__t` without arguments", [], [{"x": 1}]),
]
# fmt: on
_ROW_IDS = ("exactly", "the same repository", "a folder", "a list of paths", "a site", "an amount", "no arguments")


def _call(given: object) -> CallServerTool:
    """Return a call of a tool of the server `s`, with the workspace in place of `@`."""
    text = json.dumps(given).replace('"@', f'"{machine().workspace}')
    return CallServerTool("s", "t", canonical(json.loads(text)))


@pytest.mark.threat("T201")
@pytest.mark.parametrize(("given", "words", "covered", "others"), BOUNDED, ids=_ROW_IDS)
def test_a_grant_covers_the_arguments_that_its_words_state(
    given: dict[str, object], words: str, covered: list[dict[str, object]], others: list[dict[str, object]]
) -> None:
    first = _call(given)
    found = {
        each.words.replace(machine().workspace, "@"): each for each in choices(evaluation_context(), question(first))
    }
    assert words in found, list(found)
    assert list(found)[-1] == "`mcp__s__t` with any arguments"
    choice = found[words]
    assert choice.not_covered
    grants = [replace(draft_grant(what, "g0123abcd"), agent="main", span=GrantScope.USER) for what in choice.whats]
    assert [from_json(json.loads(json.dumps(to_json(each)))) for each in grants] == grants
    for each in (first, *map(_call, covered)):
        assert isinstance(resolution(each, grants).verdict, Allow), each
    for each in map(_call, others):
        assert not isinstance(resolution(each, grants).verdict, Allow), each
        wide = [replace(draft_grant(what, "g1"), agent="main") for what in list(found.values())[-1].whats]
        assert isinstance(resolution(each, wide).verdict, Allow), each


@pytest.mark.threat("T201")
def test_a_card_names_the_bounds_of_each_choice() -> None:
    asked = question(_call({"repo": "acme/web", "title": "x"}))
    shown = choices(evaluation_context(), asked)
    assert [each.label for each in shown] == [
        "this tool with exactly these arguments",
        '`mcp__s__t` with repo "acme/web", any or no title, and no other argument',
        "`mcp__s__t` with any arguments",
    ]
    assert shown[0].not_covered == ("another repo", "a further argument")
    for unclear in (
        {"text": "x" * 700},
        {"a b": 1, "repo": "x"},
        {"\u200b": 1},
    ):  # not shown completely, or not plainly
        assert [each.label for each in choices(evaluation_context(), question(_call(unclear)))] == [
            "`mcp__s__t` with any arguments"
        ]


_TEXTS = st.sampled_from(
    [
        "docs",
        "docs/",
        "/etc/passwd",
        "..",
        ".",
        "a",
        "old",
        "leak",
        "away",
        "src/x.py",
        ",",
        " ",
        "%2e",
        "\uff0f",
        "b.md",
    ]
)
_PATHS = st.builds(
    lambda start, names, join: start + join.join(names),
    st.sampled_from(["@/docs/", "@/docs", "@/", "docs/", ""]),
    st.lists(_TEXTS, max_size=3),
    st.sampled_from(["/", "", "//"]),
)
_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "path": _PATHS | st.lists(_PATHS, max_size=2) | st.none(),
        "repo": st.sampled_from(["acme/web", "acme/api", ["acme/web"], None]),
        "content": st.text(max_size=3) | st.integers(),
        "force": st.sampled_from([True, False, 1, 0, "true"]),
        "Path": st.just("x"),
    },
)


@pytest.mark.threat("T201")
@examples(100)
@given(_ARGUMENTS, _ARGUMENTS)
def test_law_a_grant_covers_no_arguments_beyond_its_words(first: dict[str, object], second: dict[str, object]) -> None:
    """Compare each grant of the first call with the second call, by the real paths and by equality."""
    one, two = _call(first), _call(second)
    given, other = json.loads(one.arguments), json.loads(two.arguments)
    exact = json.dumps(given, sort_keys=True) == json.dumps(other, sort_keys=True)
    offers = choices(evaluation_context(), question(one))
    allowed = [
        isinstance(resolution(two, [draft_grant(what, "g1") for what in each.whats]).verdict, Allow) for each in offers
    ]
    assert allowed == sorted(allowed), "a wider choice covers all that a narrower one covers"
    for choice, yes in zip(offers, allowed, strict=True):
        (what,) = choice.whats
        if what.only is None or not yes:
            assert yes or not exact
            continue
        assert other.keys() <= given.keys()
        assert exact or "exactly" not in choice.words
        for name, _ in what.values:
            assert json.dumps(other[name]) == json.dumps(given[name])
        for name, folder in what.below:
            for path in other[name] if isinstance(other[name], list) else [other[name]]:
                real = os.path.realpath(os.path.join(machine().workspace, path))
                root = os.path.join(machine().workspace, folder).rstrip("/")
                assert real == root or real.startswith(f"{root}/")


FORGED: list[tuple[dict[str, object], str]] = [
    ({"tools": ["mcp__github__*"]}, "a wildcard in the name of the tool"),
    ({"tools": ["mcp__github__a", "bash"]}, "a command beside the tool"),
    ({"tiers": ["mcp-external", "write"]}, "another tier"),
    ({"tiers": ["dangerous"]}, "a tier that no grant lifts"),
    ({"tools": ["agent"]}, "an agent with the tier of a server"),
    ({"words": ["ls"]}, "a command with the tier of a server"),
    ({"read": ["docs/**"]}, "a path with the tier of a server"),
    ({"hosts": ["example.org"]}, "a host"),
    ({"arguments": {"repo": "*"}}, "a wildcard in an argument"),
    ({"tools": ["web_fetch"], "tiers": ["network"]}, "a web tool on every host"),
    ({"values": {"repo": '"acme/web"'}}, "a value, and any other arguments"),
    ({"values": {"repo": "acme/web"}, "only": ["repo"]}, "a value that is not JSON"),
    ({"values": {"repo": '1,"x":2'}, "only": ["repo"]}, "two values in one"),
    ({"below": {"path": "docs/../"}, "only": ["path"]}, "a folder with a step up"),
    ({"below": {"path": "docs"}, "only": ["path"]}, "a file as a bound"),
    ({"below": {"p": "docs/"}, "values": {"p": "1"}, "only": ["p"]}, "two bounds of one argument"),
    ({"only": ["repo", ""]}, "an argument without a name"),
    ({"tools": ["agent"], "tiers": ["agent-spawn"], "arguments": {"agent": "x"}, "only": []}, "bounds of an agent"),
]


@pytest.mark.threat("T148")
@pytest.mark.parametrize(("changed", "why"), FORGED, ids=[row[-1] for row in FORGED])
def test_a_changed_grant_is_not_read(changed: dict[str, object], why: str) -> None:
    choice = choices(evaluation_context(), question(ISSUE))[-1]
    sound = to_json(replace(draft_grant(choice.whats[0], "g0123abcd"), agent="main", span=GrantScope.USER))
    what = sound["what"]
    assert isinstance(what, dict)
    from_json(sound)
    with pytest.raises(ValueError, match=r"g0123abcd|its subject"):
        from_json({**sound, "what": {**what, **changed}})


def test_an_action_that_is_not_certain_is_never_remembered() -> None:
    for action in (replace(ISSUE, name="x*"), replace(ISSUE, hints=("destructive",)), replace(ISSUE, arguments="[]")):
        assert choices(evaluation_context(), question(action)) == ()


# Forms: cards, records, JSON

EVERY: tuple[ToolAction, ...] = (
    replace(ISSUE, hints=("destructive", "open-world"), tier="network"),
    ReadServerResource("github", "repo://acme/web"),
    replace(EXPLORE, mode="plan", tools=("read", "grep"), model="openai:small"),
    ManageAgent("explore-1", "message", "look at the tests, too"),
    ManageTasks("update", "t3", "read the tests", "all of them", "in_progress", ("t1",), ("t4",)),
    PAGE,
    SearchWeb("bash arrays", "brave", "api.search.brave.com"),
    SearchTools("create an issue"),
    SearchNotes("deploy"),
    LoadSkill("commit", "built in"),
    QueryCode("rename", "/w/a.py", 3, "parse", "read_all"),
    AskUser('[{"choices":[{"description":"","label":"a"}],"question":"which?","several":false,"title":""}]'),
    ScheduleJob("list"),
)


_NOT_SHOWN = (
    "type",
    "hints",
    "host",
    "server",
    "name",
    "tier",
    "limit",
    "offset",
    "background",
    "isolation",
    "turns",
    "tokens",
    "operation",
    "line",
    "wait",
    "questions",
    "days",
    "minutes",
)  # fields that are no text of the action


@pytest.mark.parametrize("action", EVERY, ids=[each.kind for each in EVERY])
def test_every_form_has_the_whole_action(action: ToolAction) -> None:
    body = json.loads(json.dumps(action_body(action)))
    assert ACTIONS[body["type"]] is type(action)
    assert action_of({"action": body}) == action
    assert _action({"action": body}) == (replace(action, prompt="") if isinstance(action, SpawnAgent) else action)
    assert json.loads(json.dumps(json_value(action))) == body
    words = action_words(action, "/w")
    for value in (item for key, item in body.items() if key not in _NOT_SHOWN):
        for text in value if isinstance(value, list) else [value]:
            assert text in words


@pytest.mark.parametrize("action", EVERY, ids=[each.kind for each in EVERY])
def test_no_sandbox_gets_rights_for_a_call(action: ToolAction) -> None:
    verdict = judge(action, "", Mode.DANGEROUSLY)
    assert isinstance(verdict, Allow)
    terms = verdict.permit.terms
    assert (terms.rights, terms.read, terms.write) == (Rights.READ_ONLY, (), ())
    assert bool(terms.hosts) is isinstance(action, FetchAddress | SearchWeb)


CARDS: list[tuple[ToolAction, str, str, str]] = [
    (ISSUE, "Calls the tool `create_issue` of the server `github`", "calls", "acts with its own rights"),
    (
        replace(ISSUE, tier="write"),
        "Calls the tool `create_issue` of the server `github`, which your configuration gives the tier write",
        "calls",
        "acts with its own rights",
    ),
    (EXPLORE, "Starts the agent `explore`, whose actions are judged one by one", "starts", "the agent explore"),
    (PAGE, "Connects to docs.example.org", "network", "docs.example.org"),
]


@pytest.mark.parametrize(
    ("action", "line", "label", "text"), CARDS, ids=[f"{row[0].kind}{getattr(row[0], 'tier', '')}" for row in CARDS]
)
def test_a_card_says_what_an_approval_allows(action: ToolAction, line: str, label: str, text: str) -> None:
    asked = question(action)
    shown = card(asked, around=machine())
    assert shown.line == line
    assert shown.command == action_words(action, machine().workspace)
    assert shown.rights[0][0] == label
    assert text in shown.rights[0][1]
    assert not shown.editable
    assert "run code" not in asked.question


def test_a_suggested_rule_allows_exactly_the_call() -> None:
    for action in (ISSUE, EXPLORE, ReadServerResource("github", "a://b")):
        found = question(action).assessment
        text = suggested(found, found.reasons, machine())
        assert text is not None
        context = evaluation_context()
        _, verdict = context.evaluate(action, read_rules(text))
        assert isinstance(verdict, Allow), text
        assert not isinstance(context.evaluate(replace(ISSUE, name="other"), read_rules(text))[1], Allow)


def test_canonical_arguments_have_one_spelling() -> None:
    for each in ({}, {"b": [1, {"c": None}], "a": "é\u2028"}, {"a": 1.5e300}):
        text = canonical(each)
        assert text.isascii()
        assert parsed(text) == each
    with pytest.raises(ValueError, match="JSON"):
        canonical({"a": float("nan")})
    assert argument_values(RunScript("ls", "/w")) is None


def test_an_ask_names_the_call() -> None:
    found = judge(ISSUE, "")
    assert isinstance(found, Ask)
    assert found.question.startswith("`mcp__github__create_issue {")
    assert "allows this one call" in found.question
