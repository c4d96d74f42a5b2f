"""Tests of the egress proxy against real clients and servers on loopback: accepted and refused requests, and
messages.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from pathlib import Path

import pytest

from sandbox.egress import connection as served_module
from sandbox.egress import ledger
from sandbox.egress import proxy as proxy_module
from sandbox.egress.dialer import resolve
from tests.support.client_hellos import client_hello, made, sni, split
from tests.support.egress_network import Names, Proxy, Server, certificate, proxying, serving
from tests.support.own_network import own_address
from tests.support.waiting import until_async

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def get(server: Server, path: str = "/", *fields: str, host: str = "", method: str = "GET") -> bytes:
    name = f"{host}:{server.port}" if host else server.at
    lines = [f"{method} http://{name}{path} HTTP/1.1", f"Host: {name}", *fields, "", ""]
    return "\r\n".join(lines).encode()


# ---- plain HTTP


async def one_request(rule: str, data: str, names: Names | None = None) -> tuple[bytes, Server, Proxy]:
    """`AT` and `PORT` in both stand for the server's."""
    async with serving(OK) as server:
        fill = lambda text: text.replace("AT", server.at).replace("PORT", str(server.port))  # noqa: E731  # used twice
        async with proxying(*filter(None, fill(rule).split(";")), names=names) as proxy:
            answer = await proxy.say(fill(data).encode())
    return answer, server, proxy


