"""The HTTP address of a service that the user configures, such as a model provider or a collector of records."""

import ipaddress
from enum import StrEnum
from urllib.parse import urlsplit

from policy.model.frozen import dataclass


class AddressFault(StrEnum):
    """The reasons why a text is no address of a service. No reason quotes the text, which may contain a secret."""

    CREDENTIAL = "it has a user name or password in it, and secrets are not allowed here"
    QUERY = "it has a query (`?`) or a fragment (`#`)"
    NOT_HTTP = "it does not start with `https://` and a host"
    CHARACTER = "it has a blank, a backslash or an unprintable character"
    MALFORMED = "it is not a URL"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """An address without credentials, query and fragment.

    Attributes:
        secure: True for HTTPS.
        host: host in lower case; an IPv6 address has no brackets.
        port: port, or None for the default port.
        path: path without a slash at the end.
    """

    secure: bool
    host: str
    port: int | None
    path: str

    @property
    def in_clear(self) -> bool:
        """Return True if data to this address is not encrypted in the network: plain HTTP to another machine."""
        return not self.secure and not is_loopback(self.host)

    def __str__(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{shown}{f':{self.port}' if self.port else ''}{self.path}"


def read_address(text: str) -> HttpAddress | AddressFault:
    """Return the address in `text`, or the reason why the text is none."""
    try:
        parts = urlsplit(text)
        if parts.username is not None or parts.password is not None:
            return AddressFault.CREDENTIAL
        host, port = parts.hostname, parts.port
    except ValueError:
        return AddressFault.CREDENTIAL if "@" in text else AddressFault.MALFORMED
    if parts.query or parts.fragment:
        return AddressFault.QUERY
    if parts.scheme not in ("http", "https") or not host:
        return AddressFault.NOT_HTTP
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in text):
        return AddressFault.CHARACTER
    if port == 0:
        return AddressFault.MALFORMED
    return HttpAddress(parts.scheme == "https", host, port, parts.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Return True if connections to `host` stay on this machine: `localhost`, or an address of the loopback.

    A name such as `x.localhost` does not count: RFC 6761 reserves these names, but some resolvers ask a server for
    them.
    """
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # An IPv4-mapped IPv6 address is never accepted: `is_loopback` is True for such an address only since Python 3.13.
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None
