"""Tests of one host pattern in Terms: its grammar, its written form, and the hosts that it matches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.host_rule import HostRule, authority, host_name, host_rule
from policy.model.verdict import Problem

# fmt: off
READ = [
    ("example.org",                  "example.org",               "a name"),
    ("Example.ORG.",                 "example.org",               "case and the dot at the end say nothing"),
    ("example.org/",                 "example.org",               "the whole host"),
    ("  example.org  ",              "example.org",               "space around it"),
    ("example.org:443",              "example.org:443",           "one port"),
    ("example.org:*",                "example.org:*",             "all ports"),
    ("*.example.org",                "*.example.org",             "what lies below"),
    ("my_bucket.example.org",        "my_bucket.example.org",     "underscores are in use"),
    ("192.0.2.7:8080",               "192.0.2.7:8080",            "an address"),
    ("[2001:DB8:0::1]:443",          "[2001:db8::1]:443",         "IPv6 in its usual spelling"),
    ("bücher.example",               "xn--bcher-kva.example",     "as it is sent"),
    ("BÜCHER.example",               "xn--bcher-kva.example",     "in either case"),
    ("xn--bcher-kva.example",        "xn--bcher-kva.example",     "as it was sent"),
    ("GET example.org",              "GET example.org",           "a method"),
    ("POST,GET,GET example.org/api", "GET,POST example.org/api",  "sorted, once each"),
    ("example.org:8080/api/",        "example.org:8080/api/",     "a prefix"),
    ("10.0.0.1 private",             "10.0.0.1 private",          "a private network"),
    ("GET h:1/a private",            "GET h:1/a private",         "all of it"),
    ("private",                      "private",                   "a host can be called that"),
]
REFUSED = [
    ("",                       "not one host",        "nothing"),
    ("a b c",                  "not one host",        "too many words"),
    ("*",                      "whole internet",      "everything"),
    ("*.",                     "not a host name",            "everything, otherwise"),
    ("a.*.org",                "not a host name",            "a star in the middle"),
    ("*example.org",           "not a host name",            "a star that is no label: it would match notexample.org"),
    ("https://example.org",    "scheme",              "a URL"),
    ("me@example.org",         "user name",           "a login"),
    ("example.org?x=1",        "not the query",        "a query"),
    ("example.org/a?x=1",      "not the query",        "a query after a path"),
    ("example.org:0",          "not a port",            "zero"),
    ("example.org:080",        "not a port",            "octal, perhaps"),
    ("example.org:65536",      "not a port",            "too large"),
    ("example.org:",           "not a port",            "empty"),
    ("example.org:٣",          "not a port",            "a digit of another script"),
    ("-a.org",                 "not a host name",            "looks like an option"),
    ("a..org",                 "not a host name",            "an empty label"),
    ("a" * 64 + ".org",        "not a host name",            "a label of 64"),
    ("a." * 127 + "org",       "not a host name",            "a name of 257"),
    ("127.1",                  "differently",         "short"),
    ("2130706433",             "differently",         "decimal"),
    ("0x7f000001",             "differently",         "hexadecimal"),
    ("0x7f.0.0.1",             "differently",         "partly hexadecimal"),
    ("017700000001",           "differently",         "octal"),
    ("0127.0.0.1",             "differently",         "octal part"),
    ("127.0.0.1.2",            "differently",         "too long"),
    ("256.0.0.1",              "differently",         "too large"),
    ("a.b.0x",                 "differently",         "browsers take an empty hexadecimal number for 0"),
    ("127.0.0.x1.1",           "differently",         "ends in a number"),
    ("*.127.0.0.1",            "no subdomains",       "an address has no names below it"),
    ("*.[::1]",                "no subdomains",       "nor has this one"),
    ("::1",                    "end of the address",  "no brackets"),
    ("2001:db8::1:443",        "end of the address",  "port or address?"),
    ("[::1",                   "no",                  "half a bracket"),
    ("[fe80::1%eth0]",         "an interface",               "an interface"),
    ("[::ffff:127.0.0.1]",     "inside IPv6",         "IPv4 in disguise"),
    ("[v1.x]",                 "not an IPv6",             "another kind"),
    ("straße.example",         "more than one name",  "older rules say strasse"),
    ("ⅷ.example",              "more than one name",  "maps to viii"),
    ("１２７.0.0.1",            "more than one name",  "full-width digits"),
    ("example。org",           "more than one name",  "another dot"),
    ("get example.org",        "not a method",          "methods have a case"),
    ("CONNECT example.org",    "not a method",          "a tunnel is no plain request"),
    ("GET, example.org",       "not a method",          "an empty one"),
    ("example.org/a/../b",     "two ways",            "steps back"),
    ("example.org/a/./b",      "two ways",            "stands still"),
    ("example.org//a",         "two ways",            "empty part"),
    ("example.org/%61",        "two ways",            "encoded"),
    ("example.org/a;b",        "two ways",            "parameters of a path"),
    ("example.org/a\\b",       "two ways",            "a backslash"),
    ("ex ample.org private",   "not a method",          "a space in the name"),
    ("exa\0mple.org",          "not a host name",            "NUL"),
]
MEETS = [
    ("example.org",          "example.org",       443,  "",     "",                     True,  "a tunnel"),
    ("example.org",          "example.org",       80,   "PUT",  "/x",                   True,  "any request"),
    ("example.org",          "example.org",       8080, "",     "",                     False, "another port"),
    ("example.org:*",        "example.org",       22,   "",     "",                     True,  "any port"),
    ("example.org",          "a.example.org",     443,  "",     "",                     False, "not below"),
    ("example.org",          "notexample.org",    443,  "",     "",                     False, "an ending is not enough"),
    ("*.example.org",        "a.example.org",     443,  "",     "",                     True,  "below"),
    ("*.example.org",        "a.b.example.org",   443,  "",     "",                     True,  "further below"),
    ("*.example.org",        "example.org",       443,  "",     "",                     False, "not itself"),
    ("*.example.org",        "notexample.org",    443,  "",     "",                     False, "the dot counts"),
    ("*.example.org",        ".example.org",      443,  "",     "",                     False, "an empty label"),
    ("GET example.org",      "example.org",       443,  "",     "",                     False, "a bound rule opens no tunnel"),
    ("GET example.org",      "example.org",       80,   "GET",  "/",                    True,  "the method"),
    ("GET example.org",      "example.org",       80,   "get",  "/",                    False, "methods have a case"),
    ("GET example.org",      "example.org",       80,   "POST", "/",                    False, "another"),
    ("example.org/api",      "example.org",       443,  "",     "",                     False, "no tunnel either"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api",                 True,  "itself"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/x",               True,  "below"),
    ("example.org/api",      "example.org",       80,   "GET",  "/apix",                False, "another name"),
    ("example.org/api/",     "example.org",       80,   "GET",  "/api",                 False, "not the folder itself"),
    ("example.org/api/",     "example.org",       80,   "GET",  "/api/x",               True,  "below"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/x%20y",           True,  "harmless coding"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/%C3%BC",          True,  "another script"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/%C3%9C",          True,  "also where a byte alone is a control"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/a;v=1",           True,  "parameters"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/...",             True,  "three dots are a name"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/../x",            False, "steps back"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/..",              False, "at the end"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/./x",             False, "read in two ways"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/%2e%2e/x",        False, "coded"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/.%2E/x",          False, "half coded"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/%252e%252e/x",    False, "coded twice"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/..%2fx",          False, "a coded slash"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/..;/x",           False, "parameters that some servers cut"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/..%3b/x",         False, "coded ones"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/..%3fx",          False, "a coded question mark, decoded too soon"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api\\..\\x",          False, "backslashes"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/..%5cx",          False, "coded backslash"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api//x",              False, "an empty part"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/x%00",            False, "NUL"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/%0a",             False, "a newline"),
    ("example.org/api",      "example.org",       80,   "GET",  "/api/%",               False, "half a coding"),
    ("example.org/api",      "example.org",       80,   "GET",  "api",                  False, "no path"),
    ("example.org/api",      "example.org",       80,   "GET",  "",                     False, "no path at all"),
    ("example.org/api",      "example.org",       80,   "GET",  "/API",                 False, "paths have a case"),
]
NAMES = [
    ("example.org",       "example.org",   "plain"),
    ("EXAMPLE.org.",      "example.org",   "one spelling"),
    ("[::1]",             "[::1]",         "an address"),
    ("[0:0::1]",          "[::1]",         "in its usual spelling"),
    ("::1",               None,            "no brackets"),
    ("127.0.0.1",         "127.0.0.1",     "an address"),
    ("127.0.0.1.",        "127.0.0.1",     "with a dot"),
    ("127.1",             None,            "odd"),
    ("0177.0.0.1",        None,            "odd"),
    ("2852039166",        None,            "the metadata service as a number"),
    ("[::ffff:1.2.3.4]",  None,            "IPv4 in disguise"),
    ("*.example.org",     None,            "a pattern is no host"),
    ("a b",               None,            "a space"),
    ("a\r\nHost: b",      None,            "a header smuggled in"),
    ("a%00b",             None,            "a coded NUL"),
    ("bücher.example",    None,            "programs send it in ASCII"),
    ("",                  None,            "nothing"),
    (".",                 None,            "the root"),
    ("a..",               None,            "two dots"),
]
AUTHORITIES = [
    ("example.org:443",   ("example.org", 443),  "usual"),
    ("example.org",       ("example.org", None), "without a port"),
    ("[::1]:80",          ("[::1]", 80),         "IPv6"),
    ("[::1]",             ("[::1]", None),       "without a port"),
    ("example.org:",      None,                  "half a port"),
    ("example.org:+80",   None,                  "a sign"),
    ("example.org:8_0",   None,                  "Python would read it"),
    ("example.org:080",   None,                  "octal, perhaps"),
    ("example.org:99999", None,                  "too large"),
    ("a@b:80",            None,                  "a login"),
    ("::1:80",            None,                  "no brackets"),
    ("a:b:80",            None,                  "two ports"),
]
# fmt: on


@pytest.mark.parametrize(("text", "canonical", "why"), READ)
def test_an_entry_is_read_and_written_in_one_way(text: str, canonical: str, why: str) -> None:
    rule = host_rule(text)
    assert isinstance(rule, HostRule), why
    assert str(rule) == canonical, why
    assert host_rule(canonical) == rule, why


@pytest.mark.parametrize(("text", "part", "why"), REFUSED)
def test_what_is_no_entry_is_refused_with_the_reason(text: str, part: str, why: str) -> None:
    problem = host_rule(text)
    assert isinstance(problem, Problem), why
    assert part in problem.why, why


@pytest.mark.parametrize(("text", "host", "port", "method", "path", "expected", "why"), MEETS)
def test_what_an_entry_lets_through(
    text: str, host: str, port: int, method: str, path: str, expected: bool, why: str
) -> None:
    rule = host_rule(text)
    assert isinstance(rule, HostRule)
    assert rule.meets(host, port, method, path) is expected, why


@pytest.mark.parametrize(("text", "expected", "why"), NAMES)
def test_a_host_has_one_spelling(text: str, expected: str | None, why: str) -> None:
    assert host_name(text) == expected, why


@pytest.mark.parametrize(("text", "expected", "why"), AUTHORITIES)
def test_host_and_port_of_a_request(text: str, expected: tuple[str, int | None] | None, why: str) -> None:
    assert authority(text) == expected, why


@given(st.text(alphabet=st.sampled_from("aZ.0x127*:[]/%-_ ,@GETprivate\\é。\0"), max_size=40) | st.text(max_size=40))
def test_law_any_text_is_a_rule_or_a_reason_and_a_rule_is_written_so_that_it_reads_back(text: str) -> None:
    rule = host_rule(text)
    if isinstance(rule, HostRule):
        assert host_rule(str(rule)) == rule
        assert rule.host.isascii()
        if not rule.host.startswith("*."):
            assert host_name(rule.host) == rule.host
    assert host_name(text) is None or host_name(host_name(text) or "") == host_name(text)
    authority(text)
