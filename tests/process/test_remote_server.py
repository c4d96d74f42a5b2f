"""Tests of the transport of remote tool servers against hostile servers on loopback."""

import asyncio
import gzip
import json
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from policy.model.profile import Layer
from policy.model.verdict import ProblemError
from runner.mcp.server_config import ServerConfig
from runner.secrets.secret import Secret
from sandbox.backend import NetworkOptions
from tests.support.egress_network import certificate
from tests.support.http_script import Asked, answer, scripted_server

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import httpcore2
import httpx2

from runner.mcp.http import RemoteTransport, open_remote, remote_hosts
from runner.web.pinned_http import AnswerBounds, PinnedTransport, _BoundedStream

OTHER = "http://127.0.0.1:9/elsewhere"
TOKEN = "token-canary-51d0c7be"
HEADER = ("X-Api-Key", "header-canary-0b77")
SMALL = AnswerBounds(message=1 << 20, burst=2 << 20, steady=0, idle=20.0, longest=40.0)


class Tokens:
    """A source of tokens that always has the same one."""

    async def token(self) -> Secret:
        return Secret(TOKEN)

    async def renewed(self, refused, challenge):
        raise AssertionError("no test here refuses the token")


def config_of(url: str, *hosts: str, **more) -> ServerConfig:
    return ServerConfig("demo", Layer.USER, url=url, hosts=hosts, headers=(HEADER,), **{"transport": "http", **more})


def call(number: int | None = 7, method: str = "tools/call") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, **({"id": number} if number is not None else {})}).encode()


def result(number: object = 7) -> dict:
    return {"jsonrpc": "2.0", "id": number, "result": {"ok": True}}


async def asked(
    url: str, *hosts: str, bounds: AnswerBounds = SMALL, body: bytes = call(), method: str = "POST", **parts
) -> str:
    """Send one call and return everything that the client sees, the text of an error included."""
    config = config_of(url, *hosts, transport=parts.pop("transport", "http"))
    pinned = PinnedTransport(remote_hosts(config), bounds=bounds, **parts)
    transport = RemoteTransport(config, pinned, Tokens())
    request = httpx2.Request(method, url, content=body if method == "POST" else b"")
    try:
        response = await transport.handle_async_request(request)
        return f"{response.status_code} {(await response.aread()).decode()}"
    except httpx2.TransportError as error:
        return f"error {error}"
    finally:
        await transport.aclose()


async def stream(request: Asked, *parts: bytes, kind: str = "text/event-stream", end: bytes = b"\r\n\r\n") -> None:
    """Write an answer without a length that begins with `parts`; the last part is repeated without an end."""
    request.writer.write(f"HTTP/1.1 200 X\r\nContent-Type: {kind}".encode() + end + b"".join(parts[:-1]))
    while True:
        request.writer.write(parts[-1])
        await request.writer.drain()


async def write(request: Asked, data: bytes) -> None:
    """Write a part of an answer and keep the connection open without a further byte."""
    request.writer.write(data)
    await request.writer.drain()
    await asyncio.Event().wait()


EVENT = b"event: message\ndata: " + json.dumps(result()).encode() + b"\n\n"
PROGRESS = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
HEAD = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n"
SHORT = AnswerBounds(message=1 << 20, burst=64 << 20, steady=1 << 20, idle=1.0, longest=3.0)

FLOODS = (
    # (script, bounds, expected, why)
    (lambda r: stream(r, b"[" * 65536, kind="application/json"), SMALL, "more than 1 MiB", "an endless JSON answer"),
    (lambda r: stream(r, PROGRESS * 100), SMALL, "sends events faster", "an endless stream of events"),
    (lambda r: stream(r, b": nothing\n" * 1000), SMALL, "sends events faster", "endless comments"),
    (lambda r: stream(r, b"data: ", b"x" * 65536), SMALL, "sends events faster", "one event without an end"),
    (lambda r: stream(r, b"x" * 65536, kind="x", end=b"\r\nX-Flood: "), SMALL, "not valid HTTP", "a header without an end"),
    (lambda r: write(r, b"HTTP/1.1 100 X\r\n\r\n"), SHORT, "does not answer", "an answer that never begins"),
    (lambda r: write(r, HEAD + PROGRESS), SHORT, "in time|does not answer", "a stream that stops"),
    (lambda r: write(r, HEAD.replace(b"event-stream", b"plain") + b"x"), SHORT, "in time|does not answer", "a text that stops"),
)  # fmt: skip


