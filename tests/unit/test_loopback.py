"""Tests of commands on the sandbox's own loopback: which need no network, and which entries lead to the machine."""

from dataclasses import replace

import pytest

from policy.classify import classify
from policy.describe.summary import summarize
from policy.evaluation import EvaluationContext
from policy.model.action import RunScript
from policy.model.assessment import EffectKind, RuleKind, RuleRef
from policy.model.profile import Layer, PermissionRule
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow, Rights
from policy.permission.flag_rights import FlagRights
from sandbox.egress.variables import variables
from tests.support.classified import BOOK, judge, machine, profile

# fmt: off
INSIDE = [
    ("python3 server.py & curl -s localhost:8000",   ("localhost:8000",),  "a server and its client in one script"),
    ("curl -L http://127.0.0.1:3000/x | jq .",       ("127.0.0.1:3000",),  "redirects are followed inside the sandbox"),
    ("curl 'http://[::1]:3000/'",                    ("[::1]:3000",),      "the address of IPv6"),
    ("curl http://127.0.0.9:80/",                    ("127.0.0.9:80",),    "another address of the same network"),
    ("PORT=3000; curl localhost:$PORT/api",          ("localhost:3000",),  "a port that the script itself sets"),
    ("wget -qO- http://localhost:3000/x",            ("localhost:3000",),  "wget"),
    ("http :3000/api name=x",                        ("localhost:3000",),  "HTTPie's short form"),
    ("nc -z localhost 3000",                         ("localhost:3000",),  "nc as a client"),
    ("nc -l 8080",                                   ("",),                "nc as a server on all addresses"),
    ("nc -l 0.0.0.0 8080",                           ("",),                "all addresses by their name"),
    ("python3 -m http.server 8000",                  ("",),                "a server on all addresses"),
    ("python3 -m http.server --bind ::",             ("",),                "all addresses of IPv6"),
    ("psql -h localhost -c 'select 1'",              ("localhost",),       "a database client"),
    ("PGPASSWORD=x psql -h 127.0.0.1",               ("127.0.0.1",),       "a variable that names no host"),
    ("redis-cli ping",                               ("localhost",),       "a client that contacts this machine by itself"),
    ("redis-cli -u redis://localhost:6379 ping",     ("localhost:6379",),  "an address in a flag"),
    ("wrk -t2 http://localhost:3000/",               ("localhost:3000",),  "a load generator"),
    ("cat < /dev/tcp/localhost/80",                  ("localhost:80",),    "the shell's own sockets"),
]
OUTSIDE = [
    ("curl -x evil.test:3128 http://localhost",          "a proxy"),
    ("curl --resolve localhost:80:192.0.2.7 localhost",  "an address in place of the name"),
    ("http_proxy=http://evil.test curl localhost",       "a variable that names a proxy"),
    ("export HOME=/tmp/x; curl localhost",               "a variable that names other settings"),
    ("curl localhost https://example.org",               "another host beside it"),
    ("curl http://localhost@evil.test/",                 "the name is a login"),
    ("curl http://localhost.evil.test/",                 "the name begins another name"),
    ("curl http://127.1/",                               "a spelling that programs read in different ways"),
    ("curl \"localhost:$P\"",                            "the end of the word may be another host"),
    ("wget -e http_proxy=evil.test http://localhost",    "a setting as a flag"),
    ("nc -x evil.test:80 localhost 3000",                "a proxy of nc"),
    ("nc -l 192.0.2.7 8080",                             "a server on an address that the sandbox does not have"),
    ("python3 -m http.server --bind 192.0.2.7",          "the same in Python"),
    ("http --proxy=http:http://evil.test :3000",         "a proxy of HTTPie"),
    ("psql -qh evil.test",                               "a host flag behind another letter"),
    ("psql 'host=evil.test dbname=x'",                   "a host inside another word"),
    ("psql 'postgres://localhost/x?host=evil.test'",     "a host inside an address"),
    ("PGHOST=evil.test psql",                            "a variable that names the host"),
    ("redis-cli -h evil.test ping",                      "another host"),
]
# fmt: on


def loopback(script: str) -> tuple[str, ...]:
    return tuple(effect.target for effect in judge(script).effects if effect.kind is EffectKind.USES_LOOPBACK)


