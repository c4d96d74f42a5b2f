"""Comparison of the proxy's request reader with h11: both must read the same request.

The proxy refuses much that h11 accepts (bare line feeds, folded lines, lists of equal lengths); that is intended. A
request that the proxy accepts and h11 reads in another way, or refuses, would be a request that two programs on the way
can read differently. KNOWN_SIZES lists the only differences; none is known for heads.
"""

import re
from urllib.parse import urlsplit

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.host_rule import authority
from sandbox.egress.http1 import END, HttpRequest, chunk_size, request
from sandbox.egress.ledger import Malformed

TUNNEL = ("api.test", 443)


def accepted(head: bytes, within: tuple[str, int] | None) -> HttpRequest | None:
    try:
        return request(head, within)
    except Malformed:
        return None


def agrees(head: bytes, ours: HttpRequest) -> None:
    """Assert that h11 reads the accepted request as the proxy does: method, place, headers and end of the body."""
    body = b"5;x=y\r\nhello\r\n0\r\n\r\n" if ours.length < 0 else b"a" * min(ours.length, 1000)
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    reader.receive_data(head + body + b"GET /next HTTP/1.1\r\n")
    theirs = reader.next_event()
    assert isinstance(theirs, h11.Request)
    assert theirs.method.decode() == ours.method
    target = theirs.target.decode()
    hosts = [value.decode("latin-1") for name, value in theirs.headers if name == b"host"]
    if ours.method == "CONNECT":
        assert authority(target) == (ours.host, ours.port)
        return
    assert len(hosts) <= 1
    for host in hosts:
        named = authority(host)
        assert named is not None
        assert named[0] == ours.host
    assert ours.path == (target if target[0] in "/*" else _path_of(target, ours.method))
    wanted = [(name.lower(), value) for name, value in ours.fields]
    seen = [(name.decode(), value.decode("latin-1")) for name, value in theirs.headers]
    assert [pair for pair in seen if pair in wanted] == wanted
    if ours.length > 1000:
        return
    received = b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        received += event.data
    assert received == (b"hello" if ours.length < 0 else body)
    assert reader.trailing_data[0] == b"GET /next HTTP/1.1\r\n"


def _path_of(target: str, method: str) -> str:
    """Return path and query of an absolute address; an empty path of OPTIONS means the server itself."""
    parts = urlsplit(target)
    query = f"?{parts.query}" if "?" in target else ""
    return (parts.path or ("*" if method == "OPTIONS" and not query else "/")) + query


