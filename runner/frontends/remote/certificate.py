"""The certificate of remote access: the user's own, or a self-signed one in the private state folder.

THREAT T285: without TLS, everyone on the way could read the sessions and the tokens, and answer questions. A
self-signed certificate is kept, so that a user who compared its fingerprint once notices another one.
"""

import datetime
import ipaddress
import os
import ssl
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.problems import Exit, Stopped
from runner.text.phrases import os_reason

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

FILE = "remote-certificate.pem"  # the key and the certificate
_LIVES = datetime.timedelta(days=397)  # the longest that browsers accept
_RENEWED = datetime.timedelta(days=30)  # before its end, at a start
_SKEW = datetime.timedelta(hours=1)  # by which the clock of a phone may be late
_LARGEST = 1 << 20  # bytes of a file


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A certificate that is ready to be served.

    Attributes:
        context: The TLS context with it.
        fingerprint: Its SHA-256 fingerprint as browsers show it.
        names: The host names in it, in lower case, without those with a wildcard.
        own: True if the user named it.
    """

    context: ssl.SSLContext
    fingerprint: str
    names: frozenset[str]
    own: bool


def named_certificate(certificate: str, key: str) -> ServerCertificate:
    """Return the certificate in the file `certificate`, with the key in the file `key`. Raise Stopped."""
    try:
        with open(key, "rb") as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077:
                raise _unfit(f"--tls-key {key}", "other users may read it", f"run `chmod 600 {key}`")
        with open(certificate, "rb") as file:
            data = file.read(_LARGEST)
    except OSError as error:
        name = f"--tls-key {key}" if error.filename == key else f"--tls-cert {certificate}"
        raise _unfit(name, os_reason(error), "check the path and the owner of the file") from None
    context = _context()
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
        return _described(context, data, own=True)
    except (ssl.SSLError, ValueError, OSError):
        why = "the files are no certificate with its key in the PEM format, or the key has a password"
        raise _unfit(f"--tls-cert {certificate}", why, "name the chain of certificates and its unlocked key") from None


def kept_certificate(folder: Path, names: Iterable[str], now: datetime.datetime) -> ServerCertificate:
    """Return the self-signed certificate in `folder` for `names`, which are host names and IP addresses.

    A new one is made if there is none, if it ends within 30 days, if it lacks one of the names, or if it cannot be
    read. Raise Stopped if it cannot be stored.
    """
    path, wanted = folder / FILE, frozenset(names)
    data = _kept(path)
    if data is None or not _serves(data, wanted, now):
        data = _made(wanted, now)
        _store(path, data)
    context = _context()
    try:
        context.load_cert_chain(path)
        return _described(context, data, own=False)
    except (ssl.SSLError, ValueError, OSError):
        raise _unfit(f"the certificate {path}", "it is damaged", "remove it, so that a new one is made") from None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Refuse a key with a password. Without this function, OpenSSL would ask for it at the terminal."""
    raise ValueError("the key has a password")


def _described(context: ssl.SSLContext, data: bytes, *, own: bool) -> ServerCertificate:
    """Return the certificate with what it says about itself. Raise ValueError."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    found = x509.load_pem_x509_certificates(data)[0]
    digest = found.fingerprint(hashes.SHA256()).hex().upper()
    fingerprint = ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))
    try:
        given = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = given.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = []
    return ServerCertificate(context, fingerprint, frozenset(name.lower() for name in names if "*" not in name), own)


def _kept(path: Path) -> bytes | None:
    """Return the content of the file if it is a file of this user alone, or None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return None  # another user may have read the key
        return file.read(_LARGEST)


def _serves(data: bytes, wanted: frozenset[str], now: datetime.datetime) -> bool:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(data)[0]
        given = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    addresses = map(str, given.get_values_for_type(x509.IPAddress))
    has = {*given.get_values_for_type(x509.DNSName), *addresses}
    return wanted <= has and found.not_valid_before_utc <= now and now + _RENEWED < found.not_valid_after_utc


def _made(names: frozenset[str], now: datetime.datetime) -> bytes:
    """Return a new key and a self-signed certificate for `names` as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ringfence remote access")])
    used = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIVES)
        .add_extension(x509.SubjectAlternativeName([_general(each) for each in sorted(names)]), critical=False)
        # SAFETY: not an authority. A user who trusts this certificate trusts it for its own names alone.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**used), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return secret + certificate.public_bytes(pem)


_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _general(name: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _store(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fresh.unlink(missing_ok=True)  # left by a killed process with the same id
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.rename(fresh, path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise _unfit(
            f"the certificate {path}", os_reason(error), "check the disk and the owner of the folder"
        ) from None


def _unfit(name: str, why: str, fix: str) -> Stopped:
    return Stopped(Problem(f"`{name}` cannot be used", why, fix), Exit.USAGE)
