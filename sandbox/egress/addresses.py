"""The addresses to which the proxy connects: public ones, and under a `private` rule also local and private networks.

The lists follow the IANA registries of special-purpose addresses (RFC 6890 and its successors). They are kept here,
because the classification in the standard library has changed between versions of Python.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

NAT64_LENGTH = 96  # bits of a translated IPv6 range: the IPv4 address follows (RFC 6052, 2.2)


def _networks(*rows: tuple[str, str]) -> tuple[tuple[IPv4Network | IPv6Network, str], ...]:
    return tuple((ip_network(text), words) for text, words in rows)


# fmt: off
# Metadata services of clouds, which give every guest credentials of the machine. No rule allows these addresses.
# SOURCE: each provider's documentation of its metadata service, and that of cloud-init's data sources. All other known
# services have addresses in 169.254.0.0/16 or fe80::/10 (OpenStack fe80::a9fe:a9fe), which are refused below.
_METADATA = _networks(
    ("169.254.169.254/32", "most clouds"),
    ("169.254.170.2/32",   "AWS ECS: credentials of the task"),
    ("169.254.170.23/32",  "AWS EKS"),
    ("169.254.42.42/32",   "Scaleway"),
    ("169.254.0.23/32",    "Tencent"),
    ("169.254.10.10/32",   "Tencent"),
    ("100.100.100.200/32", "Alibaba"),
    ("100.96.0.96/32",     "Volcengine"),
    ("100.80.80.80/32",    "UCloud"),
    ("168.63.129.16/32",   "Azure's wire server: a public address that leads to the machine's host"),
    ("192.0.0.192/32",     "Oracle"),
    ("fd00:ec2::/32",      "AWS"),
    ("fd20:ce::/64",       "Google"),
    ("fd00:42::/32",       "Scaleway"),
    ("fd00:c1::/32",       "Oracle"),
    ("fd00:a9fe:a9fe::/48", "Akamai (Linode)"),
    ("fd00:100::/32",      "Alibaba"),
)
_ISATAP = (0x00005EFE, 0x02005EFE)  # RFC 5214: an IPv4 address follows, in any network
_LINK_LOCAL_WORD = 0xA9FE  # `169.254` as the last but one part of an IPv6 address of a metadata service
_PRIVATE = _networks(
    ("127.0.0.0/8",      "this machine itself"),
    ("10.0.0.0/8",       "an address of a private network"),
    ("172.16.0.0/12",    "an address of a private network"),
    ("192.168.0.0/16",   "an address of a private network"),
    ("100.64.0.0/10",    "an address of a provider's private network"),
    ("::1/128",          "this machine itself"),
    ("fc00::/7",         "an address of a private network"),
)
_NEVER = _networks(
    ("0.0.0.0/8",        "an unspecified address, which may lead to this machine"),
    ("169.254.0.0/16",   "a link-local address"),
    ("192.0.0.0/24",     "a reserved address"),
    ("192.0.2.0/24",     "an address for documentation only"),
    ("192.31.196.0/24",  "a reserved address"),
    ("192.52.193.0/24",  "a reserved address"),
    ("192.88.99.0/24",   "an address of a relay to IPv6"),
    ("192.175.48.0/24",  "a reserved address"),
    ("198.18.0.0/15",    "an address for benchmarks only"),
    ("198.51.100.0/24",  "an address for documentation only"),
    ("203.0.113.0/24",   "an address for documentation only"),
    ("224.0.0.0/4",      "a multicast address"),
    ("240.0.0.0/4",      "a reserved or broadcast address"),
    ("::/128",           "an unspecified address, which may lead to this machine"),
    ("::ffff:0:0/96",    "an IPv4 address inside IPv6"),
    ("::ffff:0:0:0/96",  "an IPv4 address inside IPv6"),
    ("::/96",            "an IPv4 address inside IPv6"),
    ("64:ff9b::/96",     "an IPv4 address behind a translator (NAT64)"),
    ("64:ff9b:1::/48",   "an IPv4 address behind a translator (NAT64)"),
    ("2001::/32",        "an IPv4 address behind a tunnel (Teredo)"),
    ("2001::/23",        "a reserved address"),
    ("2001:db8::/32",    "an address for documentation only"),
    ("2002::/16",        "an IPv4 address behind a tunnel (6to4)"),
    ("2620:4f:8000::/48", "a reserved address"),
    ("3fff::/20",        "an address for documentation only"),
    ("fe80::/10",        "a link-local address"),
    ("fec0::/10",        "an address of a private network (old site-local)"),
    ("ff00::/8",         "a multicast address"),
)
# fmt: on
_RESERVED = "a reserved address"
_IS_METADATA = "an address of a cloud's metadata service, which gives out credentials"
# No translated range may overlap these: this machine itself, link-local, multicast and reserved addresses.
_CLOSED = tuple(
    ip_network(text)
    for text in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/96", "::ffff:0:0/96",
                 "fe80::/10", "ff00::/8")
)  # fmt: skip
_UNICAST = IPv6Network("2000::/3")  # the only addresses that are assigned for the internet


def refusal(text: str, *, private: bool) -> str | None:
    """Return the reason not to connect to the address `text`, in words; None if there is no reason.

    `private` is True if the rule allows this machine and private networks. An interface scope (`%eth0`) is refused.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return "not a valid address"
    own = _words_of(address, _PRIVATE)
    # Clouds give metadata services unique local IPv6 addresses that end in 169.254.x.x.
    spelled = address.version == 6 and own is not None and int(address) >> 16 & 0xFFFF == _LINK_LOCAL_WORD
    if spelled or _words_of(address, _METADATA):
        return _IS_METADATA
    if isinstance(address, IPv4Address):
        return _words_of(address, _NEVER) or (None if private else own)
    if address.scope_id is not None:
        return "an address with an interface scope"
    never = None if own is not None else _words_of(address, _NEVER) or (None if address in _UNICAST else _RESERVED)
    if never:
        return never
    # An address of any network may end in an IPv4 address: behind a translator, which may have a prefix of any network
    # (RFC 6052), or a tunnel (RFC 5214).
    if _words_of(IPv4Address(int(address) & 0xFFFFFFFF), _METADATA):
        return _IS_METADATA
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return "an IPv4 address behind a tunnel (ISATAP)"
    return None if private else own