@pytest.mark.threat("T190")
@pytest.mark.parametrize(("script", "bounds", "expected", "why"), FLOODS, ids=[row[-1] for row in FLOODS])
def test_a_flood_ends_the_call(script, bounds, expected, why) -> None:
    async def run() -> None:
        async with scripted_server(script) as server:
            host = f"127.0.0.1:{server.port} private"
            said = await asked(server.url, host, bounds=bounds)
            assert any(words in said for words in expected.split("|")), said

    asyncio.run(run())


@pytest.mark.threat("T190")
def test_events_extend_the_time_of_a_call_up_to_the_maximum() -> None:
    begun = time.monotonic() - 1.0
    stream = _BoundedStream(httpcore2.Response(200), AnswerBounds(idle=60.0, longest=600.0), begun, True, False)
    first = stream._deadline
    stream._count(b": a comment\n\n")
    assert stream._deadline == first
    stream._count(PROGRESS)
    assert stream._deadline > first

    async def trickle(request: Asked) -> None:
        request.writer.write(HEAD)
        while True:
            request.writer.write(PROGRESS)
            await request.writer.drain()
            await asyncio.sleep(0.02)

    async def run() -> str:
        bounds = AnswerBounds(idle=60.0, longest=0.5)
        async with scripted_server(trickle) as server:
            return await asked(server.url, f"127.0.0.1:{server.port} private", bounds=bounds)

    assert "did not complete its answer in time" in asyncio.run(run())


@pytest.mark.threat("T190")
def test_broken_answers_use_up_no_connections() -> None:
    async def script(request: Asked) -> bytes:
        return answer(200, b"[" * 100_000 if request.headers.get("x-flood") else result())

    async def run() -> list[int]:
        async with scripted_server(script) as server:
            config = config_of(server.url, f"127.0.0.1:{server.port} private")
            bounds = AnswerBounds(message=50_000, idle=20.0)
            transport = RemoteTransport(config, PinnedTransport(remote_hosts(config), bounds=bounds), None)
            codes = []
            for headers in (*[{"X-Flood": "1"}] * 40, {}):
                request = httpx2.Request("POST", server.url, content=call(), headers=headers)
                codes.append((await transport.handle_async_request(request)).status_code)
            await transport.aclose()
            return codes

    assert asyncio.run(run()) == [502] * 40 + [200], "more than the connections of the pool"


@pytest.mark.threat("T190")
def test_a_stream_that_always_ends_is_not_opened_for_ever() -> None:
    from mcp.client import Client

    async def script(request: Asked) -> bytes | None:
        said = request.json() if request.method == "POST" else {}
        if said.get("method") == "initialize":
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            }
            return answer(200, {"jsonrpc": "2.0", "id": said["id"], "result": about}, Mcp_Session_Id="s")
        if request.method != "GET" and "id" not in said:
            return answer(202)
        request.writer.write(
            HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"id: 1\nretry: 0\ndata:\n\n"
        )
        return None

    async def run() -> None:
        async with scripted_server(script) as server:
            config = config_of(f"{server.url}/mcp", f"127.0.0.1:{server.port} private")
            async with Client(open_remote(config), mode="legacy") as client:
                with pytest.raises(Exception, match="reconnection attempts were exhausted"):
                    await client.list_tools()
            streams = sum(each.method == "GET" for each in server.seen)
            assert 2 <= streams < 100, "the burst, and one more each second of this test"

    asyncio.run(run())


ANSWERS = (
    # (answer, or a function that makes a large one; expected, why)
    (answer(200, result(8)), "answers another request", "the number of another request"),
    (answer(200, result("7")), "answers another request", "the number as text"),
    (answer(200, [result(7)]), "answers another request", "a list of answers"),
    (lambda: answer(200, gzip.compress(b"0" * 50_000_000), Content_Encoding="gzip"), "compressed answer", "a gzip bomb"),
    (answer(200, b"{}", Content_Encoding="br"), "compressed answer", "another compression"),
    (answer(307, Location=OTHER), f"redirects to {OTHER}", "a redirect to another port"),
    (answer(302, Location="http://169.254.169.254/latest"), "redirects to http://169.254.169.254", "a redirect to a metadata service"),
    (answer(308, Location="//evil.example/mcp"), "redirects to http://evil.example/mcp", "a redirect without a scheme"),
    (answer(307, Location="http://user:pw@127.0.0.1/"), "redirects to http://127.0.0.1/", "a redirect with a password"),
    (answer(307, Location="file:///etc/passwd"), "redirects to file:", "a redirect to a file"),
    (answer(307, Location="http://[::1"), "redirects to an address that is not valid", "a redirect to no address"),
    (answer(401), "agent mcp login demo", "a server that asks to sign in"),
    (answer(403, WWW_Authenticate='Bearer error="insufficient_scope", scope="a:b --all;rm"'), "agent mcp login demo --scope a:b`", "more scopes"),
)  # fmt: skip


