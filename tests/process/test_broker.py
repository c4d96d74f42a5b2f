"""Tests of the credential broker in the proxy: which request gets the header, its destination, and the response."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.credential import FOR_READING, Credential
from runner.secrets.broker import injector as lender
from runner.secrets.broker.injector import CredentialInjector
from runner.secrets.broker.session_ca import CERTIFICATES, Authority
from sandbox.egress.credential_injection import InjectedHeader
from sandbox.egress.proxy import Egress
from tests.support.credential_rows import forge, rows
from tests.support.egress_network import Names, Proxy, Server, certificate, proxying, serving
from tests.support.waiting import until_async

SECRET = "canary-7c1f9e-token"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOST = "forge.test"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls") / "server.pem", HOST, "*.forge.test", "127.0.0.2")


@contextlib.asynccontextmanager
async def brokered(
    given: tuple[Credential, ...],
    *hosts: str,
    believing: Path | None,
    environ: dict[str, str] | None = None,
    authority: Authority | None = None,
) -> AsyncIterator[Proxy]:
    """A proxy that lends `given`; `believing`: whose certificate it takes for its system's store."""
    names = Names(forge__test=[("127.0.0.2",)], other__test=[("127.0.0.2",)])
    names.answers["sub.forge.test"] = [("127.0.0.2",)]
    proxy = Proxy(hosts, names)
    lender = CredentialInjector(
        given, {"FORGE_TOKEN": SECRET} if environ is None else environ, "/nowhere", authority=authority
    )
    lender._trust = ssl.create_default_context(cafile=str(believing)) if believing else ssl.create_default_context()
    proxy.egress = Egress(proxy.listener, hosts, names, lender.lend(tuple(each.name for each in given)))
    proxy.egress.begin()
    try:
        yield proxy
        await proxy.done()
    finally:
        proxy.egress.close()


def ask(path: str, *fields: str, method: str = "GET", port: int, host: str = HOST, body: str = "") -> bytes:
    name = f"{host}:{port}"
    return "\r\n".join([f"{method} http://{name}{path} HTTP/1.1", f"Host: {name}", *fields, "", body]).encode()


# fmt: off
JUDGED = [
    ("GET,POST {at}/team/", "GET",     "/team/x",              (),                                  True,  "below the prefix, by the method"),
    ("GET,POST {at}/team/", "GET",     "/team/x?y=/../z",      (),                                  True,  "a query is no path"),
    ("GET,POST {at}/team/", "DELETE",  "/team/x",              (),                                  False, "another method"),
    ("GET,POST {at}/team/", "GET",     "/other/x",             (),                                  False, "another prefix"),
    ("GET,POST {at}/team/", "GET",     "/teammate",            (),                                  False, "a longer name"),
    ("GET,POST {at}/team/", "GET",     "/team/../other",       (),                                  False, "steps back"),
    ("GET,POST {at}/team/", "GET",     "/team/%2e%2e/other",   (),                                  False, "steps back, coded"),
    ("GET,POST {at}/team/", "GET",     "/team/%252e%252e/x",   (),                                  False, "coded twice"),
    ("GET,POST {at}/team/", "GET",     "/team/..%2fother",     (),                                  False, "a coded slash"),
    ("GET,POST {at}/team/", "GET",     "/team/%c3%a9t%c3%a9",  (),                                  True,  "letters beyond ASCII"),
    ("GET,POST {at}/team/", "GET",     "/team/%c0%ae%c0%ae/x", (),                                  False, "a dot in two bytes"),
    ("GET,POST {at}/team/", "GET",     "/team/%ef%bc%8e%ef%bc%8e/x", (),                            False, "what some take for a dot"),
    ("GET,POST {at}/team/", "GET",     "/team/x%e2%88%95y",    (),                                  True,  "what nobody takes for a slash"),
    ("GET,POST {at}/team/", "GET",     "/team/x%ef%bc%8fy",    (),                                  False, "what some take for a slash"),
    ("GET,POST {at}/team/", "GET",     "/team//x",             (),                                  False, "an empty part"),
    ("GET,POST {at}/team/", "GET",     "//team/x",             (),                                  False, "an empty part in front"),
    ("GET,POST {at}/team/", "GET",     "/team/..;/other",      (),                                  False, "a parameter"),
    ("GET,POST {at}/team/", "GET",     "/team\\..\\other",     (),                                  False, "backslashes"),
    ("GET,POST {at}/team/", "GET",     "/TEAM/x",              (),                                  False, "another case"),
    ("GET,POST {at}/team/", "GET",     "/team/x",              ("X-HTTP-Method-Override: DELETE",), False, "another method in a header"),
    ("GET,POST {at}/team/", "GET",     "/team/x",              ("X_Original_URL: /other",),         False, "another path in a header"),
    ("PUT {at}/team/",      "PUT",     "/team/x",              ("x-amz-copy-source: /other/x",),    False, "a copy of what lies elsewhere"),
    ("{at}/team/",          "GET",     "/team/x",              ("X-Forwarded-Host: other.test",),   False, "another host in a header"),
    ("{at}/team/",          "COPY",    "/team/x",              ("Destination: /team/y",),           True,  "a copy to below the prefix"),
    ("{at}/team/",          "COPY",    "/team/x",              ("Destination: /other/y",),          False, "a copy to elsewhere"),
    ("{at}/team/",          "MOVE",    "/team/x",              ("Destination: /team/../other",),    False, "stepping out"),
    ("{at}/team/",          "COPY",    "/team/x",              ("destination: //other.test/team/",), False, "to no certain place"),
    ("{at}/team/",          "COPY",    "/team/x",              ("Destination: /team/y", "Destination: /other/y"), False, "to two places"),
    ("{at}/team/",          "COPY",    "/team/x",              ("Destination: https://other.test/team/",), False, "to another host"),
    ("{at}/team/",          "COPY",    "/team/x",              ("Destination: https://forge.test/team/y",), True, "to this host"),
    ("GET,POST {at}/team/", "GET",     "/team/x",              ("Connection: authorization",),      True,  "what is hop by hop is the sandbox's, not ours"),
    ("GET,POST {at}/team/", "GET",     "/team/x",              ("Authorization: Bearer mine",),     True,  "a placeholder is replaced"),
    ("GET,POST {at}/team/", "GET",     "/team/x",              ("AUTHORIZATION: a", "authorization: b"), True, "all of them"),
    ("GET,POST {at}/team/", "GET",     "/team/x",              ("Connection: Upgrade", "Upgrade: websocket"), False, "what becomes something else"),
    ("{at}",                "TRACE",   "/",                    (),                                  False, "TRACE would send it back"),
    ("{at}",                "TRACK",   "/",                    (),                                  False, "and its sister"),
    ("{at}",                "BREW",    "/",                    (),                                  False, "nobody knows what it does"),
    ("{at}",                "PATCH",   "/a//b",                (),                                  True,  "without a prefix any path is meant"),
    ("sub.{at}",            "GET",     "/",                    (),                                  False, "another host, though on the same server"),
    ("*.{at}",              "GET",     "/",                    (),                                  False, "what lies below is not it"),
]
# fmt: on


