"""The certificate authority of a session with intercepted TLS, which exists only as long as the session.

Its key is only in the memory of this process. It is valid for the hosts of the credentials with `intercept` and their
subdomains, for no other hosts (RFC 5280, 4.2.1.10), and for a week at most.
"""

import datetime
import ipaddress
import os
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandbox.egress.tls import ALPN

_LIVES = datetime.timedelta(days=7)
_SKEW = datetime.timedelta(minutes=5)
_STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_LONGEST = 4 << 20  # bytes of a whole store
CERTIFICATES = 64  # certificates at one time: below `*.example.org` a command can name hosts without end


class Authority:
    """A certificate authority for `hosts`, as in rules: `*.example.org` matches all subdomains."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"ringfence session {os.urandom(4).hex()}")])
        self._serving: dict[str, ssl.SSLContext] = {}
        self._until = datetime.datetime.now(datetime.UTC) + _LIVES
        usage = dict.fromkeys(_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
        self.certificate = self._signed(
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(_only(hosts), critical=True)
        )

    def pem(self) -> bytes:
        """Return the certificate of the authority for clients that should trust it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def serving(self, host: str) -> ssl.SSLContext:
        """Return the TLS context of a server named `host`."""
        context = self._serving.pop(host, None) or self._context(host)
        self._serving[host] = context  # ordered by last use, the latest at the end
        if len(self._serving) > CERTIFICATES:
            del self._serving[next(iter(self._serving))]
        return context

    def _context(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
        subject = x509.Name([])
        made = self._signed(
            self._builder(subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName([_general(host)]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # SAFETY: memfd_create(2): a file that has no name and is in no folder. OpenSSL takes keys from files alone.
        handle = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            os.write(handle, secret + made.public_bytes(serialization.Encoding.PEM))
            context.load_cert_chain(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(self._until)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self._key, hashes.SHA256())


_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _only(hosts: Iterable[str]) -> x509.NameConstraints:
    """Return the constraints that limit an authority to `hosts` and their subdomains.

    INVARIANT: the key of the authority is of no use for another host. A kind of name that no constraint mentions is not
    constrained (RFC 5280, 4.2.1.10), so the kind that `hosts` does not have is excluded; an empty name is every name.
    """
    permitted: list[x509.GeneralName] = []
    for host in hosts:
        bare = host.removeprefix("*.").strip("[]")
        try:
            permitted.append(x509.IPAddress(ipaddress.ip_network(bare)))
        except ValueError:
            permitted.append(x509.DNSName(bare))
    excluded: list[x509.GeneralName] = []
    if not any(isinstance(each, x509.IPAddress) for each in permitted):
        excluded += [x509.IPAddress(ipaddress.ip_network(every)) for every in ("0.0.0.0/0", "::/0")]
    if not any(isinstance(each, x509.DNSName) for each in permitted):
        excluded.append(x509.DNSName(""))
    return x509.NameConstraints(permitted, excluded or None)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def client_context(authority: str = "") -> ssl.SSLContext:
    """Return the TLS context that verifies servers with the system's store (or `SSL_CERT_FILE`), or with the file
    `authority` of the user's configuration, over HTTP/1.1.
    """
    context = ssl.create_default_context(cafile=authority or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(ALPN)
    return context


def store(environ_file: str = "") -> bytes:
    """Return the certificates that programs on this machine trust, or empty bytes if none are found."""
    for path in filter(None, (environ_file, ssl.get_default_verify_paths().cafile or "", *_STORES)):
        try:
            text = Path(path).read_bytes()
        except OSError:
            continue
        if b"-----BEGIN CERTIFICATE-----" in text and b"PRIVATE KEY" not in text and len(text) <= _LONGEST:
            return text.rstrip() + b"\n"
    return b""