def translated_network(text: str) -> IPv4Network | IPv6Network:
    """Return the range `text` of a translator or an intercepting proxy. Raises ValueError with the reason in words for
    a range in which no address may be connected to.
    """
    try:
        network = ip_network(text)
    except ValueError:
        raise ValueError("it is not an address range, or its address has bits beyond the length") from None
    if isinstance(network, IPv6Network):
        if network.prefixlen != NAT64_LENGTH:
            raise ValueError(f"an IPv6 range must have {NAT64_LENGTH} bits: an IPv4 address follows, which is checked")
        if any(network.overlaps(own) for own in _CLOSED if isinstance(own, IPv6Network)):
            raise ValueError("it contains addresses of this machine, of a metadata service, or link-local ones")
        return network
    if network.prefixlen < 8 or any(network.overlaps(own) for own in _CLOSED if isinstance(own, IPv4Network)):
        raise ValueError("it contains addresses of this machine, multicast, reserved or link-local ones")
    return network


def translated_refusal(
    text: str, networks: Iterable[IPv4Network | IPv6Network], *, private: bool
) -> tuple[bool, str | None]:
    """Return `(True, REASON)` if the address `text` lies in one of the translated `networks`, else `(False, None)`.

    REASON is None if the address may be connected to. A metadata service is always refused, and of an IPv6 address the
    IPv4 address at its end is checked as if it were connected to directly.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False, None
    if not any(address in network for network in networks):
        return False, None
    if _words_of(address, _METADATA):
        return True, _IS_METADATA
    if isinstance(address, IPv4Address):
        return True, None
    embedded = str(IPv4Address(int(address) & 0xFFFFFFFF))
    why = refusal(embedded, private=private)
    return True, f"{why} ({embedded}, behind a translator)" if why else None


def can_be_private(text: str) -> bool:
    """Return True if a `private` rule would allow the address `text` and any other rule would not."""
    return refusal(text, private=False) is not None and refusal(text, private=True) is None


def _words_of(
    address: IPv4Address | IPv6Address, networks: tuple[tuple[IPv4Network | IPv6Network, str], ...]
) -> str | None:
    """Return the words about the first network that contains `address`. No network contains an address of the other
    version.
    """
    return next((words for network, words in networks if address in network), None)
