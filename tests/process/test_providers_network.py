"""Tests of certificates and proxies: a temporary authority, TLS on loopback, and a proxy that tunnels and inspects."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from runner.messages import ProviderError, Reply
from tests.wire import loopback

CANARY = "sk-canary-3d90ab7722e1"
PASSWORD = "proxy-canary-0099aa"
ANSWER = loopback.stream(loopback.wire("anthropic-text"))
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP library reads these from the process: start from none, for any user who runs the tests."""
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@dataclass(frozen=True)
class Authority:
    server: ssl.SSLContext
    file: str


def _authority(folder: Path, *names: str, days: int = 2) -> Authority:
    """A certificate for `names` and 127.0.0.1 that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=10)
    alternatives = [x509.DNSName(each) for each in names] + [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=10 + days))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return Authority(context, str(pem))


@dataclass
class Proxy:
    """A CONNECT proxy. Every tunnel leads to `target`, whatever was asked for; all bytes that pass are kept."""

    target: int
    refusal: bytes = b""
    heads: list[bytes] = field(default_factory=list)
    passed: bytearray = field(default_factory=bytearray)

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        if self.refusal:
            writer.write(self.refusal)
            await writer.drain()
            writer.close()
            return
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", self.target)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._pass(reader, onward), self._pass(onward_reader, writer))

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                self.passed += data
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass  # one side left
        finally:
            target.close()


async def answer_of(url: str) -> Reply:
    provider = loopback.make("anthropic", url, CANARY)
    try:
        return loopback.reply_of(await loopback.ask(provider))
    finally:
        await provider.close()


async def failure_of(url: str) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await answer_of(url)
    error = caught.value
    assert error.__context__ is None
    assert CANARY not in str(error) + repr(error)
    assert PASSWORD not in str(error) + repr(error)
    return error


def test_a_trusted_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = _authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", authority.file)

    async def run() -> None:
        async with loopback.Loopback([ANSWER], tls=authority.server) as server:
            await answer_of(server.url)
            assert len(server.requests) == 1

    asyncio.run(run())


def _untrusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    return _authority(folder)


def _expired(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    authority = _authority(folder, days=-5)
    monkeypatch.setenv("SSL_CERT_FILE", authority.file)
    return authority


@pytest.mark.threat("T21")
@pytest.mark.parametrize("prepare", [_untrusted, _expired])
def test_a_certificate_that_is_not_trusted_gets_no_key(
    prepare: Callable[[Path, pytest.MonkeyPatch], Authority], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = prepare(tmp_path, monkeypatch)

    async def run() -> None:
        async with loopback.Loopback([ANSWER], tls=authority.server) as server:
            error = await failure_of(server.url)
            assert "certificate of `127.0.0.1`" in error.problem.why
            assert not error.retryable
            assert server.requests == []

    asyncio.run(run())


@pytest.mark.threat("T21")
def test_a_users_proxy_is_used_and_sees_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = _authority(tmp_path, "provider.invalid")

    async def run() -> None:
        async with (
            loopback.Loopback([ANSWER], tls=authority.server) as server,
            Proxy(server.port) as proxy,
        ):
            monkeypatch.setenv("SSL_CERT_FILE", authority.file)
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:{PASSWORD}@{proxy.address}")
            await answer_of("https://provider.invalid")
            [head] = proxy.heads
            assert head.startswith(b"CONNECT provider.invalid:443 ")
            assert b"Proxy-Authorization: Basic " in head
            assert len(server.requests) == 1
            assert f"x-api-key: {CANARY}" in server.requests[0].lines
            assert CANARY.encode() not in head + proxy.passed
            assert b"hello" not in proxy.passed, "nor the prompt"
            assert b"roxy" not in server.requests[0].head, "and the server learns nothing of the proxy"

    asyncio.run(run())


@pytest.mark.threat("T21")
def test_a_proxy_cannot_pose_as_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = _authority(tmp_path, "other.invalid")

    async def run() -> None:
        async with loopback.Loopback([ANSWER], tls=authority.server) as server, Proxy(server.port) as proxy:
            monkeypatch.setenv("SSL_CERT_FILE", authority.file)
            monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
            error = await failure_of("https://provider.invalid")
            assert "certificate of `provider.invalid`" in error.problem.why
            assert server.requests == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "refusal",
    [
        b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 403 " + PASSWORD.encode() + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_a_proxy_that_refuses(refusal: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with Proxy(1, refusal) as proxy:
            monkeypatch.setenv("ALL_PROXY", f"http://user:{PASSWORD}@{proxy.address}")
            error = await failure_of("https://provider.invalid")
            assert "the proxy" in error.problem.why
            assert "HTTPS_PROXY" in error.problem.fix
            assert CANARY.encode() not in b"".join(proxy.heads)

    asyncio.run(run())


@pytest.mark.threat("T21")
def test_servers_on_this_machine_are_spoken_to_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain http through a proxy would show it the key and every prompt."""

    async def run() -> None:
        async with loopback.Loopback([ANSWER]) as server, Proxy(1) as proxy:
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://{proxy.address}")
                monkeypatch.setenv(name.lower(), f"http://{proxy.address}")
            await answer_of(server.url)
            assert proxy.heads == []
            assert len(server.requests) == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", f"socks5://user:{PASSWORD}@127.0.0.1:1080"),
        ("HTTPS_PROXY", f"gopher://user:{PASSWORD}@127.0.0.1:70"),
        ("HTTPS_PROXY", f"http://user:{PASSWORD}@127.0.0.1:notaport"),
        ("SSL_CERT_FILE", "/no/such/file"),
        ("SSL_CERT_FILE", __file__),
    ],
)
def test_settings_that_cannot_work_are_a_problem(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    error = asyncio.run(failure_of("https://provider.invalid"))
    assert "proxy or certificate setting" in error.problem.why
    assert name in error.problem.fix
