"""The limit of wrong tokens: after a few, an address is refused for a time that doubles with each further one."""

import ipaddress
from dataclasses import dataclass

FREE = 5  # wrong tokens without a wait
FIRST_WAIT = 30.0  # seconds
LONGEST_WAIT = 900.0  # seconds
_FORGOTTEN = 3600.0  # seconds without a wrong token after which an address starts again
_MOST = 1024  # addresses that are remembered


@dataclass(slots=True)
class _Count:
    wrong: int = 0
    last: float = 0.0
    until: float = 0.0


class WrongTokens:
    """The wrong tokens of each address. An IPv6 network of 64 bits counts as one address: it belongs to one user.

    THREAT T283: guessing is hopeless already, because a token has 256 random bits. The limit keeps the log short and
    makes a program that tries tokens visible.
    """

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}

    def wait(self, address: str, now: float) -> float:
        """Return the seconds for which `address` is refused from `now` on; 0 if it is not refused."""
        count = self._counts.get(network_of(address))
        return max(count.until - now, 0.0) if count is not None else 0.0

    def add(self, address: str, now: float) -> None:
        """Count one wrong token of `address`."""
        network = network_of(address)
        count = self._counts.pop(network, None)
        if count is None or now - count.last > _FORGOTTEN:
            count = _Count()
        count.wrong, count.last = count.wrong + 1, now
        if count.wrong >= FREE:
            count.until = now + min(FIRST_WAIT * 2 ** min(count.wrong - FREE, 16), LONGEST_WAIT)
        self._counts[network] = count  # at the end: the first one is the oldest
        if len(self._counts) > _MOST:
            del self._counts[next(iter(self._counts))]


def network_of(address: str) -> str:
    """Return the network of an address that counts as one: the address itself for IPv4, 64 bits for IPv6."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, 64), strict=False))