@pytest.mark.threat("T189")
@pytest.mark.parametrize(("data", "expected", "why"), ANSWERS, ids=[row[-1] for row in ANSWERS])
def test_an_answer_is_refused(data: bytes | Callable[[], bytes], expected: str, why: str) -> None:
    given = data() if callable(data) else data

    async def script(request: Asked) -> bytes:
        return given

    async def run() -> str:
        async with scripted_server(script) as server:
            config = config_of(server.url, f"127.0.0.1:{server.port} private")
            pinned = PinnedTransport(remote_hosts(config), bounds=SMALL)
            transport = RemoteTransport(config, pinned, None)
            request = httpx2.Request("POST", server.url, content=call())
            said = json.loads((await transport.handle_async_request(request)).content)
            await transport.aclose()
            assert len(server.seen) == 1
            return said["error"]["message"]

    assert expected in asyncio.run(run()), why


@pytest.mark.threat("T189")
def test_headers_and_token_go_to_the_origin_only() -> None:
    async def other(request: Asked) -> bytes:
        return answer(200, result())

    async def run() -> None:
        async with AsyncExitStack() as stack:
            second = await stack.enter_async_context(scripted_server(other))

            async def script(request: Asked) -> bytes:
                if request.path == "/mcp":
                    return answer(307, Location="/mcp/")
                return answer(307, Location=f"{second.url}/mcp")

            first = await stack.enter_async_context(scripted_server(script))
            hosts = (f"127.0.0.1:{first.port} private", f"127.0.0.1:{second.port} private")
            said = await asked(f"{first.url}/", *hosts)
            assert f"redirects to {second.url}/mcp" in said
            assert second.seen == []
            assert first.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
            assert first.seen[0].headers["x-api-key"] == HEADER[1]
            assert first.seen[0].headers["accept-encoding"] == "identity"

            from mcp.client import Client

            connection = open_remote(config_of(f"{first.url}/mcp", *hosts), auth=Tokens())
            with pytest.raises(ExceptionGroup):
                async with Client(connection):
                    pass
            assert f"redirects to {second.url}/mcp" in str(connection.problem)
            assert second.seen == []
            assert [each.path for each in first.seen[1:3]] == ["/mcp", "/mcp/"]

    asyncio.run(run())


def _answers(*rounds: tuple[str, ...]):
    """Return a resolver that gives another answer each time, and the list of names that it was asked for."""
    calls: list[str] = []

    async def resolver(host: str, port: int) -> tuple[str, ...]:
        calls.append(host)
        return rounds[min(len(calls), len(rounds)) - 1]

    return resolver, calls


ADDRESSES = (
    # (url, hosts, answers of the name server, expected, why)
    ("https://mcp.example/", (), ("127.0.0.1",), "this machine itself", "a name of this machine"),
    ("https://mcp.example/", (), ("10.1.2.3", "192.168.0.1"), "a private network", "a name of a private network"),
    ("https://mcp.example/", ("mcp.example private",), ("169.254.169.254",), "metadata service", "a metadata service"),
    ("https://mcp.example/", ("mcp.example private",), ("100.100.100.200",), "metadata service", "another metadata service"),
    ("https://127.0.0.1/", (), (), "this machine itself", "a literal address of this machine"),
    ("https://[::1]/", (), (), "this machine itself", "an IPv6 address of this machine"),
    ("https://[::ffff:7f00:1]/", (), (), "not written in the usual form", "an IPv4 address inside IPv6"),
    ("https://0x7f.1/", (), (), "not written in the usual form", "an address in another spelling"),
    ("http://mcp.example/", (), (), "is not encrypted", "no encryption"),
    ("http://mcp.example/", ("mcp.example private",), (), "is not encrypted", "no encryption in a private network"),
    ("http://localhost:1/", (), (), "is not encrypted", "this machine without `private`"),
    ("http://localhost:1/", ("localhost:1 private",), ("10.0.0.1",), "which is not this machine", "a name of this machine that leads elsewhere"),
    ("https://user:pw@mcp.example/", (), (), "contains a user name", "a password in the address"),
    ("ftp://mcp.example/", (), (), "neither https nor http", "another protocol"),
)  # fmt: skip


