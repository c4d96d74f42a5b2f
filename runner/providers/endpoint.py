"""Address of a provider, and limits on the time of requests."""

import ipaddress
from typing import ClassVar
from urllib.parse import urlsplit

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.messages import ProviderError
from runner.problems import Exit


class SetupError(ProviderError):
    """A provider cannot be opened as asked: its name, model, base URL or script is wrong. Nothing was sent."""

    exit_code: ClassVar[int] = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `read` is the longest silence inside an answer, `total` the longest whole answer."""

    connect: float = 10.0
    read: float = 300.0
    total: float = 3600.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL that is safe to send a key to: https, or this machine; no credentials, query or fragment in it."""

    url: str  # without a trailing slash
    host: str
    secure: bool
    loopback: bool


def parse_endpoint(text: str) -> Endpoint:
    """Parse a base URL. Raises SetupError, which never quotes a URL that contains credentials."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _refused("it is not a URL") from None
    if parts.username is not None or parts.password is not None:
        raise _refused(
            "it has a user name or password in it, which logs would keep",
            "remove the part before `@`, and give the key through the environment or the keyring",
        )
    if parts.query or parts.fragment:
        raise _refused("it has a query (`?`) or a fragment (`#`)", "remove that part")
    if parts.scheme not in ("http", "https") or not host:
        raise _refused("it does not start with `https://` and a host")
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in host + parts.path):
        raise _refused("it has a blank, a backslash or an unprintable character")
    loopback = _is_loopback(host)
    if parts.scheme == "http" and not loopback:
        raise _refused(
            f"`http://{host}` would carry the key and every prompt unencrypted",
            "use `https://`, or a tunnel that ends on `localhost`",
        )
    shown = f"[{host}]" if ":" in host else host
    url = f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    return Endpoint(url, host, parts.scheme == "https", loopback)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # An IPv4-mapped IPv6 address counts as loopback since Python 3.13; such addresses of servers are not used.
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def _refused(why: str, fix: str = "write it like `https://host/v1`") -> SetupError:
    return SetupError(Problem("the provider's base URL cannot be used", why, fix))