@pytest.mark.threat("T85")
@pytest.mark.parametrize(("rule", "method", "path", "fields", "added", "why"), JUDGED)
def test_which_requests_get_it(
    pem: Path, rule: str, method: str, path: str, fields: tuple[str, ...], added: bool, why: str
) -> None:
    async def scene() -> tuple[Server, Proxy]:
        async with serving(OK, tls=pem) as server:
            given = forge(f'["{rule.format(at=f"{HOST}:{server.port}")}", "GET {HOST}:{server.port}/always/"]')
            async with brokered(given, f"{HOST}:{server.port} private", believing=pem) as proxy:
                answer = await proxy.say(ask(path, *fields, method=method, port=server.port))
                assert answer.startswith(b"HTTP/1.1 200"), answer
        return server, proxy

    server, proxy = asyncio.run(scene())
    (heard,) = server.heard
    assert (heard.lower().count(b"\r\nauthorization: bearer " + SECRET.encode()) == 1) is added, why
    assert heard.lower().count(b"authorization") == added, why
    assert [each.credential for each in proxy.connections] == (["forge"] if added else [""])
    assert server.names == [HOST], "over TLS, for the host that was asked for"


# fmt: off
KEPT = [
    ("GET http://{at}/team/x HTTP/1.1\r\nHost: {at}\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",                "two lengths"),
    ("POST http://{at}/team/x HTTP/1.1\r\nHost: {at}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "length and chunks"),
    ("POST http://{at}/team/x HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",                    "an odd coding"),
    ("GET http://{at}/team/x\r\nX: y HTTP/1.1\r\nHost: {at}\r\n\r\n",                                                     "a line end in the path"),
    ("GET http://{at}/team/x HTTP/1.1\r\nHost: {at}\r\nA: b\nAuthorization: c\r\n\r\n",                                   "a bare line feed"),
    ("GET http://{at}/team/x HTTP/1.1\r\nHost: {at}\r\nA: b\r\n Host: evil\r\n\r\n",                                      "a folded line"),
    ("GET http://{at}/team/x HTTP/1.1\r\nHost: other.test\r\n\r\n",                                                       "the Host header is another's"),
    ("GET http://{at}/team/x HTTP/1.1\r\nHost: {at}\r\nHost: other.test\r\n\r\n",                                         "two of them"),
    ("GET http://me@{at}/team/x HTTP/1.1\r\nHost: {at}\r\n\r\n",                                                          "a login in the address"),
    ("GET http://{at}\\@other.test/team/x HTTP/1.1\r\nHost: {at}\r\n\r\n",                                                "a host that programs read differently"),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",                                                                                  "HTTP/2 by prior knowledge"),
    ("GET /team/x HTTP/1.1\r\nHost: {at}\r\n\r\n",                                                                        "as if we were the server"),
    ("GET https://{at}/team/x HTTP/1.1\r\nHost: {at}\r\n\r\n",                                                            "TLS by us, in absolute form"),
    ("GET http://other.test:{port}/team/x HTTP/1.1\r\nHost: other.test:{port}\r\n\r\n",                                   "a host that is not allowed"),
]
# fmt: on


@pytest.mark.threat("T85")
@pytest.mark.parametrize(("data", "why"), KEPT)
def test_what_is_not_certain_is_not_sent(pem: Path, data: str, why: str) -> None:
    async def scene() -> tuple[bytes, Server, Proxy]:
        async with serving(OK, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            async with brokered(forge(f'["{at}"]'), f"{at} private", believing=pem) as proxy:
                answer = await proxy.say(data.format(at=at, port=server.port).encode())
        return answer, server, proxy

    answer, server, _ = asyncio.run(scene())
    assert not any(server.heard), why
    assert not answer.startswith(b"HTTP/1.1 200"), why
    assert SECRET.encode() not in answer


@pytest.mark.threat("T85")
def test_what_follows_a_request_is_not_read(pem: Path) -> None:
    async def scene() -> Server:
        async with serving(OK, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            async with brokered(forge(f'["GET {at}/team/"]'), f"{at} private", believing=pem) as proxy:
                await proxy.say(ask("/team/x", port=server.port) + ask("/other", method="DELETE", port=server.port))
        return server

    (heard,) = asyncio.run(scene()).heard
    assert heard.count(b"HTTP/1.1") == 1


# fmt: off
SPOKEN = [
    ('basic = "me"',                            b"Authorization: Basic bWU6Y2FuYXJ5LTdjMWY5ZS10b2tlbg==", "Basic"),
    ('header = "Private-Token: {secret}"',      b"Private-Token: canary-7c1f9e-token",                    "a header of a forge"),
    ('header = "Authorization: token {secret}"', b"Authorization: token canary-7c1f9e-token",             "another scheme"),
]
# fmt: on


@pytest.mark.parametrize(("line", "sent", "why"), SPOKEN)
def test_how_it_is_spelled(pem: Path, line: str, sent: bytes, why: str) -> None:
    async def scene() -> Server:
        async with serving(OK, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            async with brokered(forge(f'["{at}"]', line), f"{at} private", believing=pem) as proxy:
                # Programs behind CGI cannot tell `_` from `-`.
                await proxy.say(ask("/", "Private_Token: mine", "Accept-Encoding: gzip, br", port=server.port))
        return server

    (heard,) = asyncio.run(scene()).heard
    assert b"\r\n" + sent + b"\r\n" in heard, why
    assert heard.lower().count(sent.partition(b":")[0].lower() + b":") == 1
    assert b"Accept-Encoding: identity" in heard
    assert b"gzip" not in heard
    assert (b"Private_Token" in heard) == (b"Private-Token" not in heard)


ECHOES = [
    (f"Bearer {SECRET}", "as it was sent"),
    ("Y2FuYXJ5LTdjMWY5ZS10b2tlbg==", "in base64"),
]
ODD = "a+b/c&d=<e>~f"
# fmt: off
SPELLED = [
    (ODD,                                                         "as it is"),
    ("a%2Bb%2Fc%26d%3D%3Ce%3E~f",                                 "in an address"),
    ("a%2bb%2fc%26d%3d%3ce%3e~f",                                 "in small letters"),
    ("a+b\\/c&d=<e>~f",                                           "as JSON by PHP"),
    ("a\\u002Bb/c\\u0026d=\\u003Ce\\u003E~f",                     "as JSON by .NET"),
    ("a+b/c\\u0026d=\\u003ce\\u003e~f",                           "as JSON by Go"),
    ("a+b/c&amp;d=&lt;e&gt;~f",                                   "on a page"),
    ("a&#x2B;b/c&amp;d=&lt;e&gt;~f",                              "on a page by .NET"),
    ("bWU6YStiL2MmZD08ZT5-Zg",                                    "the login, in the alphabet of addresses"),
    ("bWU6YStiL2MmZD08ZT5\\u002BZg",                              "the login as JSON by .NET"),
    ("bWU6YStiL2MmZD08ZT5%2BZg%3D%3D",                            "the login in an address"),
]
# fmt: on


# fmt: off
READING = [
    ("GET",     "/repos/o/r",         True,  "a request that reads"),
    ("HEAD",    "/repos/o/r",         True,  "its header alone"),
    ("POST",    "/graphql",           True,  "a query of GraphQL"),
    ("POST",    "/api/graphql",       True,  "a query of GraphQL, on a server of one's own"),
    ("POST",    "/repos/o/r/issues",  False, "hostile: creates"),
    ("DELETE",  "/repos/o/r",         False, "hostile: deletes"),
    ("PATCH",   "/graphql",           False, "hostile: another method"),
    ("POST",    "/x/../graphql",      False, "hostile: another path"),
    ("POST",    "/graphql/x",         False, "hostile: a longer path"),
]
# fmt: on


@pytest.mark.threat("T174")
@pytest.mark.parametrize(("method", "path", "added", "why"), READING, ids=[row[-1] for row in READING])
def test_a_credential_for_reading_is_added_to_requests_that_read(method: str, path: str, added: bool, why: str) -> None:
    for hosts in (f'["{HOST}"]', f'["GET,HEAD,POST,DELETE,PATCH {HOST}"]'):
        lender = CredentialInjector(forge(hosts), {"FORGE_TOKEN": SECRET}, "/nowhere")
        found = asyncio.run(lender.lend((f"forge{FOR_READING}",)).asks(HOST, 443, method, path))
        assert (found is not None) is added
    narrow = CredentialInjector(forge(f'["GET {HOST}"]'), {"FORGE_TOKEN": SECRET}, "/nowhere")
    found = asyncio.run(narrow.lend((f"forge{FOR_READING}",)).asks(HOST, 443, method, path))
    assert (found is not None) is (method == "GET"), "the rows of the credential still decide"


@pytest.mark.threat("T84")
@pytest.mark.parametrize(("text", "why"), SPELLED, ids=[why for _, why in SPELLED])
def test_what_it_looks_like_in_a_page_is_masked(text: str, why: str) -> None:
    """A page that shows what it was asked is the commonest of all, and it spells as its language does."""
    (login,) = forge(f'["{HOST}"]', 'basic = "me"')
    lender = CredentialInjector((login,), {"FORGE_TOKEN": ODD}, "/nowhere")
    added = asyncio.run(lender.lend(("forge",)).asks(HOST, 443, "GET", "/"))
    assert added is not None
    assert added.hide(f"<{text}>".encode()).strip(b"<>*") in (b"", b"%3D%3D"), why


@pytest.mark.threat("T84")
@pytest.mark.parametrize("size", [1, 5, 4096])
@pytest.mark.parametrize(
    "told",
    [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked",
        "HTTP/1.0 200 OK\r\nTRANSFER-ENCODING:\tChunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity",
    ],
    ids=["plain", "a space before the colon", "a folded line", "an older version", "and a coding that is none"],
)
def test_chunks_hide_nothing(pem: Path, size: int, told: str) -> None:
    """However a server cuts its answer, it is looked through as a whole, and comes in chunks that can be read."""
    body = f"you sent {SECRET}, {SECRET} and {SECRET[:-1]}".encode()
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    coded = b"".join(b"%x;a=b\r\n%b\r\n" % (len(each), each) for each in pieces)
    whole = told.encode() + b"\r\n\r\n" + coded + f"0\r\nX: {SECRET}\r\n\r\n".encode()

    async def scene() -> bytes:
        async with serving(whole, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            async with brokered(forge(f'["{at}"]'), f"{at} private", believing=pem) as proxy:
                return await proxy.say(ask("/", port=server.port))

    head, _, rest = asyncio.run(scene()).partition(b"\r\n\r\n")
    assert b"chunked" in head.lower()
    found = b""
    while rest:
        number, _, rest = rest.partition(b"\r\n")
        found += rest[: int(number, 16)]
        rest = rest[int(number, 16) :].removeprefix(b"\r\n")
    stars = b"*" * len(SECRET)
    assert found == b"you sent %b, %b and %b" % (stars, stars, SECRET[:-1].encode())


@pytest.mark.threat("T84")
@pytest.mark.parametrize(("text", "why"), ECHOES)
@pytest.mark.parametrize("pieces", [1, 7])
def test_what_a_server_sends_back_is_masked(pem: Path, text: str, why: str, pieces: int) -> None:
    """In the head, and in the body also in pieces; the length stays."""
    body = f"you sent {text} and {text}; not {SECRET[:-1]}".encode()
    head = f"HTTP/1.1 200 OK\r\nX-Echo: {text}\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def scene() -> bytes:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            for at in range(0, len(body), len(body) // pieces):
                writer.write(body[at : at + len(body) // pieces])
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.close()

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        made = await asyncio.start_server(serve, "127.0.0.2", 0, ssl=context)
        port = made.sockets[0].getsockname()[1]
        at = f"{HOST}:{port}"
        async with made, brokered(forge(f'["{at}"]'), f"{at} private", believing=pem) as proxy:
            return await proxy.say(ask("/", port=port))

    answer = asyncio.run(scene())
    value = text.removeprefix("Bearer ").rstrip("=").encode()
    assert value not in answer, why
    assert answer.count(b"*" * len(value)) == 3
    _, _, rest = answer.partition(b"\r\n\r\n")
    assert len(rest) == len(body)
    assert rest.endswith(SECRET[:-1].encode()), "what is only like it stays"


@pytest.mark.threat("T84")
@given(
    st.lists(st.text("ab", min_size=2, max_size=5), min_size=1, max_size=3, unique=True),
    st.lists(st.text("abc", max_size=6), max_size=8),
)
def test_law_however_it_is_cut_nothing_comes_through(masks: list[str], pieces: list[str]) -> None:
    mask = InjectedHeader("forge", "A", "v", tuple(each.encode() for each in masks)).mask()
    told = b"".join([*(mask.feed(piece.encode()) for piece in pieces), mask.end()]).decode()
    assert len(told) == len("".join(pieces))
    assert not [each for each in masks if each in told]
    assert all(one in (other, "*") for one, other in zip(told, "".join(pieces), strict=True))


# fmt: off
UNTRUSTED = [
    (False, HOST,         "is not valid (",            "the system's store does not vouch for it"),
    (True,  "other.test", "is not valid (",            "its certificate is another host's"),
]
# fmt: on


@pytest.mark.threat("T85")
@pytest.mark.parametrize(("believed", "host", "said", "why"), UNTRUSTED)
def test_a_server_that_is_not_believed_gets_nothing(pem: Path, believed: bool, host: str, said: str, why: str) -> None:
    async def scene() -> tuple[bytes, Server]:
        async with serving(OK, tls=pem) as server:
            at = f"{host}:{server.port}"
            async with brokered(forge(f'["{at}"]'), f"{at} private", believing=pem if believed else None) as proxy:
                return await proxy.say(ask("/", port=server.port, host=host)), server

    answer, server = asyncio.run(scene())
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert said.encode() in answer, why
    assert not any(server.heard), why


@pytest.mark.threat("T85")
def test_a_plain_server_gets_it_only_where_that_is_meant() -> None:
    async def scene(*more: str) -> tuple[bytes, Server]:
        async with serving(OK, until=b"") as server:
            at = f"{HOST}:{server.port}"
            async with brokered(forge(f'["{at}"]', *more), f"{at} private", believing=None) as proxy:
                return await proxy.say(ask("/", port=server.port)), server

    answer, server = asyncio.run(scene())
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert not any(SECRET.encode() in heard for heard in server.heard)
    answer, server = asyncio.run(scene("plain = true"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert SECRET.encode() in server.heard[0]


@pytest.mark.threat("T85")
def test_a_redirect_to_another_host_takes_nothing_along(pem: Path) -> None:
    """One to the same host is told in the way in which the program reaches it."""
    away = b"HTTP/1.1 302 Found\r\nLocation: https://other.test/x\r\nContent-Length: 0\r\n\r\n"

    async def scene() -> tuple[bytes, bytes, Server]:
        async with serving(away, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            hosts = (f"{at} private", f"other.test:{server.port} private")
            async with brokered(forge(f'["{at}"]'), *hosts, believing=pem) as proxy:
                first = await proxy.say(ask("/", port=server.port))
            server.answer = away.replace(b"other.test", at.encode())
            async with brokered(forge(f'["{at}"]'), *hosts, believing=pem) as proxy:
                second = await proxy.say(ask("/", port=server.port))
        return first, second, server

    first, second, server = asyncio.run(scene())
    assert b"Location: https://other.test/x\r\n" in first
    assert f"Location: http://{HOST}:{server.port}/x\r\n".encode() in second


@pytest.mark.threat("T84")
@pytest.mark.parametrize("environ", [{}, {"FORGE_TOKEN": "two\nlines"}, {"FORGE_TOKEN": " "}])
def test_without_the_secret_nothing_is_sent(pem: Path, environ: dict[str, str]) -> None:
    async def scene() -> tuple[bytes, Server]:
        async with serving(OK, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            async with brokered(forge(f'["{at}"]'), f"{at} private", believing=pem, environ=environ) as proxy:
                return await proxy.say(ask("/", port=server.port)), server

    answer, server = asyncio.run(scene())
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"the credential `forge` is not available from the variable `FORGE_TOKEN`" in answer
    assert b"two" not in answer
    assert not any(server.heard)


@pytest.mark.threat("T84")
@pytest.mark.parametrize(("again", "asked"), [(1e9, 1), (-1.0, 3)], ids=["soon", "later"])
def test_a_helper_that_fails_is_not_asked_for_each_request(
    pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: float, asked: int
) -> None:
    """A command asks as often as it likes, and a helper may open a window each time."""
    monkeypatch.setattr(lender, "AGAIN", again)
    program = tmp_path / "helper"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/log\nexit 1\n")
    program.chmod(0o755)

    async def scene() -> list[bytes]:
        async with serving(OK, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            given = rows(
                f'[[credential]]\nname = "forge"\nhosts = ["{at}"]\nheader = "Authorization: Bearer {{secret}}"\n'
                f'helper = ["{program}"]'
            )
            async with brokered(given, f"{at} private", believing=pem) as proxy:
                return [await proxy.say(ask("/", port=server.port)) for _ in range(3)]

    answers = asyncio.run(scene())
    assert all(answer.startswith(b"HTTP/1.1 502") and b"exit code 1" in answer for answer in answers)
    assert (tmp_path / "log").read_text().split() == ["asked"] * asked


@pytest.mark.threat("T85")
def test_a_plain_request_to_the_port_of_tls_goes_nowhere_without_it() -> None:
    """The address that programs are told must never turn into one in the clear."""

    async def scene() -> Proxy:
        async with brokered((), f"{HOST}:443 private", believing=None) as proxy:
            await proxy.say(ask("/", port=443))
        return proxy

    (made,) = asyncio.run(scene()).connections
    assert "is for TLS" in made.why or "cannot be reached" in made.why
    assert not made.sent


@pytest.mark.threat("T84")
@pytest.mark.parametrize(
    "told",
    [
        *("Transfer-Encoding: chunked;q=1", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding: chunked, chunked"),
        *(
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
            "Transfer-Encoding: x",
        ),
    ],
)
def test_an_answer_in_a_coding_that_was_not_asked_for_is_refused(pem: Path, told: str) -> None:
    """Some programs take each of these for chunks, and would put together what was cut."""
    body = b"".join(b"1\r\n%c\r\n" % each for each in SECRET.encode()) + b"0\r\n\r\n"

    async def scene() -> bytes:
        async with serving(f"HTTP/1.1 200 OK\r\n{told}\r\n\r\n".encode() + body, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            async with brokered(forge(f'["{at}"]'), f"{at} private", believing=pem) as proxy:
                return await proxy.say(ask("/", port=server.port))

    answer = asyncio.run(scene())
    assert answer.startswith(b"HTTP/1.1 502 the server's answer has a transfer coding that was not requested")
    assert b"1\r\nc\r\n" not in answer


# ---- TLS that is opened


async def opened(
    pem: Path,
    data: str,
    terms: str = "{at} private",
    *,
    hosts: str = "{at}",
    asked: str = HOST,
    alpn: tuple[str, ...] = (),
) -> tuple[bytes, Server, Proxy, str]:
    """Send `data` through the tunnel as a program that trusts the certificate of the session.

    Return the answer, the server, the proxy, and the issuer of the certificate that the program saw.
    """
    authority = Authority([HOST])
    async with serving(OK, tls=pem) as server:
        at = f"{HOST}:{server.port}"
        given = forge(f'["{hosts.format(at=at)}"]', "intercept = true")
        async with brokered(given, terms.format(at=at), believing=pem, authority=authority) as proxy:
            reader, writer, status = await proxy.tunnel(at)
            if " 200 " not in status:
                writer.close()
                return status.encode(), server, proxy, ""
            context = ssl.create_default_context(
                cadata=authority.pem().decode() + pem.read_text().partition("-----END PRIVATE KEY-----\n")[2]
            )
            if alpn:
                context.set_alpn_protocols(list(alpn))
            try:
                await writer.start_tls(context, server_hostname=asked)
                issuer = dict(pair[0] for pair in writer.get_extra_info("peercert")["issuer"])["commonName"]
                writer.write(data.format(at=at).encode())
                answer = await reader.read()
            except (ssl.SSLError, ConnectionError) as error:
                return str(error).encode(), server, proxy, ""
            finally:
                writer.close()
    return answer, server, proxy, issuer


IN_TLS = "GET /team/x HTTP/1.1\r\nHost: {at}\r\n\r\n"
# fmt: off
OPENED = [
    ("{at} private",            "{at}",           IN_TLS,                                          True,  True,  "a request"),
    ("{at} private",            "GET {at}/team/", IN_TLS,                                          True,  True,  "below its prefix"),
    ("{at} private",            "GET {at}/team/", IN_TLS.replace("/team/", "/other/"),             True,  False, "not below"),
    ("{at} private",            "GET {at}/team/", IN_TLS.replace("/x", "/../other"),               True,  False, "stepping out"),
    ("GET {at}/team/ private",  "{at}",           IN_TLS,                                          True,  True,  "what is opened can be bound to methods and paths"),
    ("GET {at}/team/ private",  "{at}",           IN_TLS.replace("GET", "DELETE"),                 False, False, "by another method"),
    ("GET {at}/team/ private",  "{at}",           IN_TLS.replace("/team/", "/other/"),             False, False, "another path"),
    ("{at} private",            "{at}",           IN_TLS.replace("{at}", "other.test"),            False, False, "another host in the header"),
    ("{at} private",            "{at}",           IN_TLS.replace("/team/x", "https://other.test/"), False, False, "another host in the line"),
    ("{at} private",            "{at}",           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",              False, False, "HTTP/2 by prior knowledge"),
    ("{at} private",            "{at}",           IN_TLS.replace("GET", "TRACE"),                  True,  False, "TRACE"),
    ("{at} private",            "{at}",           IN_TLS.replace("GET /team/x", "CONNECT {at}"),   False, False, "a tunnel in the tunnel"),
]
# fmt: on


@pytest.mark.threat("T86")
@pytest.mark.parametrize(("terms", "hosts", "data", "passed", "added", "why"), OPENED, ids=[row[5] for row in OPENED])
def test_requests_in_opened_tls(
    pem: Path, terms: str, hosts: str, data: str, passed: bool, added: bool, why: str
) -> None:
    answer, server, proxy, issuer = asyncio.run(opened(pem, data, terms, hosts=hosts))
    assert issuer.startswith("ringfence session"), why
    assert answer.startswith(b"HTTP/1.1 200") is passed, (why, answer)
    heard = b"".join(server.heard)
    assert (b"Bearer " + SECRET.encode() in heard) is added, why
    assert bool(heard) is passed, why
    assert server.names in ([HOST], [])
    (made,) = proxy.connections
    assert made.allowed is passed
    assert made.credential == ("forge" if added else "")


def test_only_http_1_is_offered_in_opened_tls(pem: Path) -> None:
    answer, *_ = asyncio.run(opened(pem, IN_TLS, alpn=("h2", "http/1.1")))
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.threat("T86")
def test_a_tunnel_to_another_name_is_not_opened(pem: Path) -> None:
    """The name in TLS must be the tunnel's, opened or not."""
    _, server, proxy, _ = asyncio.run(opened(pem, IN_TLS, asked="sub.forge.test"))
    assert not any(server.heard)
    assert "the TLS ClientHello names sub.forge.test" in proxy.connections[0].why


@pytest.mark.threat("T86")
def test_what_no_credential_opens_stays_the_programs_own(pem: Path) -> None:
    answer, server, proxy, issuer = asyncio.run(opened(pem, IN_TLS, hosts="sub.{at}"))
    assert issuer == HOST, "the server's own certificate"
    assert answer.startswith(b"HTTP/1.1 200")
    assert SECRET.encode() not in b"".join(server.heard)
    assert proxy.connections[0].asked == "tunnel"


@pytest.mark.threat("T86")
@pytest.mark.parametrize(
    ("terms", "passed", "why"),
    [
        ("GET {at}/team/ private", False, "a rule about some requests opens no way for anything else"),
        ("{at} private", True, "one about the whole host does"),
    ],
)
def test_what_is_no_request_passes_only_where_anything_may(terms: str, passed: bool, why: str, pem: Path) -> None:
    async def scene() -> Server:
        async with serving(b"ok", until=b"") as server:
            at = f"{HOST}:{server.port}"
            given = forge(f'["{at}"]', "intercept = true")
            async with brokered(given, terms.format(at=at), believing=pem, authority=Authority([HOST])) as proxy:
                reader, writer, status = await proxy.tunnel(at)
                assert " 200 " in status
                writer.write(b"\x00 something else\r\n")
                await reader.read(4)
                writer.close()
        return server

    server = asyncio.run(scene())
    assert any(server.heard) is passed, why


def test_a_program_that_does_not_believe_the_certificate_gets_no_further(pem: Path) -> None:
    async def scene() -> tuple[Server, Proxy]:
        async with serving(OK, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            given = forge(f'["{at}"]', "intercept = true")
            async with brokered(given, f"{at} private", believing=pem, authority=Authority([HOST])) as proxy:
                _, writer, _ = await proxy.tunnel(at)
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    await writer.start_tls(ssl.create_default_context(cafile=str(pem)), server_hostname=HOST)
                writer.close()
                await until_async(lambda: proxy.egress._ledger.attempts[0].seconds >= 0)  # it has ended
        return server, proxy

    server, proxy = asyncio.run(scene())
    assert not any(server.heard)
    assert "rejected the session's certificate" in proxy.connections[0].why


@pytest.mark.threat("T86")
def test_an_authority_vouches_for_its_hosts_alone(pem: Path) -> None:
    """Even an owner of its key could imitate no other host: programs hold it to its constraints."""

    async def seen(host: str, hosts: tuple[str, ...] = ("*.forge.test", "192.0.2.7")) -> str:
        authority = Authority(hosts)
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.2", 0, ssl=authority.serving(host)
        )
        trusting = ssl.create_default_context(cadata=authority.pem().decode())
        try:
            port = server.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection("127.0.0.2", port, ssl=trusting, server_hostname=host)
            writer.close()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        finally:
            server.close()
        return ""

    assert asyncio.run(seen("a.forge.test")) == ""
    assert asyncio.run(seen("192.0.2.7")) == ""
    assert asyncio.run(seen("other.test")) == "permitted subtree violation"
    assert asyncio.run(seen("192.0.2.8")) == "permitted subtree violation"
    assert asyncio.run(seen("192.0.2.7", ("192.0.2.7",))) == ""
    assert asyncio.run(seen("other.test", ("192.0.2.7",))) == "excluded subtree violation", "addresses alone"
    assert asyncio.run(seen("192.0.2.7", ("*.forge.test",))) == "excluded subtree violation", "names alone"


@pytest.mark.threat("T86")
def test_a_session_keeps_a_bounded_number_of_certificates() -> None:
    """A command chooses the names below `*.forge.test`: as many as it likes."""
    authority = Authority(["*.forge.test"])
    first = authority.serving("0.forge.test")
    made = [authority.serving(f"{number}.forge.test") for number in range(1, CERTIFICATES)]
    assert authority.serving("0.forge.test") is first
    authority.serving("more.forge.test")
    assert authority.serving("0.forge.test") is first, "it was used last"
    assert authority.serving("1.forge.test") is not made[0], "it was not used for longest"


def test_a_web_socket_in_opened_tls_gets_nothing_and_goes_through(pem: Path) -> None:
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

    async def scene() -> tuple[bytes, Server]:
        authority = Authority([HOST])
        async with serving(upgrade, tls=pem) as server:
            at = f"{HOST}:{server.port}"
            given = forge(f'["{at}"]', "intercept = true")
            async with brokered(given, f"{at} private", believing=pem, authority=authority) as proxy:
                reader, writer, _ = await proxy.tunnel(at)
                await writer.start_tls(
                    ssl.create_default_context(cadata=authority.pem().decode()), server_hostname=HOST
                )
                writer.write(
                    f"GET / HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode()
                )
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"ping\r\n\r\n")
                back = await reader.readuntil(b"\r\n\r\n")
                writer.close()
        return back, server

    back, server = asyncio.run(scene())
    assert back.startswith(b"HTTP/1.1 101")
    assert server.heard[0].endswith(b"ping\r\n\r\n")
    assert SECRET.encode() not in server.heard[0]


# ---- answers that are cut

LENGTH, CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", b"4\r\nbody\r\n0\r\n\r\n"
# fmt: off
CUTS: list[tuple[bytes, str, str, str]] = [
    (b"HTTP/1.1 200 OK\r\n\r\nbody",                        "GET",  "cut",   "nothing but the end of the connection tells where it ends"),
    (b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nbody",                "GET",  "cut",   "as HTTP/1.0 does"),
    (b"HTTP/1.1 200 OK\r\n\r\n",                            "GET",  "cut",   "also where nothing came"),
    (b"HTTP/1.1 404 No\r\n\r\nbody",                        "GET",  "cut",   "also of an error"),
    (LENGTH,                                                "GET",  "whole", "its length tells"),
    (LENGTH[:-1],                                           "GET",  "short", "and anyone who reads it sees that it is not whole"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,      "GET", "whole", "the last chunk tells"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED[:-5], "GET", "short", "and one that is missing"),
    (b"HTTP/1.1 200 OK\r\n\r\n",                            "HEAD", "whole", "there is no body"),
    (b"HTTP/1.1 204 No Content\r\n\r\n",                    "GET",  "whole", "nor here"),
    (b"HTTP/1.1 304 Not Modified\r\n\r\n",                  "GET",  "whole", "nor here"),
]
# fmt: on


def ends(sock: socket.socket, arrived: threading.Event) -> str:
    """Read to the end. Return `reset` for a connection that was reset, otherwise all that came. Set `arrived` when the
    body has come.
    """
    found = b""
    try:
        while data := sock.recv(65536):
            found += data
            if b"body" in found:
                arrived.set()
    except (ConnectionResetError, ssl.SSLError):
        return "reset"
    return found.decode()


@contextlib.contextmanager
def breaking(pem: Path | None, answer: bytes, arrived: threading.Event) -> Iterator[int]:
    """A server that answers one request and ends its connection without the goodbye of TLS; in the open by a reset, when
    the answer has `arrived` at the command."""
    listener = socket.create_server(("127.0.0.2", 0))

    def serve() -> None:
        made, _ = listener.accept()
        with made as sock:
            if pem is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pem)
                sock = context.wrap_socket(sock, server_side=True)
            while b"\r\n\r\n" not in sock.recv(65536):
                pass
            sock.sendall(answer)
            if pem is None:
                arrived.wait()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                sock.shutdown(socket.SHUT_WR)
                sock.recv(1)
            sock.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


async def said_by(
    proxy: Proxy, request: bytes, arrived: threading.Event, inner: ssl.SSLContext | None = None, tunnel: str = ""
) -> str:
    """Return how an answer ends for a command, in the open or in TLS that the proxy opens."""

    def command() -> str:
        with socket.create_connection(("127.0.0.1", proxy.port)) as sock:
            if inner is None:
                sock.sendall(request)
                return ends(sock, arrived)
            sock.sendall(f"CONNECT {tunnel} HTTP/1.1\r\nHost: {tunnel}\r\n\r\n".encode())
            while not sock.recv(65536).endswith(b"\r\n\r\n"):
                pass
            with inner.wrap_socket(sock, server_hostname=HOST) as secured:
                secured.sendall(request)
                return ends(secured, arrived)

    return await asyncio.to_thread(command)


@pytest.mark.threat("T123")
@pytest.mark.parametrize("opened", [False, True], ids=["in the open", "in TLS"])
@pytest.mark.parametrize("lent", [True, False], ids=["lent", "alone"])
@pytest.mark.parametrize(("answer", "method", "how", "why"), CUTS, ids=[row[3] for row in CUTS])
def test_an_answer_that_is_cut_is_no_whole_one(
    pem: Path, answer: bytes, method: str, how: str, why: str, lent: bool, opened: bool
) -> None:
    """An attacker on the network path can end a connection, but cannot send a close_notify inside of TLS."""

    async def scene(port: int) -> tuple[str, Proxy]:
        at = f"{HOST}:{port}"
        given = forge(f'["{at}/{"" if lent else "other/"}"]', *(["intercept = true"] if opened else []))
        authority = Authority([HOST]) if opened else None
        async with brokered(given, f"{at} private", believing=pem, authority=authority) as proxy:
            if authority is None:
                return await said_by(proxy, ask("/", method=method, port=port), arrived), proxy
            inner = ssl.create_default_context(cadata=authority.pem().decode())
            request = f"{method} / HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()
            return await said_by(proxy, request, arrived, inner, at), proxy

    arrived = threading.Event()
    with breaking(pem, answer, arrived) as port:
        seen, proxy = asyncio.run(scene(port))
    assert (seen == "reset") is (how == "cut"), (seen, why)
    body = seen.partition("\r\n\r\n")[2]
    assert how != "whole" or method == "HEAD" or body in ("", "body", CHUNKED.decode())
    assert ["is incomplete" in each.why for each in proxy.connections] == [how == "cut"]


@pytest.mark.threat("T123")
@pytest.mark.parametrize("tunnel", [False, True])
def test_a_reset_is_passed_on_as_one(tunnel: bool) -> None:
    """In the open nobody says goodbye, but a server that breaks off does not end."""

    async def scene(port: int) -> str:
        async with proxying(f"{HOST}:{port} private", names=Names(forge__test=[("127.0.0.2",)])) as proxy:
            if not tunnel:
                return await said_by(proxy, ask("/", port=port), arrived)
            return await said_by(
                proxy,
                f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\nwords\r\n\r\n".encode(),
                arrived,
            )

    arrived = threading.Event()
    with breaking(None, CUTS[0][0], arrived) as port:
        assert asyncio.run(scene(port)) == "reset"
