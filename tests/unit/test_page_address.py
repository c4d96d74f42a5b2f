"""Tests of the canonical form of the address of a web page, and of the addresses that are refused."""

import pytest

from policy.model.action import FetchAddress
from policy.model.assessment import EffectKind
from policy.model.page_address import page_address
from policy.model.tier import Tier
from policy.model.verdict import Problem
from tests.support.permission_machine import assess

# fmt: off
ADDRESSES = (
    # (given, canonical form or words of the refusal, why)
    ("https://Example.ORG",                    "https://example.org/",                       "upper case, and no path"),
    ("  https://example.org/a#part ",          "https://example.org/a",                      "a fragment is never sent"),
    ("HTTPS://example.org:443/a?b=c&d=%20e",   "https://example.org/a?b=c&d=%20e",           "the usual port"),
    ("http://example.org:8080/a",              "http://example.org:8080/a",                  "another port"),
    ("http://example.org:443/",                "http://example.org:443/",                    "the usual port of the other scheme"),
    ("https://example.org./a",                 "https://example.org/a",                      "the final dot of a name"),
    ("https://de.example.org/wiki/Öl?q=ü",     "https://de.example.org/wiki/%C3%96l?q=%C3%BC", "letters of a path"),
    ("https://[2001:db8::1]:8443/x",           "https://[2001:db8::1]:8443/x",               "an IPv6 address"),
    ("https://example.org/?next=https://b.org/@x", "https://example.org/?next=https://b.org/@x", "an address in a query"),
    ('https://example.org/"<x>',               "https://example.org/%22%3Cx%3E",             "marks that are always encoded"),
    ("file:///etc/passwd",                     "only addresses that begin",                  "a file"),
    ("data:text/html,<h1>x</h1>",              "only addresses that begin",                  "data"),
    ("javascript:alert(1)",                    "only addresses that begin",                  "a script"),
    ("ftp://example.org/x",                    "only addresses that begin",                  "another protocol"),
    ("example.org/x",                          "only addresses that begin",                  "no scheme"),
    ("https:example.org",                      "only addresses that begin",                  "a scheme without slashes"),
    ("https://user:hunter2@example.org/",      "user name or a password",                    "userinfo"),
    ("https://example.com@evil.example/",      "user name or a password",                    "a host that looks like another"),
    ("https://example.com\\@evil.example/",    "backslash",                                  "programs disagree about the host"),
    ("https://example.org/a b",                "blank",                                      "a blank"),
    ("https://example.org/\r\nX-Evil: 1",      "blank, a control character",                 "header injection"),
    ("https://example.org/\tx",                "blank, a control character",                 "a tab, which browsers leave out"),
    ("https://exa\u200bmple.org/",             "blank, a control character",                 "an invisible character"),
    ("https://\u0430pple.com/",                "`xn--pple-43d.com`",                         "a letter that looks like another"),
    ("https://ex%61mple.org/",                 "usual form",                                 "an encoded host"),
    ("https://127.1/",                         "usual form",                                 "a short address"),
    ("https://0x7f.0.0.1/",                    "usual form",                                 "a hexadecimal address"),
    ("https://2130706433/",                    "usual form",                                 "an address as one number"),
    ("https://[::ffff:127.0.0.1]/",            "usual form",                                 "an IPv4 address inside IPv6"),
    ("https://[fe80::1%25eth0]/",              "usual form",                                 "an address with an interface"),
    ("https://example.org:0/",                 "usual form",                                 "no port"),
    ("https://example.org:99999/",             "usual form",                                 "no port either"),
    ("https:///x",                             "usual form",                                 "no host"),
    ("https://example.org/" + "x" * 5000,      "more than 4,096",                            "a long address"),
    ("https://example.org/" + "ö" * 2000,      "more than 4,096",                            "an address that is long when encoded"),
)
# fmt: on


@pytest.mark.threat("T238")
@pytest.mark.parametrize(("given", "expected", "why"), ADDRESSES, ids=[row[-1] for row in ADDRESSES])
def test_an_address_has_one_form_or_is_refused(given: str, expected: str, why: str) -> None:
    found = page_address(given)
    if isinstance(found, Problem):
        assert expected in f"{found.why}; {found.fix}"
        assert "hunter2" not in str(found)
    else:
        assert found == expected
        assert page_address(found) == found, "the form is stable"
        assessment = assess(FetchAddress(found), "")
        assert assessment.tiers == (Tier.NETWORK,)
        assert [effect.kind for effect in assessment.effects] == [EffectKind.CONNECTS]


def test_reading_on_is_no_connection() -> None:
    assessment = assess(FetchAddress("https://example.org/", 40_000), "")
    assert (assessment.tiers, assessment.effects) == ((Tier.READ,), ())