@pytest.mark.parametrize(("script", "hosts", "why"), INSIDE, ids=[row[2] for row in INSIDE])
def test_the_loopback_needs_no_network(script: str, hosts: tuple[str, ...], why: str) -> None:
    assessment = judge(script)
    assert (loopback(script), assessment.tiers[0]) == (hosts, Tier.EXECUTE), why
    context = EvaluationContext(machine(), BOOK, profile(), Mode.TRUST_PROJECT, ())
    verdict = context.decide(assessment)
    assert isinstance(verdict, Allow)
    assert (verdict.permit.terms.rights, verdict.permit.terms.hosts) == (Rights.WORKSPACE_WRITE, ())
    said = f"connects to {hosts[0]}, inside the sandbox" if hosts[0] else "uses the loopback of the sandbox"
    assert said in summarize(assessment, machine())


@pytest.mark.threat("T130")
@pytest.mark.parametrize(("script", "why"), OUTSIDE, ids=[row[1] for row in OUTSIDE])
def test_what_may_lead_elsewhere_is_asked_about(script: str, why: str) -> None:
    assert loopback(script) == (), why
    assert judge(script).tiers[0] > Tier.READ_OUTSIDE, why


PRIVATE = [
    ("localhost:8000 private", EffectKind.CONNECTS, Tier.NETWORK, "the entry leads to the machine"),
    ("localhost:8000", EffectKind.USES_LOOPBACK, Tier.EXECUTE, "an entry without `private` leads nowhere"),
    ("localhost:9000 private", EffectKind.USES_LOOPBACK, Tier.EXECUTE, "another port of the machine"),
]


@pytest.mark.threat("T130")
@pytest.mark.parametrize("typed", [True, False], ids=["by a flag", "by a rule"])
@pytest.mark.parametrize(("entry", "kind", "tier", "why"), PRIVATE, ids=[row[3] for row in PRIVATE])
def test_only_a_private_entry_is_a_connection_to_the_machine(
    entry: str, kind: EffectKind, tier: Tier, why: str, *, typed: bool
) -> None:
    rule = PermissionRule(Ruling.ALLOW, RuleRef(RuleKind.USER, "x.toml", 1), Layer.USER, host=(entry,))
    with_rule = profile() if typed else replace(profile(), permissions=(rule,))
    flags = FlagRights(hosts=(entry,)) if typed else None
    action = RunScript("curl http://localhost:8000/", machine().workspace)
    found = classify(action, machine(), BOOK, with_rule, typed=flags)
    assert (found.effects[0].kind, found.tiers[0] if not found.covered else Tier.NETWORK) == (kind, tier), why


DENIED = [("localhost", Ruling.DENY, "the rule names it"), ("example.org", Ruling.ALLOW, "the rule names another host")]


@pytest.mark.parametrize(("host", "ruling", "why"), DENIED, ids=[row[2] for row in DENIED])
def test_a_rule_that_denies_the_name_holds(host: str, ruling: Ruling, why: str) -> None:
    rule = PermissionRule(Ruling.DENY, RuleRef(RuleKind.USER, "x.toml", 1), Layer.USER, host=(host,))
    context = EvaluationContext(machine(), BOOK, replace(profile(), permissions=(rule,)), Mode.TRUST_PROJECT, ())
    _, verdict = context.evaluate(RunScript("curl localhost:80; python3 -m http.server", machine().workspace))
    assert isinstance(verdict, Allow) is (ruling is Ruling.ALLOW), why


NAMES = [
    ((), "localhost,127.0.0.1,::1", "no entry"),
    (("localhost:8000",), "localhost,127.0.0.1,::1", "an entry without `private`"),
    (("localhost:8000 private",), "127.0.0.1,::1", "the name"),
    (("127.0.0.1:8000 private", "[::1]:80 private"), "localhost", "the addresses"),
]


@pytest.mark.threat("T130")
@pytest.mark.parametrize(("hosts", "own", "why"), NAMES, ids=[row[2] for row in NAMES])
def test_only_a_private_entry_sends_the_loopback_to_the_proxy(hosts: tuple[str, ...], own: str, why: str) -> None:
    assert {variables({}, hosts)[name] for name in ("NO_PROXY", "no_proxy")} == {own}, why
