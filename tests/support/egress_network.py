"""The network around the egress proxy: servers on loopback, certificates, and a name server with given answers."""

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from sandbox.backend import DIRECT, Connection, NetworkOptions, Violation
from sandbox.egress.proxy import Egress


class Names:
    """A name server of a test: each name's answers one after the other, the last of them for ever."""

    def __init__(self, **answers: list[tuple[str, ...]]) -> None:
        self.answers = {name.replace("__", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.asked.append(host)
        given = self.answers.get(host, [()])
        return given.pop(0) if len(given) > 1 else given[0]


class Proxy:
    """A proxy in this process, asked over loopback."""

    def __init__(self, hosts: Iterable[str], names: Names | None = None, network: NetworkOptions = DIRECT) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.names = names or Names()
        self.egress = Egress(self.listener, hosts, self.names, network=network)
        self.connections: tuple[Connection, ...] = ()
        self.violations: tuple[Violation, ...] = ()

    async def say(self, data: bytes, *, more: Iterable[bytes] = (), finish: bool = False) -> bytes:
        """Send, and read until the end. `more`: pieces that follow one by one. `finish`: say that nothing follows."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in (data, *more):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02 if more else 0)
            if finish:
                writer.write_eof()
            return await reader.read()
        except (ConnectionResetError, BrokenPipeError):
            return b"reset"
        finally:
            writer.close()

    async def tunnel(self, where: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        """CONNECT; the status line."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return reader, writer, head.decode().partition("\r\n")[0]

    async def done(self) -> None:
        self.connections, self.violations = await self.egress.end()


@contextlib.asynccontextmanager
async def proxying(*hosts: str, names: Names | None = None, network: NetworkOptions = DIRECT) -> AsyncIterator[Proxy]:
    proxy = Proxy(hosts, names, network)
    proxy.egress.begin()
    try:
        yield proxy
        await proxy.done()
    finally:
        proxy.egress.close()


class Server:
    """A server on loopback that keeps what it was sent, and answers with `answer`."""

    def __init__(self, address: str = "127.0.0.2", answer: bytes | None = None) -> None:
        self.address = address
        self.answer = answer
        self.port = 0
        self.heard: list[bytes] = []
        self.names: list[str | None] = []  # of TLS

    @property
    def at(self) -> str:
        return f"{self.address}:{self.port}"


@contextlib.asynccontextmanager
async def serving(
    answer: bytes | None = None,
    *,
    address: str = "127.0.0.2",
    port: int = 0,
    greet: bytes = b"",
    tls: Path | None = None,
    until: bytes = b"\r\n\r\n",
) -> AsyncIterator[Server]:
    """Answers everything that ends in `until` with `answer` (None: echoes), and says `greet` first.

    A fixed `port` needs an address that no other process uses: `own_network.own_address()`.
    """
    server = Server(address, answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.heard.append(b"")
        place = len(server.heard) - 1
        with contextlib.suppress(OSError, ssl.SSLError):
            writer.write(greet)
            while data := await reader.read(65536):
                server.heard[place] += data
                if server.answer is None:
                    writer.write(data)
                elif server.heard[place].endswith(until):
                    writer.write(server.answer)
                    if b"101 " not in server.answer:
                        break
                await writer.drain()
            await writer.drain()
        writer.close()

    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        context.sni_callback = lambda _, name, __: server.names.append(name)  # type: ignore[assignment, misc]  # a list's None is an answer
    made = await asyncio.start_server(serve, address, port, ssl=context)
    server.port = made.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        made.close()


def certificate(path: Path, *names: str) -> Path:
    """A key and a certificate in one file, that vouches for itself and for `names`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    told: list[x509.GeneralName] = []
    for name in names:
        try:
            told.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            told.append(x509.DNSName(name))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName(told), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path
