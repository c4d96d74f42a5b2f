"""Tests of the user's network: an upstream HTTP proxy, and the address ranges of a translator, on loopback."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.doctor.report import CheckState
from runner.doctor.report import upstream_checks as doctor_lines
from runner.problems import Exit
from sandbox.backend import DIRECT, NetworkOptions
from sandbox.egress.addresses import translated_network
from sandbox.egress.dialer import Dialer
from sandbox.egress.ledger import EgressRefused
from sandbox.egress.upstream import proxy_address
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.egress_network import Names, certificate, proxying, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OPENED = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"


class UpstreamProxy:
    """An HTTP proxy on loopback that gives each request for a tunnel the same answer, and leads all to one server.

    Attributes:
        asked: the request lines.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.network = DIRECT


@contextlib.asynccontextmanager
async def upstream(leads_to: int = 0, answer: bytes = OPENED) -> AsyncIterator[UpstreamProxy]:
    """Serve as a proxy whose tunnels end at port `leads_to` of 127.0.0.2."""
    proxy = UpstreamProxy()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            proxy.asked.append(head.partition(b"\r\n")[0].decode())
            writer.write(answer)
            if leads_to and answer is OPENED:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.2", leads_to)
                await asyncio.gather(pour(reader, far_writer), pour(far_reader, writer))
                far_writer.close()
        writer.close()

    made = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.network = NetworkOptions(f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}")
    try:
        yield proxy
    finally:
        made.close()


