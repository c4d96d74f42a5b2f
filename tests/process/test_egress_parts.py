"""Tests of the parsers of the egress proxy: addresses, ClientHello, HTTP heads, SOCKS."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.host_rule import host_rule
from sandbox.egress import client_hello as client_hello_module
from sandbox.egress import http1, socks
from sandbox.egress.addresses import can_be_private, refusal
from sandbox.egress.dialer import Dialer
from sandbox.egress.ledger import EgressRefused, Failed, Malformed
from tests.support.client_hellos import client_hello, extension, made, sni, split

# fmt: off
ADDRESSES = [
    # address               plain                private                why
    ("93.184.215.14",       None,                None,                  "public"),
    ("1.1.1.1",             None,                None,                  "public"),
    ("2606:4700::1111",     None,                None,                  "public"),
    ("127.0.0.1",           "this machine",      None,                  "loopback"),
    ("127.255.255.254",     "this machine",      None,                  "all of loopback"),
    ("::1",                 "this machine",      None,                  "loopback"),
    ("10.1.2.3",            "private",           None,                  "RFC 1918"),
    ("172.16.0.1",          "private",           None,                  "RFC 1918"),
    ("172.31.255.255",      "private",           None,                  "RFC 1918, the end"),
    ("172.32.0.1",          None,                None,                  "just past it"),
    ("192.168.1.1",         "private",           None,                  "RFC 1918"),
    ("100.64.0.1",          "provider",          None,                  "carrier-grade NAT"),
    ("fd12:3456::1",        "private",           None,                  "unique local"),
    ("0.0.0.0",             "unspecified",       "unspecified",         "this machine for connect(2)"),
    ("0.1.2.3",             "unspecified",       "unspecified",         "this network"),
    ("::",                  "unspecified",       "unspecified",         "this machine for connect(2)"),
    ("169.254.169.254",     "metadata",          "metadata",            "metadata"),
    ("169.254.170.2",       "metadata",          "metadata",            "metadata of a container"),
    ("169.254.1.1",         "link-local",        "link-local",          "link-local"),
    ("100.100.100.200",     "metadata",          "metadata",            "metadata inside a provider's network"),
    ("168.63.129.16",       "metadata",          "metadata",            "a public number, the host's by its place"),
    ("192.0.0.192",         "metadata",          "metadata",            "metadata"),
    ("fd00:ec2::254",       "metadata",          "metadata",            "metadata inside unique local ones"),
    ("fd20:ce::254",        "metadata",          "metadata",            "metadata"),
    ("fd20:ce:0:1::1",      "private",           None,                  "a customer's network beside Google's service"),
    ("fd00:ec2::253",       "metadata",          "metadata",            "all of AWS's prefix"),
    ("fd00:ec2:1::23",      "metadata",          "metadata",            "all of AWS's prefix"),
    ("fd00:42::42",         "metadata",          "metadata",            "Scaleway"),
    ("fd00:0042:0:0::42",   "metadata",          "metadata",            "Scaleway, spelled out"),
    ("fd00:c1::a9fe:a9fe",  "metadata",          "metadata",            "Oracle"),
    ("fd00:a9fe:a9fe::1",   "metadata",          "metadata",            "Akamai"),
    ("fd00:100::100:200",   "metadata",          "metadata",            "Alibaba"),
    ("fdab:cdef::a9fe:a9fe", "metadata",         "metadata",            "spelled like 169.254.169.254, for any provider"),
    ("fc00::a9fe:2a2a",     "metadata",          "metadata",            "spelled like 169.254.42.42"),
    ("fd00::1",             "private",           None,                  "unique local"),
    ("2001:4860:64::a9fe:a9fe", "metadata",      "metadata",            "a translator in a network of anybody"),
    ("2600:1f00::6464:64c8", "metadata",         "metadata",            "the same with Alibaba's"),
    ("fd12::6464:64c8",     "metadata",          "metadata",            "in a private network"),
    ("2001:4860::5efe:a00:1", "ISATAP",          "ISATAP",              "a tunnel to 10.0.0.1"),
    ("2001:4860::200:5efe:7f00:1", "ISATAP",     "ISATAP",              "and to 127.0.0.1"),
    ("2001:4860::5eff:a00:1", None,              None,                  "no tunnel"),
    ("2606:4700::a9fe:1",   None,                None,                  "public"),
    ("fd00::a9fe:1:1",      "private",           None,                  "the word at another place"),
    ("169.254.42.42",       "metadata",          "metadata",            "Scaleway"),
    ("169.254.0.23",        "metadata",          "metadata",            "Tencent"),
    ("100.96.0.96",         "metadata",          "metadata",            "Volcengine"),
    ("100.80.80.80",        "metadata",          "metadata",            "UCloud"),
    ("100.80.80.81",        "provider",          None,                  "its neighbour"),
    ("fe80::a9fe:a9fe",     "link-local",        "link-local",          "OpenStack"),
    ("fe80::1",             "link-local",        "link-local",          "link-local"),
    ("fe80::1%lo",          "scope",             "scope",               "an interface"),
    ("::1%lo",              "scope",             "scope",               "an interface"),
    ("224.0.0.1",           "multicast",         "multicast",           "multicast"),
    ("ff02::1",             "multicast",         "multicast",           "multicast"),
    ("255.255.255.255",     "reserved",          "reserved",            "broadcast"),
    ("240.0.0.1",           "reserved",          "reserved",            "future use"),
    ("192.0.2.1",           "documentation",     "documentation",       "documentation"),
    ("198.18.0.1",          "benchmarks",        "benchmarks",          "benchmarks"),
    ("::ffff:127.0.0.1",    "inside IPv6",       "inside IPv6",         "mapped"),
    ("::ffff:8.8.8.8",      "inside IPv6",       "inside IPv6",         "mapped, and public"),
    ("::127.0.0.1",         "inside IPv6",       "inside IPv6",         "compatible"),
    ("::ffff:0:127.0.0.1",  "inside IPv6",       "inside IPv6",         "translated"),
    ("64:ff9b::7f00:1",     "translator",        "translator",          "NAT64 with loopback"),
    ("64:ff9b::a9fe:a9fe",  "translator",        "translator",          "NAT64 with metadata"),
    ("64:ff9b:1::1",        "translator",        "translator",          "NAT64 of a network's own"),
    ("2001::1",             "Teredo",            "Teredo",              "Teredo"),
    ("2001:10::1",          "reserved",          "reserved",            "protocol assignments"),
    ("2001:db8::1",         "documentation",     "documentation",       "documentation"),
    ("2002:7f00:1::1",      "6to4",              "6to4",                "6to4 with loopback"),
    ("3fff::1",             "documentation",     "documentation",       "documentation"),
    ("4000::1",             "reserved",          "reserved",            "handed out to nobody"),
    ("100::1",              "reserved",          "reserved",            "discarded"),
    ("fec0::1",             "old site-local",                 "old site-local",                 "site-local"),
    ("5f00::1",             "reserved",          "reserved",            "segment routing"),
    ("127.1",               "not a valid",       "not a valid",         "short"),
    ("2130706433",          "not a valid",       "not a valid",         "decimal"),
    ("0177.0.0.1",          "not a valid",       "not a valid",         "octal"),
    ("0x7f.0.0.1",          "not a valid",       "not a valid",         "hexadecimal"),
    ("example.org",         "not a valid",       "not a valid",         "a name"),
    ("",                    "not a valid",       "not a valid",         "nothing"),
]
# fmt: on


@pytest.mark.threat("T53")
@pytest.mark.parametrize(("text", "plain", "private", "why"), ADDRESSES)
def test_which_addresses_are_connected_to(text: str, plain: str | None, private: str | None, why: str) -> None:
    for found, expected in ((refusal(text, private=False), plain), (refusal(text, private=True), private)):
        assert (found is None) == (expected is None), why
        assert (expected or "") in (found or ""), why
    assert can_be_private(text) == (plain is not None and private is None), why


@given(st.ip_addresses())
def test_law_what_the_standard_library_calls_special_is_never_public(address: object) -> None:
    from ipaddress import IPv4Address, IPv6Address

    assert isinstance(address, IPv4Address | IPv6Address)
    special = not address.is_global or address.is_multicast or address.is_reserved or address.is_link_local
    special = special and str(address) not in ("192.0.0.9", "192.0.0.10")
    if special:
        assert refusal(str(address), private=False) is not None
    assert refusal(str(address), private=False) is not None or refusal(str(address), private=True) is None


# ---- ClientHello


# fmt: off
HELLOS = [
    (made(sni(b"example.org")),                             "example.org", "one name"),
    (split(made(sni(b"example.org")), every=1),             "example.org", "one byte a record"),
    (split(made(sni(b"example.org")), every=7),             "example.org", "seven bytes a record"),
    (made(b""),                                             "",            "no extension"),
    (made(extension(16, b"\0\x03\x02h2")),                  "",            "others only"),
    (made(extension(0x0A0A, b"") + sni(b"a.b")),            "a.b",         "grease before it"),
    (made(sni(b"a.b") + extension(21, bytes(400))),         "a.b",         "padding after it"),
]
BAD_HELLOS = [
    (b"GET / HTTP/1.1\r\n",                                 "not TLS",      "plain HTTP"),
    (b"\x80\x2e\x01\x00\x02",                               "not TLS",      "SSL 2"),
    (b"\x15\x03\x01\x00\x02\x01\x00",                       "not TLS",      "an alert first"),
    (b"\x17\x03\x03\x00\x02xx",                             "not TLS",      "data first"),
    (b"\x16\x02\x00\x00\x02xx",                             "not TLS",      "another version of records"),
    (b"\x16\x03\x01\x00\x00",                               "length",       "an empty record, for ever"),
    (b"\x16\x03\x01\xff\xff",                               "length",       "too long a record"),
    (made(sni(b"a.b"), kind=2),                             "ClientHello",  "another message"),
    (made(sni(b"a.b"), size=1 << 20),                       "too large",    "a megabyte"),
    (made(sni(b"a.b"), size=50),                            "follows",      "a shorter message with something after it"),
    (made(sni(b"a.b")) + b"\x16\x03\x01\x00\x01\x01",       "follows",      "a second hello at once"),
    (split(made(sni(b"a.b") + extension(21, bytes(400))), every=1), "too many records", "hundreds of records, to be read again and again"),
    (made(sni(b"a.b") + sni(b"c.d")),                       "twice",        "two extensions of names"),
    (made(sni(b"a.b", b"c.d")),                             "cannot",       "two names in one"),
    (made(sni(b"a.b", kind=1)),                             "cannot",       "a name of another kind"),
    (made(sni(b"")),                                        "cannot",       "an empty name"),
    (made(sni("é.b".encode())),                             "cannot",       "not ASCII"),
    (made(extension(0, b"\0\x09\0\0\x03a.b")),              "cannot",       "a list longer than it is"),
    (made(extension(0, b"\0")),                             "cannot",       "half a list"),
    (made(sni(b"a.b"), tail=b"x"),                          "cannot",       "something after the extensions"),
    (made(b"\0\0\xff\xff"),                                 "cannot",       "an extension beyond the end"),
    (made(sni(b"a.b") + extension(0xFE0D, bytes(8))),       "hides",        "Encrypted ClientHello: the inner name counts"),
]
# fmt: on


@pytest.mark.threat("T55")
@pytest.mark.parametrize(("data", "name", "why"), HELLOS)
def test_the_name_in_a_client_hello_however_it_is_cut(data: bytes, name: str, why: str) -> None:
    assert client_hello_module.server_name(data) == (True, name), why
    for end in range(len(data)):
        assert client_hello_module.server_name(data[:end]) == (False, ""), f"{why}: whole only at the end"


@pytest.mark.threat("T55")
@pytest.mark.parametrize(("data", "part", "why"), BAD_HELLOS)
def test_what_is_no_client_hello_that_can_be_judged(data: bytes, part: str, why: str) -> None:
    with pytest.raises(Malformed) as caught:
        client_hello_module.server_name(data)
    assert part in caught.value.what, why


def test_early_data_may_follow_a_hello() -> None:
    early = b"\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x02xx"
    assert client_hello_module.server_name(made(sni(b"a.b")) + early) == (True, "a.b")


@pytest.mark.parametrize("name", ["example.org", "xn--bcher-kva.example", None])
def test_the_hello_of_a_real_client(name: str | None) -> None:
    assert client_hello_module.server_name(client_hello(name)) == (True, name or "")


@given(
    st.binary(max_size=300) | st.binary(max_size=300).map(lambda tail: b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc" + tail)
)
def test_law_any_bytes_are_a_hello_or_none(data: bytes) -> None:
    try:
        whole, name = client_hello_module.server_name(data)
    except Malformed:
        return
    assert whole or not name


@given(st.integers(0, 400), st.integers(0, 255))
def test_law_one_wrong_byte_in_a_real_hello_is_read_or_refused(at: int, value: int) -> None:
    data = bytearray(_REAL)
    data[at % len(data)] = value
    try:
        client_hello_module.server_name(bytes(data))
    except Malformed:
        return


_REAL = client_hello("example.org")


# ---- HTTP


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


HOST = "Host: example.org"
# fmt: off
REQUESTS = [
    (head("GET http://example.org/a?b HTTP/1.1", HOST),                        "GET example.org:80 /a?b 0",  "plain"),
    (head("GET http://example.org HTTP/1.1", HOST),                            "GET example.org:80 / 0",     "no path"),
    (head("GET http://example.org?b HTTP/1.1", HOST),                          "GET example.org:80 /?b 0",   "a query alone"),
    (head("OPTIONS http://example.org HTTP/1.1", HOST),                        "OPTIONS example.org:80 * 0", "of the server"),
    (head("GET HTTP://EXAMPLE.org./ HTTP/1.1", HOST),                          "GET example.org:80 / 0",     "one spelling"),
    (head("GET http://example.org:81/ HTTP/1.1", HOST + ":81"),                "GET example.org:81 / 0",     "a port"),
    (head("GET http://[::1]:81/ HTTP/1.1", "Host: [0::1]:81"),                 "GET [::1]:81 / 0",           "IPv6"),
    (head("GET http://example.org/ HTTP/1.0"),                                 "GET example.org:80 / 0",     "old"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length: 7"),     "POST example.org:80 / 7",    "a body"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Transfer-Encoding: Chunked"), "POST example.org:80 / -1", "chunks"),
    (head("CONNECT example.org:443 HTTP/1.1", "Host: example.org:443"),        "CONNECT example.org:443  0", "a tunnel"),
    (head("CONNECT example.org:443 HTTP/1.0"),                                 "CONNECT example.org:443  0", "as Python asks"),
    (head("CONNECT example.org:443 HTTP/1.1", "Host: proxy"),                  "CONNECT example.org:443  0", "its Host goes nowhere"),
]
BAD_REQUESTS = [
    (head("GET /a HTTP/1.1", HOST),                                            "the proxy accepts", "asked as if it were the server"),
    (head("GET https://example.org/ HTTP/1.1", HOST),                          "through CONNECT",   "TLS made by the proxy"),
    (head("GET ftp://example.org/ HTTP/1.1", HOST),                            "the proxy accepts", "another scheme"),
    (head("GET http://a@example.org/ HTTP/1.1", HOST),                         "valid host",        "a login"),
    (head("GET http://example.org@evil.org/ HTTP/1.1", HOST),                  "valid host",        "what looks like the host is the login"),
    (head("GET http://example.org\\@evil.org/ HTTP/1.1", HOST),                "valid host",        "backslash"),
    (head("GET http://2130706433/ HTTP/1.1", "Host: 2130706433"),              "valid host",        "decimal"),
    (head("GET http://0x7f.1/ HTTP/1.1", "Host: 0x7f.1"),                      "valid host",        "hexadecimal"),
    (head("GET http://[::ffff:127.0.0.1]/ HTTP/1.1", "Host: [::ffff:127.0.0.1]"), "valid host",       "mapped"),
    (head("GET http://example.org/#x HTTP/1.1", HOST),                         "the proxy accepts", "a fragment"),
    (head("GET http://example.org:080/ HTTP/1.1", HOST),                       "valid host",        "an odd port"),
    (head("GET http://example.org/ HTTP/1.1"),                                 "one Host",          "none"),
    (head("GET http://example.org/ HTTP/1.1", HOST, HOST),                     "one Host",          "two"),
    (head("GET http://example.org/ HTTP/1.1", "Host: evil.org"),               "another host",      "another one"),
    (head("GET http://example.org/ HTTP/1.1", HOST + ":81"),                   "another host",      "another port"),
    (head("GET http://example.org:81/ HTTP/1.1", HOST),                        "another host",      "a port that is left out"),
    (head("GET http://example.org/ HTTP/1.1", "Host: example.org, evil.org"),  "another host",      "a list"),
    (head("GET http://example.org/ HTTP/1.1", "Host : example.org"),           "header",            "space before the colon"),
    (head("GET http://example.org/ HTTP/1.1", HOST, " folded"),                "header",            "a folded line"),
    (head("GET http://example.org/ HTTP/1.1", HOST, "X: a\nY: b"),             "bare CR",           "bare line feed"),
    (head("GET http://example.org/ HTTP/1.1", HOST, "X: a\rY: b"),             "bare CR",           "bare carriage return"),
    (head("GET http://example.org/ HTTP/1.1", HOST, "X: a\0b"),                "bare CR",           "NUL"),
    (head("GET http://example.org/ HTTP/1.1", HOST, "X: a\x0bb"),              "header",            "a control"),
    (head("GET http://example.org/ HTTP/1.1", HOST, "no colon"),               "header",            "no field"),
    (head("GET http://example.org/ HTTP/1.1", HOST, ": x"),                    "header",            "no name"),
    (head("GET  http://example.org/ HTTP/1.1", HOST),                          "request line",      "two spaces"),
    (head("GET http://example.org/ HTTP/1.1 ", HOST),                          "request line",      "a space at the end"),
    (head("GET http://example.org/ HTTP/2.0", HOST),                           "request line",      "another version"),
    (head("GET http://example.org/", HOST),                                    "request line",      "HTTP/0.9"),
    (head("get http://example.org/ HTTP/1.1", HOST),                           "request line",      "methods have a case"),
    (head("GET http://example.org/ü HTTP/1.1", HOST),                          "request line",      "not ASCII"),
    (head("", "GET http://example.org/ HTTP/1.1", HOST),                       "request line",      "an empty line first"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length: 1", "Content-Length: 1"), "length",   "said twice"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length: 1, 1"),  "length",            "a list"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length: +1"),    "length",            "a sign"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length: 0x1"),   "length",            "hexadecimal"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length: 1_0"),   "length",            "Python would read it"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length:"),       "length",            "empty"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Content-Length: 1", "Transfer-Encoding: chunked"), "length",   "both"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Transfer-Encoding: gzip, chunked"), "length",   "another coding"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Transfer-Encoding: chunked, identity"), "length",   "not the last"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Transfer-Encoding: xchunked"), "length",      "nearly"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), "length",   "twice"),
    (head("POST http://example.org/ HTTP/1.0", "Transfer-Encoding: chunked"),  "length",            "unknown to this version"),
    (head("POST http://example.org/ HTTP/1.1", HOST, "Transfer-Encoding : chunked"), "header",      "space before the colon"),
    (head("CONNECT example.org HTTP/1.1", HOST),                               "one host and port", "no port"),
    (head("CONNECT http://example.org:443 HTTP/1.1", HOST),                    "one host and port", "a URL"),
    (head("CONNECT 0177.0.0.1:443 HTTP/1.1", HOST),                            "one host and port", "octal"),
    (head("CONNECT example.org:443 HTTP/1.1", HOST, "Content-Length: 3"),      "no body",           "a tunnel with a body"),
    (head("GET http://example.org/ HTTP/1.1", HOST, *["A: b"] * 300),          "too many",          "300 headers"),
    (head(""),                                                                 "request line",      "nothing"),
]
# fmt: on


@pytest.mark.parametrize(("data", "expected", "why"), REQUESTS)
def test_a_request_is_read(data: bytes, expected: str, why: str) -> None:
    found = http1.request(data)
    assert f"{found.method} {found.host}:{found.port} {found.path} {found.length}" == expected, why


@pytest.mark.threat("T56")
@pytest.mark.parametrize(("data", "part", "why"), BAD_REQUESTS)
def test_what_could_be_read_in_two_ways_is_refused(data: bytes, part: str, why: str) -> None:
    with pytest.raises(Malformed) as caught:
        http1.request(data)
    assert part in caught.value.what, why


# fmt: off
INSIDE = [
    (head("GET /a HTTP/1.1", HOST),                             True,  "the usual one"),
    (head("GET /a HTTP/1.1", HOST + ":8080"),                   True,  "with the port"),
    (head("GET http://example.org:8080/a HTTP/1.1", HOST + ":8080"), True, "as to a proxy"),
    (head("GET /a HTTP/1.1", "Host: evil.org"),                 False, "another host"),
    (head("GET /a HTTP/1.1", HOST + ":81"),                     False, "another port"),
    (head("GET /a HTTP/1.1"),                                   False, "no host"),
    (head("GET http://evil.org/a HTTP/1.1", HOST),              False, "another host, as to a proxy"),
    (head("CONNECT evil.org:443 HTTP/1.1", HOST),               False, "a tunnel in a tunnel"),
    (head("PRI * HTTP/2.0"),                                    False, "HTTP/2 without TLS: each stream has its own host"),
]
# fmt: on


@pytest.mark.threat("T55")
@pytest.mark.parametrize(("data", "expected", "why"), INSIDE)
def test_a_request_in_a_tunnel_is_for_the_tunnels_host(data: bytes, expected: bool, why: str) -> None:
    if expected:
        assert http1.request(data, ("example.org", 8080)).host == "example.org", why
    else:
        with pytest.raises(Malformed):
            http1.request(data, ("example.org", 8080))


@pytest.mark.threat("T56")
def test_what_is_sent_on_is_written_anew() -> None:
    found = http1.request(
        head(
            "POST http://example.org:81/a?b HTTP/1.1",
            *("host: EXAMPLE.org:81", "Connection: close, X-Gone", "X-Gone: 1", "Proxy-Authorization: Basic eDp5"),
            *("Keep-Alive: 5", "TE: trailers", "Upgrade: h2c", "HTTP2-Settings: x", "Proxy-Connection: keep-alive"),
            *("Transfer-Encoding: chunked", "Authorization: Bearer t", "X-Kept:  two words \t"),
        )
    )
    assert http1.sent(found).decode() == (
        "POST /a?b HTTP/1.1\r\nHost: example.org:81\r\nAuthorization: Bearer t\r\nX-Kept: two words\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )


def test_a_web_socket_keeps_its_upgrade_and_nothing_else_does() -> None:
    usual = head("GET http://example.org/ HTTP/1.1", HOST, "Connection: Upgrade", "Upgrade: websocket")
    assert b"Connection: Upgrade\r\nUpgrade: websocket\r\n" in http1.sent(http1.request(usual))
    for other in (usual.replace(b"websocket", b"h2c"), usual.replace(b"GET", b"POST")):
        assert b"pgrade" not in http1.sent(http1.request(other))


# fmt: off
ANSWERS = [
    (head("HTTP/1.1 200 OK", "A: b"),                       200,  "A: b\r\nConnection: close",      "usual"),
    (head("HTTP/1.1 200 OK", "Connection: keep-alive"),     200,  "200 OK\r\nConnection: close",    "the connection ends here"),
    (head("HTTP/1.0 200"),                                  200,  "Connection: close",              "no words"),
    (head("HTTP/1.1 100 Continue"),                         100,  "100 Continue\r\n\r\n",           "provisional"),
    (head("HTTP/1.1 101 Switching", "Connection: Upgrade", "Upgrade: websocket"), 101, "Upgrade: websocket\r\nConnection: Upgrade", "a web socket"),
    (head("HTTP/2 200 OK"),                                 None, "", "another version"),
    (head("SSH-2.0-x"),                                     None, "", "another protocol"),
    (head("HTTP/1.1 99 x"),                                 None, "", "no status"),
    (head("HTTP/1.1 200 OK", "A: b\nConnection: x"),        None, "", "bare line feeds"),
]
# fmt: on


@pytest.mark.parametrize(("data", "status", "part", "why"), ANSWERS)
def test_the_head_of_an_answer(data: bytes, status: int | None, part: str, why: str) -> None:
    if status is None:
        with pytest.raises(Failed):
            http1.response(data)
        return
    found, told = http1.response(data)
    assert found == status, why
    assert part in told.decode(), why


# fmt: off
CHUNKS = [
    (b"0\r\n", 0, "the last"), (b"1a\r\n", 26, "hexadecimal"), (b"5;name=value\r\n", 5, "an extension"),
    (b"5\n", None, "bare line feed"), (b"+5\r\n", None, "a sign"), (b"0x5\r\n", None, "a prefix"), (b"\r\n", None, "nothing"),
    (b" 5\r\n", None, "space first"), (b"5;a\rb\r\n", None, "carriage return in it"), (b"1" * 16 + b"\r\n", None, "too large"),
    (b"", None, "the end"), (b"-1\r\n", None, "less than nothing"), (b"1_0\r\n", None, "Python would read it"),
]
WORDS = [
    (b"GET / HTTP/1.1", True, "a request"), (b"GET http://a/", True, "as to a proxy"), (b"OPTIONS * H", True, "of the server"),
    (b"GET ", None, "not yet"), (b"G", None, "not yet"), (b"GET h", None, "not yet"), (b"SSH-2.0-x\r\n", False, "SSH"),
    (b"003egit-upload-pack", False, "git"), (b"PING\r\n", False, "Redis"), (b"NICK hugo", False, "IRC"), (b"\0\0\0\x08", False, "PostgreSQL"),
    (b"get / HTTP/1.1", False, "no method"), (b"A" * 40, False, "too long"), (b"PRI * HTTP/2.0", True, "HTTP/2, which is refused then"),
]
# fmt: on


@pytest.mark.threat("T56")
@pytest.mark.parametrize(("line", "size", "why"), CHUNKS)
def test_the_size_of_a_chunk(line: bytes, size: int | None, why: str) -> None:
    if size is None:
        with pytest.raises(Malformed):
            http1.chunk_size(line)
    else:
        assert http1.chunk_size(line) == size, why


@pytest.mark.parametrize(("data", "expected", "why"), WORDS)
def test_what_a_client_says_first(data: bytes, expected: bool | None, why: str) -> None:
    assert http1.looks_like(data) is expected, why


@given(st.binary(max_size=200) | st.text("GET http://a.b/%:@[]\r\n \t", max_size=80).map(str.encode))
def test_law_any_bytes_are_a_request_or_none_and_what_is_sent_reads_the_same(data: bytes) -> None:
    http1.looks_like(data)
    try:
        found = http1.request(data + http1.END)
    except Malformed:
        return
    if found.method != "CONNECT":
        again = http1.request(http1.sent(found), (found.host, found.port))
        assert (again.method, again.path, again.length) == (found.method, found.path, found.length)


# ---- SOCKS

NAME = b"\x0bexample.org"
# fmt: off
SOCKS = [
    (b"\x05\x01\x00\x03" + NAME + b"\x01\xbb",               (18, "example.org", 443),  "a name"),
    (b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50",            (10, "127.0.0.1", 80),     "IPv4"),
    (b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x50",      (22, "[::1]", 80),         "IPv6"),
    (b"\x05\x01\x00\x03" + NAME + b"\x01\xbbmore",           (18, "example.org", 443),  "something after it"),
    (b"\x05\x01\x00\x03" + NAME + b"\x01",                   (0, "", 0),                "not whole"),
    (b"\x05\x01\x00",                                        (0, "", 0),                "not whole"),
    (b"\x05\x01\x00\x03\x03a\0b\x00\x50",                    (10, "a\0b", 80),          "what is no name is for the caller"),
]
BAD_SOCKS = [
    (b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50",            "BIND",          7, "listening"),
    (b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00",            "UDP ASSOCIATE", 7, "datagrams"),
    (b"\x05\xf0\x00\x01\x00\x00\x00\x00\x00\x00",            "command 240",   7, "resolving (Tor)"),
    (b"\x05\x01\x00\x02\x00\x00\x00\x00\x00\x00",            "address type",  8, "another kind of address"),
    (b"\x05\x01\x01\x01\x00\x00\x00\x00\x00\x00",            "invalid",       1, "the reserved byte"),
    (b"\x04\x01\x00\x01\x00\x00\x00\x00\x00\x00",            "invalid",       1, "another version"),
]
GREETINGS = [
    (b"\x05\x01\x00",      3,    "none needed"),
    (b"\x05\x02\x02\x00",  4,    "one of two"),
    (b"\x05\x02\x00",      0,    "not whole"),
    (b"\x05",              0,    "not whole"),
    (b"\x05\x01\x02",      None, "only with a login"),
    (b"\x05\x00",          None, "none at all"),
    (b"\x04\x01\x00\x50",  None, "SOCKS4"),
]
# fmt: on


@pytest.mark.parametrize(("data", "expected", "why"), SOCKS)
def test_a_socks_request_is_read(data: bytes, expected: tuple[int, str, int], why: str) -> None:
    assert socks.request(data) == expected, why


@pytest.mark.parametrize(("data", "part", "code", "why"), BAD_SOCKS)
def test_socks_does_nothing_but_connect(data: bytes, part: str, code: int, why: str) -> None:
    with pytest.raises(socks.Unanswerable) as caught:
        socks.request(data)
    assert part in caught.value.what, why
    assert socks.answer(caught.value)[1] == code, why


@pytest.mark.parametrize(("data", "size", "why"), GREETINGS)
def test_a_socks_greeting(data: bytes, size: int | None, why: str) -> None:
    if size is None:
        with pytest.raises(socks.Unanswerable):
            socks.greeting(data)
    else:
        assert socks.greeting(data) == size, why


@given(st.binary(max_size=40))
def test_law_any_bytes_are_socks_or_not(data: bytes) -> None:
    for read in (socks.greeting, socks.request):
        with contextlib.suppress(socks.Unanswerable):
            read(data)


# fmt: off
RIGHTS = [
    ("GET a.org/x", ("a.org", 80, "POST", "/x"), "POST a.org/x", "another method"),
    ("GET a.org/x", ("a.org", 443, "", ""), "a.org", "a tunnel, where only some requests may be made"),
    ("GET 127.0.0.1:81/x private", ("127.0.0.1", 81, "GET", "/y"), "GET 127.0.0.1:81/y private", "an entry without it would end at the address"),
    ("a.org private", ("a.org", 8443, "", ""), "a.org:8443", "another port: who opens that says anew where it may lie"),
    ("a.org", ("b.org", 443, "", ""), "b.org", "another host"),
    ("a.org", ("[::1]", 81, "GET", "/x"), "GET [::1]:81/x private", "an address of this machine, which no other entry opens"),
    ("a.org", ("10.0.0.1", 443, "", ""), "10.0.0.1 private", "an address of a private network"),
    ("a.org", ("93.184.216.34", 443, "", ""), "93.184.216.34", "an address that is public"),
    ("a.org", ("169.254.169.254", 80, "GET", "/latest"), "", "nothing opens metadata"),
]
# fmt: on


@pytest.mark.parametrize(("entry", "asked", "right", "why"), RIGHTS, ids=[row[3] for row in RIGHTS])
def test_the_smallest_entry_that_would_do_is_named(
    entry: str, asked: tuple[str, int, str, str], right: str, why: str
) -> None:
    with pytest.raises(EgressRefused) as told:
        Dialer((entry,)).allowing(*asked)
    assert told.value.right == right, why
    assert not right or host_rule(right) == host_rule(str(host_rule(right))), why


def test_the_answers_of_socks() -> None:
    said = [socks.answer(each)[1] for each in (None, EgressRefused("no"), Failed("gone"), Malformed("what"))]
    assert said == [0, 2, 4, 1]


# fmt: off
OVERRIDES = [
    ("X-HTTP-Method-Override",      True,  "the usual one"),
    ("X-METHODOVERRIDE",            True,  "without a dash"),
    ("X_Http_Method",               True,  "an underline"),
    ("X-Method",                    True,  "short"),
    ("X-HTTP-Verb-Override",        True,  "another word"),
    ("X-Original-URL",              True,  "IIS, Symfony"),
    ("X-Original-Path",             True,  "the path alone"),
    ("X-Envoy-Original-Path",       True,  "Envoy's own"),
    ("X-Envoy-Decorator-Operation", True,  "all of Envoy's own"),
    ("X-Rewrite-URL",               True,  "IIS"),
    ("X-Rewritten-Uri",             True,  "another form"),
    ("Forwarded",                   True,  "RFC 7239"),
    ("X-Forwarded-Prefix",          True,  "a beginning of the path"),
    ("X-Forwarded-Scheme",          True,  "all of them"),
    ("X-Forward-Host",              True,  "without `ed`"),
    ("X-Host",                      True,  "the host"),
    ("Proxy-Host",                  True,  "the host"),
    ("X-Authority",                 True,  "as HTTP/2 calls it"),
    ("X-ProxyHost",                 True,  "in one word"),
    ("X-HTTP-DestinationURL",       True,  "in one word"),
    ("Base-Url",                    True,  "without `X-`"),
    ("Request-Uri",                 True,  "the request line's"),
    ("Script_Name",                 True,  "gunicorn"),
    ("Path-Info",                   True,  "CGI"),
    ("X-Ingress-Path",              True,  "an ingress"),
    ("X-Real-IP",                   True,  "who asks"),
    ("X-Accel-Redirect",            True,  "nginx"),
    ("X-Backend-Server",            True,  "which server answers"),
    ("X-Vault-Namespace",           True,  "the beginning of the path, for Vault"),
    ("X-Consul-Namespace",          True,  "for Consul"),
    ("X-Nomad-Namespace",           True,  "for Nomad"),
    ("Destination",                 False, "RFC 4918: judged as a further path of the request"),
    ("X-Request-Target",            True,  "as HTTP signatures call it"),
    ("X-Amz-Copy-Source-Range",     True,  "what is read"),
    ("X-Ms-Copy-Source",            True,  "what is read"),
    ("X-Symlink-Target",            True,  "what is read later"),
    ("X-Amz-Security-Token",        False, "`uri` inside a word"),
    ("X-Amz-Meta-Path",             False, "kept with an object"),
    ("X-Amz-Target",                False, "the operation that AWS's own programs name there and nowhere else"),
    ("Access-Control-Request-Method", False, "a browser"),
    ("X-Stainless-Helper-Method",   False, "OpenAI's library"),
    ("Mcp-Method",                  False, "a tool's call"),
    ("Max-Forwards",                False, "RFC 9110"),
    ("Upgrade-Insecure-Requests",   False, "a browser"),
    ("X-Requested-With",            False, "a browser"),
    ("Authorization",               False, "a credential"),
    ("User-Agent",                  False, "anybody"),
    ("Content-Type",                False, "anybody"),
    ("Referer",                     False, "a browser"),
    ("X-Api-Key",                   False, "a credential"),
    ("X-GitHub-Api-Version",        False, "GitHub's tool"),
    ("Git-Protocol",                False, "Git"),
    ("Npm-Command",                 False, "npm"),
    ("Docker-Content-Digest",       False, "a registry"),
    ("If-None-Match",               False, "a cache"),
    ("Traceparent",                 False, "tracing"),
]
PARAMETERS = [
    ("_method=DELETE", True), ("a=1&_method=PUT", True), ("a;_METHOD=x", True), ("%5fmethod=x", True), ("__method=x", True),
    ("_http_method=x", True), ("X-HTTP-Method-Override=PUT", True), ("$httpMethod=x", True), (".method=x", True), ("_method", True),
    ("method=flickr.test", False), ("payment_method=card", False), ("q=_method", False), ("", False), ("http=1", False),
]
# fmt: on


@pytest.mark.threat("T85")
def test_what_leads_a_server_to_another_request() -> None:
    def read(path: str, *fields: str) -> bool:
        lines = [f"GET http://a.test{path} HTTP/1.1", "Host: a.test", *fields]
        return http1.request("\r\n".join(lines).encode() + http1.END).overridden

    assert [(name, read("/", f"{name}: x")) for name, _, _ in OVERRIDES] == [(name, odd) for name, odd, _ in OVERRIDES]
    assert [(text, read(f"/?{text}")) for text, _ in PARAMETERS] == PARAMETERS