@pytest.mark.threat("T188")
@pytest.mark.parametrize(("url", "hosts", "answers", "expected", "why"), ADDRESSES, ids=[row[-1] for row in ADDRESSES])
def test_an_address_is_refused(monkeypatch, url, hosts, answers, expected, why) -> None:
    async def refuse(*_: object) -> None:
        pytest.fail("a connection was opened")

    resolver, _ = _answers(answers)
    if "leads elsewhere" not in why:
        monkeypatch.setattr(asyncio.BaseEventLoop, "sock_connect", refuse, raising=False)
    else:

        async def connected(loop, sock, address) -> None:  # the address must be refused although it is reachable
            return None

        monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connected, raising=False)
    try:
        said = asyncio.run(asked(url, *hosts, resolver=resolver))
    except (ProblemError, httpx2.TransportError) as error:
        said = str(error)
    assert expected in said


@pytest.mark.threat("T188")
def test_a_changed_answer_of_the_name_server_has_no_effect() -> None:
    async def script(request: Asked) -> bytes:
        return answer(200, result(), Connection="close")

    async def run() -> None:
        async with scripted_server(script) as server:
            resolver, calls = _answers(("127.0.0.1",), ("169.254.169.254",))
            url, rule = f"http://localhost:{server.port}/", f"localhost:{server.port} private"
            assert (await asked(url, rule, resolver=resolver)).startswith("200")
            assert calls == ["localhost"], "one resolution for one connection"
            assert "metadata service" in await asked(url, rule, resolver=resolver)
            assert len(server.seen) == 1

    asyncio.run(run())


@pytest.mark.threat("T188")
@pytest.mark.parametrize(("names", "trusted", "expected"), [
    (("localhost", "127.0.0.1"), True, "200"),
    (("other.example",), True, "hostname mismatch|not valid for|doesn't match"),
    (("localhost", "127.0.0.1"), False, "self.signed certificate"),
], ids=["the right name", "another name", "an unknown authority"])  # fmt: skip
def test_tls_is_verified(tmp_path: Path, names: tuple[str, ...], trusted: bool, expected: str) -> None:
    pair = certificate(tmp_path / "remote.pem", *names)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pair)
    known = ssl.create_default_context(cafile=str(pair)) if trusted else None

    async def script(request: Asked) -> bytes:
        return answer(200, result())

    async def run() -> str:
        async with scripted_server(script, served) as server:
            url = f"https://localhost:{server.port}/"
            said = await asked(url, f"localhost:{server.port} private", context=known)
            assert bool(server.seen) == said.startswith("200")
            return said

    said = asyncio.run(run())
    assert any(words in said.replace("-", " ") for words in expected.replace("self.", "self ").split("|")), said


@pytest.mark.threat("T189")
@pytest.mark.parametrize(("header", "expected"), [
    (("Host", "evil.example"), "set by the connection"),
    (("Proxy-Authorization", "x"), "set by the connection"),
    (("X-A", "a\r\nX-B: b"), "characters that a header cannot have"),
    (("X A", "b"), "not the name of a header"),
], ids=["the host", "a header for a proxy", "a line end", "a name with a blank"])  # fmt: skip
def test_a_configured_header_is_refused(header: tuple[str, str], expected: str) -> None:
    config = ServerConfig("demo", Layer.USER, url="https://mcp.example/", transport="http", headers=(header,))
    with pytest.raises(ProblemError, match=expected):
        open_remote(config)