def test_tls_passes_through_the_upstream_proxy_end_to_end(tmp_path: Path) -> None:
    pem = certificate(tmp_path / "cert.pem", "good.test")

    async def body() -> None:
        async with (
            serving(OK, tls=pem) as server,
            upstream(server.port) as far,
            proxying("good.test", network=far.network) as proxy,
        ):
            reader, writer, status = await proxy.tunnel("good.test:443")
            assert " 200 " in status
            await writer.start_tls(ssl.create_default_context(cafile=str(pem)), server_hostname="good.test")
            writer.write(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
            assert (await reader.read()).endswith(b"ok")
            writer.close()
        assert far.asked == ["CONNECT good.test:443 HTTP/1.1"]
        assert server.names == ["good.test"], "the name in TLS reaches the server unopened"
        assert proxy.names.asked == [], "only the upstream proxy resolves the name"
        (made,) = proxy.connections
        assert (made.host, made.port, made.address, made.allowed) == ("good.test", 443, "127.0.0.1", True)

    asyncio.run(body())


def test_plain_http_and_a_server_that_speaks_first_pass_through_it() -> None:
    async def body() -> None:
        async with (
            serving(OK, greet=b"220 hello\r\n") as server,
            upstream(server.port) as far,
            proxying("good.test:25", "good.test:8000", network=far.network) as proxy,
        ):
            reader, writer, _ = await proxy.tunnel("good.test:25")
            assert await reader.readline() == b"220 hello\r\n", "nothing after the head of the proxy is lost"
            writer.close()
        async with (
            serving(OK) as server,
            upstream(server.port) as far,
            proxying("good.test:8000", network=far.network) as proxy,
        ):
            answer = await proxy.say(b"GET http://good.test:8000/ HTTP/1.1\r\nHost: good.test:8000\r\n\r\n")
        assert answer.endswith(b"ok")
        assert far.asked == ["CONNECT good.test:8000 HTTP/1.1"]
        assert server.heard[0].startswith(b"GET / HTTP/1.1\r\n")

    asyncio.run(body())


# fmt: off
REFUSED = [
    # rules, host and port, part of the message, why
    ("other.test",              "good.test:443",                  "not on the allowlist",   "the rules come first"),
    ("10.0.0.1",                "10.0.0.1:443",                   "private network",        "a private address"),
    ("127.0.0.2",               "127.0.0.2:443",                  "this machine itself",    "the loopback"),
    ("169.254.169.254",         "169.254.169.254:80",             "metadata service",       "a metadata address"),
    ("localhost",               "localhost:443",                  "this machine itself",    "the proxy's own machine"),
    ("a.localhost",             "a.localhost:443",                "this machine itself",    "a name below it"),
    ("metadata.google.internal", "metadata.google.internal:80",   "metadata service",       "a metadata service by name"),
]
# fmt: on


@pytest.mark.threat("T142")
@pytest.mark.parametrize(("rule", "where", "part", "why"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_the_upstream_proxy_opens_nothing_else(rule: str, where: str, part: str, why: str) -> None:
    async def body() -> None:
        async with upstream() as far, proxying(rule, network=far.network) as proxy:
            _, writer, status = await proxy.tunnel(where)
            writer.close()
        assert " 403 " in status, why
        assert part in status
        assert far.asked == []
        assert [each.allowed for each in proxy.connections] == [False]

    asyncio.run(body())


def test_an_entry_with_private_is_reached_directly() -> None:
    async def body() -> None:
        async with (
            serving(OK) as server,
            upstream() as far,
            proxying(f"{server.at} private", network=far.network) as proxy,
        ):
            answer = await proxy.say(f"GET http://{server.at}/ HTTP/1.1\r\nHost: {server.at}\r\n\r\n".encode())
        assert answer.endswith(b"ok")
        assert far.asked == []

    asyncio.run(body())


FAILURES = [
    (
        b"HTTP/1.1 403 Forbidden by policy\r\n\r\n",
        "the upstream proxy refused host good.test (403 Forbidden by policy)",
    ),
    (b"HTTP/1.1 407 Auth\x1b[2J\r\n\r\n", "the upstream proxy refused host good.test (407 Auth?[2J)"),
    (
        b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n",
        "the upstream proxy refused host good.test (302 Found)",
    ),
    (b"SSH-2.0-x\r\n\r\n", "the upstream proxy sent no valid answer for host good.test"),
    (b"HTTP/1.1 200", "the upstream proxy sent no valid answer for host good.test"),
    (b"X" * 9000, "the upstream proxy sent no valid answer for host good.test"),
]


@pytest.mark.parametrize(("answer", "what"), FAILURES, ids=["403", "407", "redirect", "no HTTP", "cut off", "too long"])
def test_a_refusal_of_the_upstream_proxy_is_told(answer: bytes, what: str) -> None:
    async def body() -> None:
        async with upstream(answer=answer) as far, proxying("good.test", network=far.network) as proxy:
            _, writer, status = await proxy.tunnel("good.test:443")
            writer.close()
        assert status == f"HTTP/1.1 502 {what}"
        (made,) = proxy.connections
        assert (made.why, proxy.violations) == (what, ())

    asyncio.run(body())


def test_an_upstream_proxy_that_does_not_run_is_named() -> None:
    async def body(name: str) -> None:
        async with proxying("good.test", network=NetworkOptions(f"http://{name}")) as proxy:
            _, writer, status = await proxy.tunnel("good.test:443")
            writer.close()
        assert f"the upstream proxy {name} cannot be reached (connection refused)" in status

    with socket.socket() as silent:  # it has a port, and does not listen
        silent.bind(("127.0.0.1", 0))
        asyncio.run(body(f"127.0.0.1:{silent.getsockname()[1]}"))


BAD_PROXIES = [
    ("https://proxy.test:3128", "only `http://`"),
    ("http://user:word@proxy.test:3128", "a password"),
    ("http://proxy.test", "not a host and a port"),
    ("http://proxy.test:3128/path", "not a host and a port"),
    ("proxy.test:3128", "only `http://`"),
    ("http://proxy.test:99999", "not a valid address"),
]


@pytest.mark.parametrize(("text", "part"), BAD_PROXIES, ids=[row[0] for row in BAD_PROXIES])
def test_an_address_of_a_proxy_is_read_strictly(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        proxy_address(text)


class _Once(threading.Thread):
    """A proxy that answers one request for a tunnel, and the request in the tunnel, by itself."""

    def __init__(self, pem: Path | None = None) -> None:
        super().__init__(daemon=True)
        self.pem = pem  # the key and the certificate of a proxy that opens TLS
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.asked: list[bytes] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return  # closed by the test
            with contextlib.suppress(OSError):  # a client that does not accept the certificate closes
                self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        self._answer(sock, OPENED)
        if self.pem is None:
            self._answer(sock, OK)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.pem)
            sock = context.wrap_socket(sock, server_side=True)
            self._answer(sock, OK)
        sock.close()

    def _answer(self, sock: socket.socket, answer: bytes) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n") and (piece := sock.recv(1)):
            head += piece
        if head:
            self.asked.append(head.partition(b"\r\n")[0])
            sock.sendall(answer)


@pytest.mark.threat("T142")
@pytest.mark.parametrize("place", ["home/.config/ringfence", "work/.ringfence"], ids=["the user's", "a repository's"])
def test_only_the_users_own_file_names_an_upstream_proxy(place: str, tmp_path: Path) -> None:
    for folder in ("home/.config/ringfence", "work/.ringfence"):
        (tmp_path / folder).mkdir(parents=True)
    far = _Once()
    far.start()
    (tmp_path / place / "config.toml").write_text(f'[sandbox.network]\nupstream_proxy = "{far.address}"\n')
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
    words = ["exec", "--unattended", "--host", "good.invalid", "--", "curl", "-sS", "http://good.invalid/"]
    done = forked_agent.run(
        [AGENT, *words], env=environ, cwd=tmp_path / "work", capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    far.listener.close()
    if place.startswith("home"):
        assert (done.returncode, done.stdout) == (0, "ok"), done.stderr
        assert far.asked == [b"CONNECT good.invalid:80 HTTP/1.1", b"GET / HTTP/1.1"]
    else:
        assert far.asked == []
        assert "upstream_proxy" in done.stderr, "the user is told that the setting is not used"


def test_the_doctor_tells_about_the_upstream_proxy(tmp_path: Path) -> None:
    far = _Once()
    (answers,) = doctor_lines(NetworkOptions(far.address))
    assert (answers.state, "accepts connections" in answers.detail) == (CheckState.OK, True)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        name = f"http://127.0.0.1:{silent.getsockname()[1]}"
        failed, ranges = doctor_lines(NetworkOptions(name, ("198.18.0.0/15",)))
    assert (failed.state, f"{name} cannot be reached (connection refused)" in failed.detail) == (CheckState.WEAK, True)
    assert "198.18.0.0/15" in ranges.detail
    far.listener.close()


# ---- the certificate authority

CA_FILES = [
    ("home/.config/ringfence", "pki/ours.crt", "",    True,  "the user's own file"),
    ("home/.config/ringfence", "pki/ours.crt", "key", False, "a file with a private key"),
    ("home/.config/ringfence", "pki/none.crt", "",    False, "a file that does not exist"),
    ("home/.config/ringfence", "work/ours.crt", "",   None,  "a file that commands can change"),
    ("work/.ringfence",        "pki/ours.crt", "",    None,  "named by a repository"),
]  # fmt: skip
SHOW = """
import os
path = os.environ.get("SSL_CERT_FILE", "")
if path:
    print(path, os.environ["NODE_EXTRA_CA_CERTS"], "CERTIFICATE" in open(path).read())
    open(path, "a")
"""


@pytest.mark.threat("T144")
@pytest.mark.parametrize(("place", "named", "more", "used", "why"), CA_FILES, ids=[row[-1] for row in CA_FILES])
def test_commands_trust_the_authority_of_the_users_own_file(
    place: str, named: str, more: str, used: bool | None, why: str, tmp_path: Path
) -> None:
    for folder in ("home/.config/ringfence", "work/.ringfence", "pki"):
        (tmp_path / folder).mkdir(parents=True)
    pem = certificate(tmp_path / "made.pem", "good.test").read_text()
    for name in ("pki/ours.crt", "work/ours.crt"):
        (tmp_path / name).write_text(pem if more else pem[pem.index("-----BEGIN CERTIFICATE") :])
    settings = f'[sandbox.network]\ncertificate_authority = "{tmp_path / named}"\n'
    (tmp_path / place / "config.toml").write_text(settings)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
    done = forked_agent.run(
        [AGENT, "exec", "--unattended", "--mode", "trust-project", "--", "python3", "-c", SHOW],
        env=environ, cwd=tmp_path / "work", capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if used is False:
        assert (done.returncode, "certificate_authority" in done.stderr) == (Exit.USAGE, True), done.stderr
    else:
        path = tmp_path / named
        shown = (1, f"{path} {path} True\n") if used else (0, "")
        assert (done.returncode, done.stdout) == shown, (why, done.stderr)
        assert ("Read-only file system" in done.stderr) is bool(used), done.stderr


@pytest.mark.threat("T144")
def test_a_proxy_that_opens_tls_is_accepted_with_its_authority(tmp_path: Path) -> None:
    """A real client in the sandbox, through the sandbox's proxy and an upstream proxy that answers for every host."""
    for folder in ("home/.config/ringfence", "work", "pki"):
        (tmp_path / folder).mkdir(parents=True)
    pem = certificate(tmp_path / "made.pem", "good.invalid")
    text = pem.read_text()
    ours = tmp_path / "pki" / "ours.crt"
    ours.write_text(text[text.index("-----BEGIN CERTIFICATE") :])
    far = _Once(pem)
    far.start()
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
    words = [AGENT, "exec", "--unattended", "--host", "good.invalid", "--", "curl", "-sS", "https://good.invalid/"]
    codes = []
    for authority in (f'certificate_authority = "{ours}"\n', ""):
        settings = f'[sandbox.network]\nupstream_proxy = "{far.address}"\n{authority}'
        (tmp_path / "home/.config/ringfence/config.toml").write_text(settings)
        done = forked_agent.run(
            words, env=environ, cwd=tmp_path / "work", capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        codes.append((done.returncode, done.stdout))
    far.listener.close()
    assert codes == [(0, "ok"), (60, "")], "60: curl does not accept the certificate without the authority"


# ---- translated ranges

RANGES = ("198.18.0.0/15", "64:ff9b::/96", "100.64.0.0/10")
# fmt: off
ADDRESSES = [
    ("good.test",          "198.18.0.5",                 "",                       "an intercepting proxy"),
    ("good.test",          "64:ff9b::0808:0808",         "",                       "a public address behind NAT64"),
    ("good.test",          "64:ff9b::0a00:0001",         "private network",        "a private address behind NAT64"),
    ("good.test",          "64:ff9b::7f00:0001",         "this machine itself",    "the loopback behind NAT64"),
    ("good.test",          "64:ff9b::a9fe:a9fe",         "metadata service",       "a metadata address behind NAT64"),
    ("good.test",          "64:ff9b::c612:0005",         "benchmarks",             "a translated range behind NAT64"),
    ("good.test",          "100.100.100.200",            "metadata service",       "a metadata address in a translated range"),
    ("good.test",          "127.0.0.1",                  "this machine itself",    "in no range"),
    ("good.test",          "10.0.0.1",                   "private network",        "in no range"),
    ("good.test",          "203.0.113.5",                "documentation",          "another reserved range"),
    ("198.18.0.5",         "",                           "benchmarks",             "a literal address"),
    ("[64:ff9b::808:808]", "",                           "translator",             "a literal IPv6 address"),
]
# fmt: on


@pytest.mark.threat("T143")
@pytest.mark.parametrize(
    ("host", "address", "part", "why"), ADDRESSES, ids=[f"{a or h} {w}" for h, a, _, w in ADDRESSES]
)
def test_a_translated_range_counts_for_names_only(host: str, address: str, part: str, why: str) -> None:
    async def body() -> None:
        dialer = Dialer((), Names(good__test=[(address,)]), NetworkOptions(translated=RANGES))
        if not part:
            assert await dialer._addresses(host, 443, private=False) == (address,), why
            return
        with pytest.raises(EgressRefused, match=part):
            await dialer._addresses(host, 443, private=False)

    asyncio.run(body())


BAD_RANGES = [
    "0.0.0.0/0",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "128.0.0.0/1",
    "::/96",
    "fe80::/96",
    "64:ff9b::/64",
    "x",
    "198.18.0.1/15",
]


@pytest.mark.threat("T143")
@pytest.mark.parametrize("text", BAD_RANGES)
def test_a_range_with_addresses_that_are_never_allowed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|addresses|bits"):
        translated_network(text)