PLAIN = "GET http://AT/api/x HTTP/1.1\r\nHost: AT\r\n\r\n"
# fmt: off
REQUESTS = [
    ("AT private",              PLAIN,                                                         "",                    "the host"),
    ("AT/api private",          PLAIN,                                                         "",                    "below the prefix"),
    ("GET AT private",          PLAIN,                                                         "",                    "by the method"),
    ("AT",                      PLAIN,                                                         "this machine",        "no private rule"),
    ("",                        PLAIN,                                                         "not on the allowlist", "no rule"),
    ("127.0.0.2:1 private",     PLAIN,                                                         "port",                "another port"),
    ("127.0.0.3:* private",     PLAIN,                                                         "not on the allowlist", "another host"),
    ("POST AT private",         PLAIN,                                                         "GET /api/x",          "another method"),
    ("AT/other private",        PLAIN,                                                         "GET /api/x",          "another prefix"),
    ("AT/api private",          PLAIN.replace("/api/x", "/api/../x"),                          "GET /api/../x",       "steps back"),
    ("AT/api private",          PLAIN.replace("/api/x", "/api/%2e%2e/x"),                      "%2e%2e",              "coded"),
    ("AT/api private",          PLAIN.replace("/api/x", "/api/..;/x"),                         "..;",                 "parameters"),
    ("AT private",              PLAIN.replace("/api/x", "/api/../x"),                          "",                    "without a prefix it is the server's business"),
    ("AT/api private",          PLAIN.replace("\r\n\r\n", "\r\nX-Original-URL: /x\r\n\r\n"),   "method, host or path", "another path in a header"),
    ("GET AT private",          PLAIN.replace("\r\n\r\n", "\r\nX_HTTP_Method_Override: PUT\r\n\r\n"), "method, host or path", "another method in a header"),
    ("AT private",              PLAIN.replace("\r\n\r\n", "\r\nX-HTTP-Method-Override: PUT\r\n\r\n"), "",             "any method is allowed"),
    ("GET AT private",          "CONNECT AT HTTP/1.1\r\nHost: AT\r\n\r\n",                     "some plain HTTP",     "a bound rule opens no tunnel"),
    ("AT private",              "GET / HTTP/1.1\r\nHost: AT\r\n\r\n",                          "the proxy accepts",   "as if it were the server"),
    ("AT private",              PLAIN.replace("Host: AT", "Host: evil.org"),                   "another host",        "two hosts"),
    ("AT private",              "POST http://AT/ HTTP/1.1\r\nHost: AT\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "length",   "smuggling"),
    ("good.test:PORT private",  PLAIN.replace("AT", "good.test:PORT"),                         "",                    "a name"),
    ("*.test:PORT private",     PLAIN.replace("AT", "good.test:PORT"),                         "",                    "a name below"),
    ("good.test:PORT private",  PLAIN.replace("AT", "gone.test:PORT"),                         "not on the allowlist", "another name"),
    ("*.test:PORT private",     PLAIN.replace("AT", "gone.test:PORT"),                         "no address",          "a name that nobody knows"),
    ("good.test:PORT",          PLAIN.replace("AT", "good.test:PORT"),                         "127.0.0.2: this machine", "a name that leads to this machine"),
    ("*.test private",          PLAIN.replace("AT", "meta.test"),                              "metadata",            "metadata is never private enough"),
    ("good.test:PORT private",  PLAIN.replace("AT", "GOOD.TEST.:PORT"),                        "",                    "another spelling"),
    ("*.test:PORT private",     PLAIN.replace("AT", "mapped.test:PORT"),                       "inside IPv6",         "mapped"),
    ("*.test:PORT private",     PLAIN.replace("AT", "mixed.test:PORT"),                        "",                    "only the good one of two is used"),
]
# fmt: on
ANSWERS = {
    "good__test": [("127.0.0.2",)],
    "meta__test": [("169.254.169.254",)],
    "mapped__test": [("::ffff:127.0.0.2",)],
    "mixed__test": [("169.254.169.254", "127.0.0.2")],
}


@pytest.mark.threat("T52")
@pytest.mark.threat("T53")
@pytest.mark.threat("T56")
@pytest.mark.parametrize(("rule", "data", "part", "why"), REQUESTS)
def test_a_plain_request(rule: str, data: str, part: str, why: str) -> None:
    answer, server, proxy = asyncio.run(one_request(rule, data, Names(**ANSWERS)))
    (connection,) = proxy.connections
    if not part:
        assert answer.endswith(b"\r\n\r\nok"), (answer, why)
        assert b"Connection: close" in answer
        assert connection.allowed
        assert connection.address == "127.0.0.2"
        assert connection.sent == len(server.heard[0])
        assert connection.received == len(answer)
        assert not proxy.violations
        return
    assert part in connection.why, why
    assert server.heard in ([], [b""]), why
    assert connection.why.encode() in answer, "the client is told the same, in the status line and as the page"
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ", b"HTTP/1.1 502 "))
    assert connection.allowed == answer.startswith(b"HTTP/1.1 502 "), "what failed was not forbidden"
    assert [each.what for each in proxy.violations] == ([] if connection.allowed else [connection.why])


# fmt: off
RIGHTS = [
    ("",                         "CONNECT example.org:443 HTTP/1.1",       "example.org",              "a tunnel"),
    ("",                         "CONNECT example.org:8443 HTTP/1.1",      "example.org:8443",         "another port"),
    ("example.org",              "CONNECT example.org:8443 HTTP/1.1",      "example.org:8443",         "a port more"),
    ("",                         "GET http://example.org/a/b?c HTTP/1.1",  "GET example.org/a/b",      "a request"),
    ("GET example.org/a",        "POST http://example.org/a HTTP/1.1",     "POST example.org/a",       "a method more"),
    ("example.org/a",            "GET http://example.org/a/../b HTTP/1.1", "GET example.org",          "no prefix covers that"),
    ("GET example.org",          "CONNECT example.org:443 HTTP/1.1",       "example.org",              "a tunnel more"),
    ("a.test",                   "CONNECT a.test:443 HTTP/1.1",            "a.test private",           "a private network"),
    ("a.test:81",                "CONNECT a.test:81 HTTP/1.1",             "a.test:81 private",        "a private network"),
    ("m.test",                   "CONNECT m.test:443 HTTP/1.1",            "",                         "nothing opens metadata"),
]
# fmt: on


@pytest.mark.threat("T52")
@pytest.mark.parametrize(("rule", "line", "right", "why"), RIGHTS)
def test_a_refusal_names_the_smallest_right_that_would_do(rule: str, line: str, right: str, why: str) -> None:
    async def scene() -> Proxy:
        async with proxying(
            *filter(None, [rule]), names=Names(a__test=[("10.0.0.1",)], m__test=[("169.254.169.254",)])
        ) as proxy:
            await proxy.say(
                f"{line}\r\nHost: {line.split()[1].removeprefix('http://').partition('/')[0]}\r\n\r\n".encode()
            )
        return proxy

    (violation,) = asyncio.run(scene()).violations
    assert (violation.inferred, violation.layer) == (False, "proxy")
    assert (f"`{right}`" in violation.fix) if right else ("`" not in violation.fix), why


@pytest.mark.threat("T56")
def test_a_second_request_on_a_connection_is_not_passed_on() -> None:
    async def scene() -> tuple[bytes, Server]:
        async with serving(OK) as server, proxying(f"{server.at}/ok private") as proxy:
            return await proxy.say(get(server, "/ok") + get(server, "/secret")), server

    answer, server = asyncio.run(scene())
    assert answer.endswith(b"\r\n\r\nok")
    assert len(server.heard) == 1
    assert b"secret" not in server.heard[0]


# fmt: off
BODIES = [
    ("Content-Length: 5",          b"hello",                                   b"hello",                     "",           "a length"),
    ("Content-Length: 5",          b"helloGET / HTTP/1.1\r\n\r\n",             b"hello",                     "",           "and something after it"),
    ("Transfer-Encoding: chunked", b"5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n",     b"5\r\nhello\r\n0\r\n\r\n",   "",           "chunks, written anew, without trailers"),
    ("Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1",   b"5\r\nhello\r\n0\r\n\r\n",   "",           "and something after them"),
    ("Transfer-Encoding: chunked", b"5\nhello\r\n0\r\n\r\n",                   None,                         "chunk",      "bare line feed"),
    ("Transfer-Encoding: chunked", b"5\r\nhello!\r\n0\r\n\r\n",                None,                         "chunk",      "longer than it says"),
    ("Transfer-Encoding: chunked", b"zz\r\n",                                  None,                         "chunk",      "no number"),
    ("Content-Length: 5",          b"hel",                                     None,                         "before the request", "shorter than it says"),
]
# fmt: on


@pytest.mark.threat("T56")
@pytest.mark.parametrize(("field", "body", "sent", "part", "why"), BODIES)
def test_a_body_is_passed_on_exactly(field: str, body: bytes, sent: bytes | None, part: str, why: str) -> None:
    async def scene() -> tuple[bytes, Server, Proxy]:
        async with serving(OK, until=sent or b"never") as server, proxying(f"{server.at} private") as proxy:
            answer = await proxy.say(get(server, "/", field, method="POST") + body, finish=sent is None)
            await proxy.done()
        return answer, server, proxy

    answer, server, proxy = asyncio.run(scene())
    if sent is not None:
        assert answer.endswith(b"ok"), why
        assert server.heard[0].partition(b"\r\n\r\n")[2] == sent, why
    else:
        assert part in proxy.connections[0].why, why


def test_provisional_answers_and_web_sockets() -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket")

    async def scene() -> list[bytes]:
        found = []
        later = b"HTTP/1.1 100 Continue\r\n\r\n" + OK
        async with serving(later) as server, proxying(f"{server.at} private") as proxy:
            found.append(await proxy.say(get(server, "/", "Expect: 100-continue")))
        changed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nhello"
        async with serving(changed) as server, proxying(f"{server.at} private") as proxy:
            found.append(await proxy.say(get(server, "/", *upgrade), more=[b"ping\r\n\r\n"], finish=True))
            found.append(await proxy.say(get(server, "/")))
            found.append(server.heard[0])
        async with serving(changed) as server, proxying(f"GET {server.at} private") as proxy:
            found.append(await proxy.say(get(server, "/", *upgrade)))
        return found

    continued, socket_, unasked, heard, bound = asyncio.run(scene())
    assert continued.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert socket_.count(b"hello") == 2, "what follows goes both ways"
    assert heard.endswith(b"\r\n\r\nping\r\n\r\n")
    assert b" 502 " in unasked, "a change of protocol that nobody asked for"
    assert b" 403 " in bound, "behind a web socket no method can be seen"


# ---- tunnels


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls") / "cert.pem", "good.test", "other.test", "127.0.0.2")


async def handshake(proxy: Proxy, where: str, name: str | None, pem: Path) -> str:
    """TLS by OpenSSL through the tunnel: `ok`, or what went wrong."""
    context = ssl.create_default_context(cafile=str(pem))
    context.check_hostname = name is not None

    def shake() -> str:
        with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
            raw.sendall(f"CONNECT {where} HTTP/1.0\r\n\r\n".encode())
            status = raw.recv(1000).decode().partition("\r\n")[0]
            if " 200 " not in status:
                return status
            with context.wrap_socket(raw, server_hostname=name) as wrapped:
                wrapped.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return "ok" if b"ok" in wrapped.recv(100) else "nothing"

    try:
        return await asyncio.to_thread(shake)
    except (OSError, ssl.SSLError) as error:
        return str(error)


# fmt: off
HANDSHAKES = [
    ("good.test",   "good.test",   "",                       "the same name"),
    ("GOOD.test.",  "good.test",   "",                       "one spelling"),
    ("good.test",   "other.test",  "other.test",             "another host behind the same address"),
    ("good.test",   None,          "names no host",          "no name"),
    ("127.0.0.2",   None,          "",                       "an address has no name in TLS"),
    ("127.0.0.2",   "good.test",   "good.test",              "a name behind an address"),
]
# fmt: on


@pytest.mark.threat("T55")
@pytest.mark.parametrize(("host", "name", "part", "why"), HANDSHAKES)
def test_tls_is_for_the_host_of_the_tunnel(host: str, name: str | None, part: str, why: str, pem: Path) -> None:
    async def scene() -> tuple[str, Server, Proxy]:
        names = Names(good__test=[("127.0.0.2",)])
        async with serving(OK, tls=pem) as server:
            rules = (f"good.test:{server.port} private", f"127.0.0.2:{server.port} private")
            async with proxying(*rules, names=names) as proxy:
                return await handshake(proxy, f"{host}:{server.port}", name, pem), server, proxy

    said, server, proxy = asyncio.run(scene())
    if not part:
        assert said == "ok", why
        assert proxy.connections[0].allowed
        assert not proxy.connections[0].why
    else:
        assert "denied" in said, (said, why)
        assert part in proxy.connections[0].why, why
        assert server.names == [], "nothing of it reached the server"
        assert not proxy.connections[0].allowed


# fmt: off
FIRST_WORDS = [
    # port, what the client says, in pieces,                              part,            why
    (443, [b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"],                 "port 443",      "plain HTTP on the port of TLS"),
    (443, [b"SSH-2.0-OpenSSH\r\n"],                                       "port 443",      "SSH on the port of TLS"),
    (443, [split(made(sni(b"evil.test")), every=3)],                      "evil.test",     "another name in many records"),
    (443, [made(sni(b"evil.test"))[:20], made(sni(b"evil.test"))[20:]],   "evil.test",     "another name in two packets"),
    (443, [made(b"")],                                                    "names no host", "no name"),
    (443, [b"\x16\x03\x01\x00\x00"],                                      "length",        "records that say nothing"),
    (443, [made(sni(b"127.0.0.1"))],                                      "127.0.0.1",     "an address for a name"),
    (443, [made(sni(b"good.test")), b"x" * 5],                            "",              "the name of the host"),
    (443, [split(made(sni(b"GOOD.test")), every=9)],                      "",              "the name in pieces"),
    (80,  [b"SSH-2.0-OpenSSH\r\n"],                                       "port 80",       "SSH on the port of HTTP"),
    (80,  [b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"],                 "another host",  "another host in plain HTTP"),
    (80,  [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],                          "request line",  "HTTP/2, where every stream has its own host"),
    (80,  [made(sni(b"evil.test"))],                                      "evil.test",     "TLS on another port"),
    (0,   [b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"],                 "another host",  "another host on another port"),
    (0,   [b"G", b"ET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"],            "another host",  "in two packets"),
    (0,   [made(sni(b"evil.test"))],                                      "evil.test",     "another name on another port"),
    (0,   [b"003egit-upload-pack"],                                       "",              "another protocol on another port"),
]
# fmt: on


@pytest.mark.threat("T55")
@pytest.mark.parametrize(("port", "pieces", "part", "why"), FIRST_WORDS)
def test_what_is_said_first_in_a_tunnel(port: int, pieces: list[bytes], part: str, why: str) -> None:
    if port and os.geteuid() != 0:
        pytest.skip("only root may listen on this port")

    async def scene() -> tuple[Server, Proxy]:
        address = own_address()
        names = Names(good__test=[(address,)])
        async with (
            serving(None, address=address, port=port) as server,
            proxying("good.test:* private", names=names) as proxy,
        ):
            reader, writer, _ = await proxy.tunnel(f"good.test:{server.port}")
            for piece in pieces:
                writer.write(piece)
                with contextlib.suppress(OSError):
                    await writer.drain()
                await asyncio.sleep(0.02)
            with contextlib.suppress(OSError):  # either the proxy ends it, or all of it comes back
                await (reader.read() if part else reader.readexactly(len(b"".join(pieces))))
            writer.close()
            await until_async(lambda: proxy.egress._ledger.attempts[0].seconds >= 0)  # the connection has ended
        return server, proxy

    server, proxy = asyncio.run(scene())
    if part:
        assert part in proxy.connections[0].why, why
        assert server.heard in ([], [b""]), why
    else:
        assert server.heard == [b"".join(pieces)], why
        assert proxy.connections[0].received == len(server.heard[0])


def test_a_server_may_speak_first_on_a_port_that_is_not_the_webs() -> None:
    async def scene() -> bytes:
        async with serving(None, greet=b"220 hello\r\n") as server, proxying(f"{server.at} private") as proxy:
            reader, writer, _ = await proxy.tunnel(server.at)
            greeted = await reader.readline()
            writer.write(b"EHLO me\r\n")
            return greeted + await reader.readline()

    assert asyncio.run(scene()) == b"220 hello\r\nEHLO me\r\n"


@pytest.mark.threat("T55")
def test_a_plain_request_in_a_tunnel_is_one_request() -> None:
    async def scene() -> tuple[bytes, Server, Proxy]:
        async with serving(OK) as server, proxying(f"{server.at} private") as proxy:
            reader, writer, _ = await proxy.tunnel(server.at)
            writer.write(f"GET /a HTTP/1.1\r\nHost: {server.at}\r\n\r\nGET /b HTTP/1.1\r\nHost: evil\r\n\r\n".encode())
            answer = await reader.read()
        return answer, server, proxy

    answer, server, proxy = asyncio.run(scene())
    assert answer.endswith(b"ok")
    assert b"evil" not in server.heard[0]
    assert proxy.connections[0].asked == "GET /a"


# ---- SOCKS


# fmt: off
SOCKS = [
    (b"\x05\x01\x00", b"\x05\x01\x00\x03\x09good.testPORT",       b"\x05\x00\x05\x00", "",                 "a name"),
    (b"\x05\x01\x00", b"\x05\x01\x00\x01\x7f\x00\x00\x02PORT",    b"\x05\x00\x05\x00", "",                 "an address"),
    (b"\x05\x01\x00", b"\x05\x01\x00\x03\x09evil.testPORT",       b"\x05\x00\x05\x02", "not on the",       "another name"),
    (b"\x05\x01\x00", b"\x05\x01\x00\x01\x7f\x00\x00\x01PORT",    b"\x05\x00\x05\x02", "not on the",       "another address"),
    (b"\x05\x01\x00", b"\x05\x01\x00\x03\x05127.2PORT",           b"\x05\x00\x05\x01", "valid host",       "an odd address"),
    (b"\x05\x01\x00", b"\x05\x01\x00\x03\x00PORT",                b"\x05\x00\x05\x01", "valid host",       "an empty name"),
    (b"\x05\x01\x00", b"\x05\x01\x00\x04" + b"\0" * 10 + b"\xff\xff\x7f\x00\x00\x02PORT", b"\x05\x00\x05\x01", "valid host",       "mapped"),
    (b"\x05\x01\x00", b"\x05\x02\x00\x01\x7f\x00\x00\x02PORT",    b"\x05\x00\x05\x07", "BIND",             "listening"),
    (b"\x05\x01\x00", b"\x05\x03\x00\x01\x7f\x00\x00\x02PORT",    b"\x05\x00\x05\x07", "UDP",              "datagrams"),
    (b"\x05\x01\x02", b"",                                        b"\x05\xff",         "without authentication", "with a password only"),
    (b"\x04\x01\x00\x50\x7f\x00\x00\x02\x00", b"",                b"\x00\x5b",         "SOCKS4",           "the older one"),
]
# fmt: on


@pytest.mark.threat("T52")
@pytest.mark.parametrize(("greeting", "asked", "answer", "part", "why"), SOCKS)
def test_socks(greeting: bytes, asked: bytes, answer: bytes, part: str, why: str) -> None:
    async def scene() -> tuple[bytes, Proxy]:
        names = Names(good__test=[("127.0.0.2",)])
        async with serving(None) as server:
            rules = (f"good.test:{server.port} private", f"{server.at} private")
            async with proxying(*rules, names=names) as proxy:
                told = asked.replace(b"PORT", server.port.to_bytes(2, "big"))
                return await proxy.say(greeting, more=[told, *([] if part else [b"hello"])], finish=not part), proxy

    said, proxy = asyncio.run(scene())
    assert said.startswith(answer), (said, why)
    assert said.endswith(b"hello") == (not part), why
    assert part in proxy.connections[0].why, why


# ---- names and addresses


@pytest.mark.threat("T54")
def test_a_name_that_changes_between_check_and_use_changes_nothing() -> None:
    async def scene() -> tuple[list[bytes], Names, Server]:
        names = Names(good__test=[("127.0.0.2",), ("169.254.169.254",), ("127.0.0.3",)])
        async with serving(OK) as server, proxying(f"good.test:{server.port} private", names=names) as proxy:
            request = get(server, host="good.test")
            return [await proxy.say(request), await proxy.say(request)], names, server

    answers, names, server = asyncio.run(scene())
    assert answers[0].endswith(b"ok")
    assert b" 403 " in answers[1], "a new request is a new check"
    assert names.asked == ["good.test"] * 2, "one question for each request, none between check and connection"
    assert len(server.heard) == 1


@pytest.mark.threat("T54")
def test_a_redirect_is_a_new_request_and_a_new_check() -> None:
    async def scene() -> list[str]:
        found = []
        for target in (
            "http://169.254.169.254/latest/",
            "http://evil.test/",
            "http://localhost:22/",
            "file:///etc/passwd",
        ):
            moved = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
            async with serving(moved) as server, proxying(f"{server.at} private") as proxy:
                curl = await asyncio.create_subprocess_exec(
                    *("curl", "-sSL", "--noproxy", "", "-x", f"http://127.0.0.1:{proxy.port}", f"http://{server.at}/"),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
                found.append((await curl.communicate())[0].decode())
        return found

    metadata, evil, local, file = asyncio.run(scene())
    assert "host 169.254.169.254 is not on the allowlist" in metadata
    assert "host evil.test is not on the allowlist" in evil
    assert "localhost is not on the allowlist" in local
    assert "root" not in file


@pytest.mark.threat("T53")
def test_a_public_address_of_this_machine_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of the runner's machine on its public address: no registry lists it, the kernel knows it."""
    monkeypatch.setattr("sandbox.egress.dialer.refusal", lambda address, *, private: None)

    async def scene() -> Proxy:
        async with serving(OK) as server, proxying(server.at) as proxy:
            await proxy.say(get(server))
            assert server.heard == []
        return proxy

    assert "is on this machine" in asyncio.run(scene()).connections[0].why


def test_a_host_that_cannot_be_reached_says_so_and_is_no_violation() -> None:
    async def scene() -> tuple[bytes, Proxy]:
        with socket.create_server(("127.0.0.2", 0)) as taken:
            port = taken.getsockname()[1]
        async with proxying("127.0.0.2:* private") as proxy:
            return await proxy.say(f"CONNECT 127.0.0.2:{port} HTTP/1.1\r\n\r\n".replace("1.1", "1.0").encode()), proxy

    answer, proxy = asyncio.run(scene())
    assert b" 502 host 127.0.0.2 cannot be reached" in answer
    assert b"connection refused" in answer
    assert not proxy.violations
    assert proxy.connections[0].allowed


# ---- bounds


@pytest.mark.threat("T57")
def test_what_says_nothing_or_says_it_slowly_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_module, "HEAD", 0.3)

    async def scene() -> Proxy:
        async with serving(None) as server, proxying(f"{server.at} private") as proxy:
            slow = [proxy.say(b"")]
            slow += [proxy.say(b"G", more=[b"E"] * 30)]  # never a whole request, always something
            slow += [proxy.say(b"\x05"), proxy.say(b"\x05\x01\x00", more=[b"\x05", b"\x01", b"\x00", b"\x03"])]
            slow += [proxy.say(f"CONNECT {server.at} HTTP/1.0\r\n\r\n".encode(), more=[b"\x16", b"\x03"])]
            await asyncio.gather(*slow)
        return proxy

    proxy = asyncio.run(scene())
    assert len(proxy.connections) == 5
    assert [each.why for each in proxy.connections if "in time" not in each.why] == []


@pytest.mark.threat("T57")
def test_connections_and_bytes_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "OPEN", 3)
    monkeypatch.setattr(ledger, "ATTEMPTS", 20)
    monkeypatch.setattr(ledger, "UP", 4000)

    async def scene() -> tuple[list[bytes], Proxy, int]:
        most = 0
        async with serving(OK) as server, proxying(f"{server.at} private") as proxy:
            waiting = [asyncio.create_task(proxy.say(get(server))) for _ in range(25)]
            while not all(task.done() for task in waiting):
                most = max(most, len(proxy.egress._tasks))
                await asyncio.sleep(0)  # so that no turn of the loop is missed
        return [await task for task in waiting], proxy, most

    answers, proxy, most = asyncio.run(scene())
    assert most <= 3
    assert sum(answer.endswith(b"ok") for answer in answers) == 20, "those that had to wait were served too"
    assert len(proxy.connections) == 21
    assert "5 more" in proxy.connections[-1].why
    assert "more than 20 connections" in proxy.violations[-1].what

    async def large() -> Proxy:
        async with serving(None) as server, proxying(f"{server.at} private") as proxy:
            reader, writer, _ = await proxy.tunnel(server.at)
            writer.write(b"\0" * 100_000)
            with contextlib.suppress(OSError):
                await reader.read()
        return proxy

    assert "has sent more than" in asyncio.run(large()).connections[0].why


@pytest.mark.threat("T57")
def test_the_end_of_a_command_ends_its_connections() -> None:
    async def scene() -> None:
        async with serving(None) as server, proxying(f"{server.at} private") as proxy:
            reader, writer, _ = await proxy.tunnel(server.at)
            writer.write(b"\0hello")
            assert await reader.readexactly(6) == b"\0hello"
            await proxy.done()
            assert await reader.read() == b""
            left_reader, _ = await asyncio.open_connection("127.0.0.1", proxy.port)  # nobody's: no command runs
            assert proxy.connections[0].sent == 6
            proxy.egress.begin()
            with contextlib.suppress(ConnectionResetError):
                assert await left_reader.read() == b"", "the next command does not inherit it"
            await proxy.done()
            assert proxy.connections == ()

    asyncio.run(scene())


# fmt: off
RESTLESS = [
    ("Transfer-Encoding: chunked",         b"1\r\nx\r\n" * 20_000, "tiny chunks"),
    ("Content-Length: 99999999999",        b"x" * 100_000,          "a body"),
]
# fmt: on


@pytest.mark.threat("T57")
@pytest.mark.parametrize(("field", "piece", "why"), RESTLESS)
def test_a_connection_that_never_pauses_does_not_keep_the_others_waiting(field: str, piece: bytes, why: str) -> None:
    """A sender that always has more and a receiver that always takes it, in processes of their own."""

    async def scene() -> bytes:
        async with serving(OK) as server, proxying(f"{server.at} private", "127.0.0.3:* private") as proxy:
            with socket.create_server(("127.0.0.3", 0)) as sink:
                pipe = (
                    f"import socket; s = socket.socket(fileno={sink.fileno()}).accept()[0]\nwhile s.recv(1 << 20): pass"
                )
                port = sink.getsockname()[1]
                flood = (
                    f"import socket; s = socket.create_connection(('127.0.0.1', {proxy.port}))\n"
                    f"s.sendall(b'POST http://127.0.0.3:{port}/ HTTP/1.1\\r\\nHost: 127.0.0.3:{port}\\r\\n{field}\\r\\n\\r\\n')\n"
                    f"while True: s.sendall({piece[:6]!r} * {len(piece) // 6})"
                )
                taker = await asyncio.create_subprocess_exec(sys.executable, "-c", pipe, pass_fds=[sink.fileno()])
                quiet = asyncio.subprocess.DEVNULL
                giver = await asyncio.create_subprocess_exec(sys.executable, "-c", flood, stderr=quiet)
                try:
                    await until_async(
                        lambda: any(attempt.up > 20_000 for attempt in proxy.egress._ledger.attempts),
                        of=lambda: giver.returncode is not None,
                    )
                    return await proxy.say(get(server))
                finally:
                    giver.kill()
                    taker.kill()
                    await asyncio.gather(giver.wait(), taker.wait())

    assert asyncio.run(scene()).endswith(b"ok"), why


@pytest.mark.threat("T57")
def test_any_bytes_are_survived() -> None:
    """Pieces of everything that the proxy speaks, in any order: it answers or ends, and continues with the next."""
    import random

    chance = random.Random(7)
    parts = [
        *(b"GET ", b"CONNECT ", b"http://good.test", b":80", b"/", b" HTTP/1.1\r\n", b"Host: good.test\r\n", b"\r\n", b"\r"),
        *(b"\n", b"\0", b"\x05\x01\x00", b"\x04", b"\x05\x01\x00\x03\x09good.test\x00\x50", b"\x16\x03\x01", b"Content-Length: 3\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"5\r\n", b"x" * 70_000, client_hello("good.test"), b"\xff\xfe", b"%2e%2e", b"[::1]"),
    ]  # fmt: skip

    async def scene() -> tuple[bytes, Proxy]:
        names = Names(good__test=[("127.0.0.2",)])
        async with serving(OK) as server, proxying("good.test:* private", f"{server.at} private", names=names) as proxy:
            for _ in range(40):
                batch = [b"".join(chance.choices(parts, k=chance.randint(1, 9))) for _ in range(10)]
                await asyncio.gather(*(proxy.say(data, finish=True) for data in batch))
            return await proxy.say(get(server)), proxy

    answer, proxy = asyncio.run(scene())
    assert answer.endswith(b"ok")
    assert len(proxy.connections) == 401
    assert not [each for each in proxy.connections if "the proxy failed" in each.why]


def test_ipv6_is_reached_like_ipv4() -> None:
    async def scene() -> tuple[bytes, Proxy]:
        async with serving(OK, address="::1") as server, proxying(f"[::1]:{server.port} private") as proxy:
            server.address = "[::1]"
            return await proxy.say(get(server)), proxy

    answer, proxy = asyncio.run(scene())
    assert answer.endswith(b"ok")
    assert proxy.connections[0].address == "::1"


def test_names_are_resolved_as_this_machine_does_it() -> None:
    async def scene() -> list[tuple[str, ...]]:
        return [await resolve(name, 80) for name in ("localhost", "no-such-host.invalid", "a" * 64 + ".test", "é")]

    local, *nothing = asyncio.run(scene())
    assert set(local) <= {"127.0.0.1", "::1"}
    assert local
    assert nothing == [(), (), ()]
