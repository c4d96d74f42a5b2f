"""Tests of `agent audit stats`: golden text and JSON of recorded decisions, and rows for each category."""

import json

import pytest

from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail, bare_host
from runner.audit.list_view import WIDE
from runner.audit.reports.stats import Known, Stats, stats_json, stats_text, unnamed
from tests.support.golden_records import all_deeds, golden

KNOWN = Known(
    ("/home/ann/.config/ringfence/config.toml:3", "builtin:rights/floor"),
    {
        "command:search": ("command:search:27", "command:search:40"),
        "command:git": ("command:git:1",),
    },
)


def counted(top: int = 10) -> Stats:
    stats = Stats(top)
    for deed in all_deeds():
        stats.add(deed)
    return stats


@pytest.mark.parametrize(("name", "width", "top"), [("plain", WIDE, 10), ("narrow", 80, 3)])
def test_the_text(name: str, width: int, top: int) -> None:
    golden(f"audit_stats_{name}.txt", stats_text(counted(top), KNOWN, colour=False, width=width) + "\n")


def test_the_json() -> None:
    golden("audit_stats.json", json.dumps(stats_json(counted(), KNOWN), indent=2) + "\n")


def test_the_order_of_decisions_makes_no_difference() -> None:
    other = Stats()
    for deed in reversed(all_deeds()):
        other.add(deed)
    assert stats_json(other, KNOWN) == stats_json(counted(), KNOWN)


def test_every_decision_is_in_every_count() -> None:
    stats = counted()
    whole = len(all_deeds())
    assert stats.whole.all == whole == sum(count.all for count in stats.tables["tiers"].values())
    assert stats.answers.total() == sum(asked.answers.total() for asked in stats.questions.values())


def decided(**fields: object) -> DecisionTrail:
    body = {"kind": "decided", "verdict": "deny", "cell": {"tier": "network", "ruling": "ask"}, "action": {}} | fields
    return DecisionTrail(Record(7, "0" * 64, body), None, None)


# fmt: off
ANSWERS = [
    ({"answer": {"yes": True, "by": "terminal"}, "verdict": "allow"},              "yes",        "a person"),
    ({"answer": {"yes": False, "by": "terminal"}},                                 "no",         "a person"),
    ({"answer": {"yes": True, "by": "grant g1"}, "verdict": "allow"},              "remembered", "a grant"),
    ({"answer": {"yes": False, "by": "remembered no g1"}},                         "remembered", "a no, too"),
    ({"answer": {"yes": True, "by": "grants-portal"}, "verdict": "allow"},         "yes",        "an approver named so"),
    ({"answer": {"yes": True, "by": "grant portal"}, "verdict": "allow"},          "yes",        "another one"),
    ({"answer": {"yes": False, "by": "remembered"}},                               "no",         "and a third one"),
    ({"answer": {"yes": True, "by": "grant g1", "source": "user"}},                "yes",        "the field has precedence"),
    ({"answer": {"yes": True, "by": "a", "source": "grant"}, "verdict": "allow"},  "remembered", "a grant of this version"),
    ({"answer": {"yes": False, "by": "a", "source": "refusal"}},                   "remembered", "a no of this version"),
    ({"answer": {"yes": False, "by": "a", "source": ["grant"]}},                   "no",         "an unreadable source"),
    ({"verdict": "allow"},                                                         "by rule",    "nobody had to be asked"),
    ({},                                                                           "nobody",     "unattended"),
]
HOSTS = [
    ("example.org:443", "example.org"), ("example.org", "example.org"), ("2001:db8::1", "2001:db8::1"),
    ("[2001:db8::1]:443", "2001:db8::1"), ("10.0.0.1:80 private", "10.0.0.1"), ("", ""),
    ("[::1]:* private", "::1"), ("GET,POST example.org:8080/api", "example.org"), ("*.example.org:*", "*.example.org"),
]
# fmt: on


@pytest.mark.parametrize(("fields", "answer", "why"), ANSWERS, ids=[why for _, _, why in ANSWERS])
def test_who_answered(fields: dict[str, object], answer: str, why: str) -> None:
    stats = Stats()
    stats.add(decided(**fields))
    assert dict(stats.answers) == {answer: 1}, why


@pytest.mark.parametrize(("target", "host"), HOSTS, ids=[target for target, _ in HOSTS])
def test_a_host_without_its_port(target: str, host: str) -> None:
    assert bare_host(target) == host
    named = decided(effects=[{"kind": "connects", "target": target}])
    assert named.hosts == ([host] if host else [])
    stats = Stats()
    stats.add(named)
    assert list(stats.tables["hosts"]) == named.hosts


def test_a_rule_that_only_helped_has_spoken() -> None:
    stats = Stats()
    stats.add(decided(rules=[{"rule": "a.toml:1"}], reasons=[{"rule": "b.toml:2"}], because={"rule": "c.toml:3"}))
    assert unnamed(stats, ["a.toml:1", "b.toml:2", "c.toml:3", "d.toml:4", "d.toml:4"]) == ["d.toml:4"]


STRANGE: list[object] = [None, 0, True, "", "x", [], ["x"], {}, {"x": []}, 1e300]


@pytest.mark.parametrize("value", STRANGE, ids=[json.dumps(value) for value in STRANGE])
def test_a_field_of_another_shape_counts_somehow(value: object) -> None:
    for deed in (deed for deed in all_deeds() if deed.record.id in (8, 11, 16)):
        for field in deed.record.body:
            stats = Stats()
            stats.add(DecisionTrail(Record(1, "", {**deed.record.body, field: value}), None, deed.finished))
            for part in deed.finished.body if deed.finished else ():
                changed = Record(2, "", {**(deed.finished.body if deed.finished else {}), part: value})
                stats.add(DecisionTrail(deed.record, None, changed))
            assert stats_text(stats, KNOWN, colour=True, width=80)
            assert json.dumps(stats_json(stats, KNOWN))