@pytest.mark.threat("T188")
def test_the_upstream_proxy_of_the_user_is_used_and_tls_goes_through_it(tmp_path: Path) -> None:
    pair = certificate(tmp_path / "remote.pem", "mcp.example")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pair)
    asked_of_proxy: list[str] = []

    async def script(request: Asked) -> bytes:
        return answer(200, result())

    async def run() -> str:
        async with scripted_server(script, served) as far:

            async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                while data := await reader.read(65536):
                    writer.write(data)
                writer.close()

            async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                asked_of_proxy.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[0])
                there, back = await asyncio.open_connection("127.0.0.1", far.port)
                writer.write(b"HTTP/1.1 200 X\r\n\r\n")
                await asyncio.gather(pour(reader, back), pour(there, writer), return_exceptions=True)

            listening = await asyncio.start_server(proxy, "127.0.0.1", 0)
            network = NetworkOptions(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
            config = config_of("https://mcp.example/")
            known = ssl.create_default_context(cafile=str(pair))
            pinned = PinnedTransport(remote_hosts(config), network, bounds=SMALL, context=known)
            response = await pinned.handle_async_request(httpx2.Request("POST", config.url, content=call()))
            text = (await response.aread()).decode()
            await pinned.aclose()
            listening.close()
            return text

    assert '"ok": true' in asyncio.run(run())
    assert asked_of_proxy == ["CONNECT mcp.example:443 HTTP/1.1"]


OLD = (
    # (first event, later event, expected, why)
    ("event: endpoint\ndata: http://evil.example/messages\n\n", "", "it is another origin", "an address of another origin"),
    ("event: endpoint\ndata: /messages\n\n", "data: []\n\n", "an event that is no message", "an event that is no message"),
    ("event: endpoint\ndata: /m\n\n", "event: endpoint\ndata: /m2\n\n", "a second address", "a second address"),
    ("event: endpoint\ndata: /m\n\n", 'data: {"jsonrpc":"2.0","id":8,"result":{}}\n\ndata: {"jsonrpc":"2.0","id":7,"result":{"mine":1}}\n\n', '"mine":1', "the answer of another request first"),
)  # fmt: skip


@pytest.mark.threat("T189")
@pytest.mark.parametrize(("first", "later", "expected", "why"), OLD, ids=[row[-1] for row in OLD])
def test_an_old_server(first: str, later: str, expected: str, why: str) -> None:
    streams: list[asyncio.StreamWriter] = []

    async def script(request: Asked) -> bytes | None:
        if request.method == "GET":
            streams.append(request.writer)
            await write(request, HEAD + first.encode())
        streams[0].write(later.encode())
        return answer(202)

    async def run() -> str:
        async with scripted_server(script) as server:
            rule = f"127.0.0.1:{server.port} private"
            config = config_of(f"{server.url}/sse", rule, transport="sse")
            transport = RemoteTransport(config, PinnedTransport(remote_hosts(config), bounds=SMALL), None)
            response = await transport.handle_async_request(httpx2.Request("POST", config.url, content=call()))
            parts = response.aiter_bytes()
            said = (await anext(parts)).decode()
            await response.aclose()
            await transport.aclose()
            return said

    said = asyncio.run(run())
    assert expected in said, said
    assert '"id":8' not in said


@pytest.mark.threat("T190")
def test_an_old_server_that_names_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.mcp.old_sse._ENDPOINT", 0.5)

    async def script(request: Asked) -> bytes | None:
        if request.method == "POST":
            return answer(405)
        await write(request, HEAD)
        return None

    async def run() -> list[str]:
        said = []
        async with scripted_server(script) as server:
            for transport in ("sse", "http"):
                config = config_of(f"{server.url}/", f"127.0.0.1:{server.port} private", transport=transport)
                remote = RemoteTransport(config, PinnedTransport(remote_hosts(config), bounds=SMALL), None)
                for _ in range(2):
                    request = httpx2.Request("POST", config.url, content=call(7, "initialize"))
                    said.append((await (await remote.handle_async_request(request)).aread()).decode())
                await remote.aclose()
        return said

    for text in asyncio.run(run()):
        assert "does not name the address for requests" in text


def test_both_generations_and_both_transports_work() -> None:
    from mcp.client import Client
    from mcp.server.mcpserver import MCPServer

    uvicorn = pytest.importorskip("uvicorn")
    demo = MCPServer("demo")

    @demo.tool()
    def add(a: int, b: int) -> int:
        return a + b

    async def used(app, path: str, transport: str, era: str) -> str:
        listener = socket.create_server(("127.0.0.1", 0))  # a client may connect before the server accepts
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve([listener]))
        try:
            config = config_of(f"http://127.0.0.1:{port}{path}", f"127.0.0.1:{port} private", transport=transport)
            async with Client(open_remote(config), mode=era) as client:
                done = await client.call_tool("add", {"a": 1, "b": 2})
                assert done.structured_content == {"result": 3}
                return client.protocol_version
        finally:
            server.should_exit = True
            await serving

    async def run() -> list[str]:
        return [
            await used(demo.streamable_http_app(), "/mcp", "http", "auto"),
            await used(demo.streamable_http_app(json_response=True), "/mcp", "http", "legacy"),
            await used(demo.sse_app(), "/sse", "sse", "auto"),
            await used(demo.sse_app(), "/sse", "http", "auto"),
        ]

    assert asyncio.run(run()) == ["2026-07-28", "2025-11-25", "2025-11-25", "2025-11-25"]
