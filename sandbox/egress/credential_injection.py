"""What the runner lends the proxy: headers for requests that a credential covers, and the keys to hosts that it opens.

Plain callables: where a credential comes from, and the type that guards it, is the runner's own business. A value is
here only for as long as one request needs it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from sandbox.backend import SandboxUnavailable

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class InjectedHeader:
    """One header that goes with one request. `credential`: its name, for the record.

    `masks`: spellings of the value that an answer must not bring back.
    """

    credential: str
    header: str
    value: str = field(repr=False)
    masks: tuple[bytes, ...] = field(default=(), repr=False)

    def hide(self, data: bytes) -> bytes:
        """`data` with stars of the same length for each of `masks`."""
        for mask in self.masks:
            data = data.replace(mask, b"*" * len(mask))
        return data

    def mask(self) -> "Mask":
        """For an answer that comes in pieces."""
        return Mask(self)


@dataclass(frozen=True, slots=True)
class Broker:
    """For the commands of one set of terms. A host is in the form of `host_name`, a path without its query.

    `secure` says whether what is asked of a host and port in the open goes on over TLS.
    `asks` gives what is added to a request by (host, port, method, path), if anything. Raises Failed.
    `opens` gives the certificate by which the TLS of a host and port is opened, or None: then it is passed on unopened.
    `trust` gives what a server's certificate is checked by. `rejected` is told that a server did not take a credential.
    """

    secure: Callable[[str, int], bool]
    asks: Callable[[str, int, str, str], Awaitable[InjectedHeader | None]]
    opens: Callable[[str, int], "ssl.SSLContext | None"]
    trust: Callable[[], "ssl.SSLContext"]
    rejected: Callable[[str], None]


InjectorFactory = Callable[[tuple[str, ...]], Broker]  # from the names of credentials, as Terms have them


def injector_for(names: tuple[str, ...], lend: InjectorFactory | None) -> Broker:
    """What `lend` gives. Raises SandboxUnavailable where nobody does: terms are granted exactly, or not at all."""
    if lend is None:
        what = f"no credential can be added here, and the command would get {', '.join(names)}"
        fix = "take it out of the configuration, or run the command under T1, T2 or a container"
        raise SandboxUnavailable(Problem(what, "nothing in this program holds it", fix))
    return lend(names)


class Mask:
    """Bytes in pieces, with every one of the masks hidden. Only what is there byte for byte is found.

    What may be the beginning of one is held back until more is known.
    """

    def __init__(self, added: InjectedHeader) -> None:
        self._added = added
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be passed on now."""
        data = self._added.hide(self._held + data)
        size = max((_begun(data, mask) for mask in self._added.masks), default=0)
        self._held = data[len(data) - size :]
        return data[: len(data) - size]

    def end(self) -> bytes:
        """The rest."""
        held, self._held = self._held, b""
        return held


def _begun(data: bytes, mask: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `mask`."""
    start = max(0, len(data) - len(mask) + 1)
    while (start := data.find(mask[:1], start)) >= 0:
        if mask.startswith(data[start:]):
            return len(data) - start
        start += 1
    return 0