# fmt: off
ODD: list[tuple[bytes, bool, str]] = [
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test",                                                True,  "plain"),
    (b"GET http://a.test HTTP/1.1\r\nHost: a.test",                                                 True,  "no path"),
    (b"GET http://a.test?x HTTP/1.1\r\nHost: a.test",                                               True,  "a query alone"),
    (b"GET http://a.test/ HTTP/1.0",                                                                True,  "no Host"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost:a.test\t ",                                              True,  "blanks around"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX:",                                          True,  "an empty value"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: \xff\xe9",                                 True,  "bytes above 127"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: a \t b",                                   True,  "blanks inside"),
    (b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5",                          True,  "a length"),
    (b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 005",                        True,  "zeros before"),
    (b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: Chunked",                 True,  "chunks"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3",                           True,  "a body of a GET"),
    (b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443",                                            True,  "a tunnel"),
    (b"OPTIONS http://a.test HTTP/1.1\r\nHost: a.test",                                             True,  "the server itself"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 5",      False, "equal lengths"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 5",                        False, "a list of lengths"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5",                          False, "a sign"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", False, "both"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked",            False, "two codings"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: \x0bchunked",              False, "a vertical tab"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked",                 False, "a blank in the name"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: a\r\n b",                                  False, "a folded line"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: a\nY: b",                                  False, "a bare line feed"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: a\rY: b",                                  False, "a bare return"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: a.test",                                False, "two hosts"),
    (b"GET http://a.test/ HTTP/1.1\r\nHost: b.test",                                                False, "another host"),
    (b"GET  http://a.test/ HTTP/1.1\r\nHost: a.test",                                               False, "two blanks"),
    (b"get http://a.test/ HTTP/1.1\r\nHost: a.test",                                                False, "small letters"),
    (b"GET http://a.test/ HTTP/1.2\r\nHost: a.test",                                                False, "another version"),
    (b"\r\nGET http://a.test/ HTTP/1.1\r\nHost: a.test",                                            False, "an empty line first"),
]
# fmt: on


@pytest.mark.parametrize(("head", "taken"), [row[:2] for row in ODD], ids=[row[2] for row in ODD])
def test_odd_requests_are_refused_or_read_as_h11_reads_them(head: bytes, taken: bool) -> None:
    ours = accepted(head + END, None)
    assert (ours is not None) is taken
    if ours is not None:
        agrees(head + END, ours)


METHODS = [b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"CONNECT", b"DELETE", b"M-SEARCH", b"get", b""]
TARGETS = [
    *(b"http://a.test/", b"http://A.test:80/x?y", b"HTTP://a.test", b"http://a.test?q=//b.test/", b"/path", b"/a//b"),
    *(b"*", b"a.test:443", b"http://a.test/%2e%2e/", b"http://b@a.test/", b"http://[::1]/", b"https://a.test/"),
]
VERSIONS = [b" HTTP/1.1", b" HTTP/1.0", b" HTTP/1.1 ", b" http/1.1", b" HTTP/11", b""]
NAMES = [
    *(b"Host", b"host", b"Content-Length", b"Transfer-Encoding", b"transfer-encoding", b"Connection", b"X-A"),
    *(b"Expect", b"Upgrade", b"Content_Length", b"X A", b"", b"X\x00", b"X\xe9"),
]
COLONS = [b": ", b":", b" : ", b":\t", b": \x0b"]
VALUES = [
    *(b"a.test", b"a.test:80", b"api.test", b"0", b"3", b"1000", b"3, 3", b"-1", b"3_0", b"chunked", b"Chunked", b"x"),
    *(
        b"gzip, chunked",
        b"identity",
        b"close",
        b"keep-alive, X-A",
        b"100-continue",
        b"websocket",
        b"",
        b"\xff",
        b"\x7f",
    ),
]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n ", b" \r\n"]
FIELD = st.tuples(*map(st.sampled_from, (NAMES, COLONS, VALUES, ENDS))).map(b"".join)
USUAL = st.sampled_from([
    b"Host: a.test\r\n", b"Host: api.test\r\n", b"X-A: b\r\n", b"Content-Length: 3\r\n", b"Connection: X-A\r\n",
    b"Transfer-Encoding: chunked\r\n", b"X-B:\xe9 \t \r\n",
])  # fmt: skip


@given(
    method=st.sampled_from(METHODS),
    target=st.sampled_from(TARGETS),
    version=st.sampled_from(VERSIONS[:2]) | st.sampled_from(VERSIONS),
    fields=st.lists(USUAL | FIELD, max_size=5),
    tunnel=st.booleans(),
)
def test_h11_reads_every_accepted_request_in_the_same_way(
    method: bytes, target: bytes, version: bytes, fields: list[bytes], tunnel: bool
) -> None:
    host = b"api.test" if tunnel else b"a.test"
    for more in (b"", b"Host: " + host + b"\r\n"):
        head = method + b" " + target + version + b"\r\n" + more + b"".join(fields)
        head = head.removesuffix(b"\r\n") + END
        ours = accepted(head, TUNNEL if tunnel else None)
        if ours is not None:
            agrees(head, ours)


# Lines of a chunk's size that h11 refuses and the proxy accepts. RFC 9112, 7.1.1, allows blanks before the semicolon of
# an extension (`BWS`) and requires that a recipient removes them.
KNOWN_SIZES = re.compile(rb"[0-9A-Fa-f]+[ \t]+;")


def test_h11_still_refuses_blanks_before_an_extension() -> None:
    assert chunk_size(b"5 ;x\r\n") == 5
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5 ;x\r\nhello\r\n")
    assert isinstance(reader.next_event(), h11.Request)
    with pytest.raises(h11.RemoteProtocolError, match="illegal chunk header"):
        reader.next_event()


@given(
    st.lists(st.sampled_from([*"0159aAfF", ";", "x", " ", "\t", "\r", "\n", "-", "+", "_"]), max_size=8).map("".join)
)
def test_h11_reads_the_size_of_every_accepted_chunk_in_the_same_way(text: str) -> None:
    line = text.encode() + b"\r\n"
    try:
        size = chunk_size(line)
    except Malformed:
        return
    if KNOWN_SIZES.match(line):
        return
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" + line)
    assert isinstance(reader.next_event(), h11.Request)
    shown = b"a" * min(size, 100)
    reader.receive_data(shown + (b"\r\n" if size <= 100 else b""))
    event = reader.next_event()
    if size == 0:
        assert isinstance(event, h11.EndOfMessage)
    else:
        assert isinstance(event, h11.Data)
        assert event.data == shown
        assert event.chunk_end is (size <= 100)
