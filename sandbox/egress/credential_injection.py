"""Credential injection by the proxy: headers for the requests that a credential covers, and TLS keys for its hosts.

The interface consists of plain callables, because the source of a credential and the type `Secret` belong to the
runner. This module holds a value only while one request needs it.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass, field
from sandbox.backend import SandboxUnavailable

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class InjectedHeader:
    """One header that is added to one request.

    Attributes:
        credential: Name of the credential, for the record.
        masks: Spellings of the value that an answer must not contain.
    """

    credential: str
    header: str
    value: str = field(repr=False)
    masks: tuple[bytes, ...] = field(default=(), repr=False)

    def hide(self, data: bytes) -> bytes:
        """Return `data` with each of `masks` replaced by stars of the same length."""
        for mask in self.masks:
            data = data.replace(mask, b"*" * len(mask))
        return data

    def mask(self) -> "CredentialMask":
        """Return a mask for an answer that arrives in pieces."""
        return CredentialMask(self)


@dataclass(frozen=True, slots=True)
class Broker:
    """The credential injector for the commands of one set of terms.

    A host has the form of `host_name`; a path has no query.

    Attributes:
        secure: Returns True if a plain request to this host and port is sent on over TLS.
        asks: Returns the header to add to a request by (host, port, method, path), or None. Raises Failed.
        opens: Returns the certificate by which TLS of this host and port is opened, or None to pass it on unopened.
        trust: Returns the TLS context that verifies a server's certificate.
        rejected: Called with the name of a credential that a server did not accept.
    """

    secure: Callable[[str, int], bool]
    asks: Callable[[str, int, str, str], Awaitable[InjectedHeader | None]]
    opens: Callable[[str, int], "ssl.SSLContext | None"]
    trust: Callable[[], "ssl.SSLContext"]
    rejected: Callable[[str], None]


InjectorFactory = Callable[[tuple[str, ...]], Broker]  # from the names of credentials, as Terms have them


def injector_for(names: tuple[str, ...], lend: InjectorFactory | None) -> Broker:
    """Return the injector for the credentials `names`. Raises SandboxUnavailable if there is no factory for them."""
    if lend is None:
        what = f"this sandbox cannot inject the credential {', '.join(names)} into requests"
        fix = "remove the credential from the configuration, or use T1, T2 or a container"
        raise SandboxUnavailable.of(what, "no credential injector is available for this sandbox", fix)
    return lend(names)


class CredentialMask:
    """A filter that hides every mask in a stream of pieces of bytes. Only exact byte sequences are found.

    A possible beginning of a mask is held back until the following bytes are known.
    """

    def __init__(self, added: InjectedHeader) -> None:
        self._added = added
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that may be passed on now."""
        data = self._added.hide(self._held + data)
        size = max((_begun(data, mask) for mask in self._added.masks), default=0)
        self._held = data[len(data) - size :]
        return data[: len(data) - size]

    def end(self) -> bytes:
        """Return the remaining bytes."""
        held, self._held = self._held, b""
        return held


def _begun(data: bytes, mask: bytes) -> int:
    """Return the number of bytes at the end of `data` that are a beginning of `mask`."""
    start = max(0, len(data) - len(mask) + 1)
    while (start := data.find(mask[:1], start)) >= 0:
        if mask.startswith(data[start:]):
            return len(data) - start
        start += 1
    return 0
