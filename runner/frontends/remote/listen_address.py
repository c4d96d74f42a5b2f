"""The address of `agent serve --listen`: its form, its socket, and the names under which pages may reach it."""

import ipaddress
import os
import re
import socket
from typing import Any

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.frontends.remote.attempts import network_of
from runner.problems import Exit, Stopped, usage
from runner.text.phrases import os_reason

MOST_CONNECTIONS = 160  # connections at one time, with and without a token
MOST_OF_NETWORK = 64  # of them from one address, or one IPv6 network
_BACKLOG = 32  # connections that wait to be accepted
_PORT = re.compile(r"[0-9]{1,5}")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))*", re.IGNORECASE)
_FORMS = "write `127.0.0.1:8443`, `[::1]:8443`, or only the port for 127.0.0.1"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An IP address and a port; port 0 is a free one.

    Attributes:
        ip: The address; `0.0.0.0` and `::` are all addresses of this machine.
        port: The port.
    """

    ip: IpAddress
    port: int

    def __str__(self) -> str:
        return f"{host_text(self.ip)}:{self.port}"

    @property
    def warning(self) -> str:
        """Return a warning if other machines can reach the address, or an empty string."""
        if self.ip.is_loopback:
            return ""
        which = "every network of this machine" if self.ip.is_unspecified else f"the network of {self.ip}"
        return (
            f"remote access listens on {self}, which other machines can reach through {which}. Every holder of a token "
            "can use it from there. Remove tokens that you do not need: `agent serve token list`"
        )


def host_text(ip: IpAddress) -> str:
    """Return an address as it is written in a URL."""
    return f"[{ip}]" if ip.version == 6 else str(ip)


def parse_address(text: str) -> ListenAddress:
    """Return the address in `text`. Raise a usage error.

    A host name other than `localhost` is refused: what it means can change, and with it who can connect.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        host = "127.0.0.1"
    if not _PORT.fullmatch(port) or int(port) > 65_535:
        raise usage(f"`--listen {text}` is not an address with a port", "a port is a number up to 65535", _FORMS)
    if host == "localhost":
        host = "127.0.0.1"
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        ip = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        why = "the host is not an IP address" if host else "an address before the port is missing"
        raise usage(f"`--listen {text}` cannot be used", why, _FORMS) from None
    if (ip.version == 6) is not bracketed or getattr(ip, "scope_id", None) is not None:
        raise usage(f"`--listen {text}` cannot be used", "IPv6 is written in brackets, without a zone", _FORMS)
    return ListenAddress(ip, int(port))


class LimitedListener(socket.socket):
    """A listening socket that closes new connections at once while too many are open.

    THREAT T286: a connection that says nothing lives for some seconds. Without the limit, one program could use up the
    descriptors of the process, which then reads neither tokens nor sessions. The limit for each network leaves room for
    the others.
    """

    _open: "list[tuple[str, socket.socket]]"

    def accept(self) -> "tuple[socket.socket, Any]":
        """Accept a connection within the limits. Raise BlockingIOError if none waits."""
        self._open = [each for each in getattr(self, "_open", ()) if each[1].fileno() >= 0]
        while True:
            connection, address = super().accept()
            network = network_of(address[0])
            if len(self._open) < MOST_CONNECTIONS and sum(network == each for each, _ in self._open) < MOST_OF_NETWORK:
                self._open.append((network, connection))
                return connection, address
            connection.close()


def listening(address: ListenAddress) -> LimitedListener:
    """Return a socket that listens at `address`. Raise Stopped, for example if the port is in use."""
    family = socket.AF_INET6 if address.ip.version == 6 else socket.AF_INET
    listener = LimitedListener(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # an IPv4 address is named separately
        listener.bind((str(address.ip), address.port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        fix = "choose another port, or end the program that uses it (`ss -ltnp`)"
        raise Stopped(Problem(f"`--listen {address}` cannot be used", os_reason(error), fix), Exit.USAGE) from None
    return listener


def checked_name(name: str) -> str:
    """Return a host name in lower case. Raise a usage error if it is not one."""
    if not _NAME.fullmatch(name) or name.replace(".", "").isdigit():
        raise usage(
            f"`--name {name}` is not a host name", "it has letters, digits, `-` and dots", "write the name only"
        )
    return name.lower()


def machine_name() -> str:
    """Return the host name of this machine, or an empty string if it has none that a certificate can contain."""
    name = os.uname().nodename.lower()
    return name if _NAME.fullmatch(name) and not name.replace(".", "").isdigit() else ""


def is_own_host(given: str, local: tuple[str, int], names: frozenset[str], standard_port: int) -> bool:
    """Return True if the header `Host` of a request names this server.

    `local` is the address and port at which the connection arrived.

    THREAT T282: the host must be that very IP address, or one of `names`. A name of another owner that resolves to this
    address (DNS rebinding) is none of them, and an IP address cannot be made to resolve to another one.
    """
    text = given.strip().lower()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(standard_port)
    if not _PORT.fullmatch(port) or int(port) != local[1]:
        return False
    if host in names:
        return True
    try:
        own = ipaddress.ip_address(local[0].partition("%")[0])
        said = ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        return False
    return said == own
