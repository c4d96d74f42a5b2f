"""Which addresses the proxy connects to: public ones, and under a `private` rule this machine's and private networks'.

From the IANA registries of special-purpose addresses (RFC 6890 and its successors), as lists of our own: what the
standard library counts as private has changed between versions of Python.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# fmt: off
# What clouds answer to every guest: credentials of the machine. Never, whatever rule there is.
_METADATA = frozenset(map(ip_address, (
    "169.254.169.254",   # most clouds
    "169.254.170.2",     # AWS ECS: credentials of the task
    "169.254.170.23",    # AWS EKS
    "100.100.100.200",   # Alibaba
    "168.63.129.16",     # Azure's wire server: public by its number, the host's by its place
    "192.0.0.192",       # Oracle
    "fd00:ec2::254",     # AWS
    "fd00:ec2::23",      # AWS EKS
    "fd20:ce::254",      # Google
)))
_PRIVATE_4 = (
    ("127.0.0.0/8",      "this machine itself"),
    ("10.0.0.0/8",       "a private network"),
    ("172.16.0.0/12",    "a private network"),
    ("192.168.0.0/16",   "a private network"),
    ("100.64.0.0/10",    "a provider's private network"),
)
_NEVER_4 = (
    ("0.0.0.0/8",        "this machine, or no address"),
    ("169.254.0.0/16",   "a link-local address"),
    ("192.0.0.0/24",     "reserved"),
    ("192.0.2.0/24",     "for examples only"),
    ("192.31.196.0/24",  "reserved"),
    ("192.52.193.0/24",  "reserved"),
    ("192.88.99.0/24",   "a relay to IPv6"),
    ("192.175.48.0/24",  "reserved"),
    ("198.18.0.0/15",    "for measurements only"),
    ("198.51.100.0/24",  "for examples only"),
    ("203.0.113.0/24",   "for examples only"),
    ("224.0.0.0/4",      "a group of machines"),
    ("240.0.0.0/4",      "reserved, or everybody nearby"),
)
_PRIVATE_6 = (
    ("::1/128",          "this machine itself"),
    ("fc00::/7",         "a private network"),
)
_NEVER_6 = (
    ("::/128",           "this machine, or no address"),
    ("::ffff:0:0/96",    "an IPv4 address inside IPv6"),
    ("::ffff:0:0:0/96",  "an IPv4 address inside IPv6"),
    ("::/96",            "an IPv4 address inside IPv6"),
    ("64:ff9b::/96",     "an IPv4 address behind a translator"),
    ("64:ff9b:1::/48",   "an IPv4 address behind a translator"),
    ("2001::/32",        "an IPv4 address behind a tunnel (Teredo)"),
    ("2001::/23",        "reserved"),
    ("2001:db8::/32",    "for examples only"),
    ("2002::/16",        "an IPv4 address behind a tunnel (6to4)"),
    ("2620:4f:8000::/48", "reserved"),
    ("3fff::/20",        "for examples only"),
    ("fe80::/10",        "a link-local address"),
    ("fec0::/10",        "a private network of an old kind"),
    ("ff00::/8",         "a group of machines"),
)
# fmt: on
_UNICAST = IPv6Network("2000::/3")  # all that is handed out for the internet; the rest is not


def refusal(text: str, *, private: bool) -> str | None:
    """What is wrong with connecting to the address `text`, in words; None when nothing is.

    `private`: whether the rule allows this machine and private networks. An interface's scope (`%eth0`) is refused.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return "no address"
    if address in _METADATA:
        return "where clouds keep the credentials of a machine"
    if isinstance(address, IPv4Address):
        return _found(address, _NEVER[4]) or (None if private else _found(address, _PRIVATE[4]))
    if address.scope_id is not None:
        return "an address in one interface's scope"
    own = _found(address, _PRIVATE[6])
    if own is not None:
        return None if private else own
    return _found(address, _NEVER[6]) or (None if address in _UNICAST else "reserved")


def can_be_private(text: str) -> bool:
    """Whether a `private` rule would allow the address `text`, and another one does not."""
    return refusal(text, private=False) is not None and refusal(text, private=True) is None


_Networks = tuple[tuple[IPv4Network | IPv6Network, str], ...]


def _networks(rows: tuple[tuple[str, str], ...], kind: type[IPv4Network] | type[IPv6Network]) -> _Networks:
    return tuple((kind(text), words) for text, words in rows)


def _found(address: IPv4Address | IPv6Address, networks: _Networks) -> str | None:
    return next((words for network, words in networks if address in network), None)


_NEVER = {4: _networks(_NEVER_4, IPv4Network), 6: _networks(_NEVER_6, IPv6Network)}
_PRIVATE = {4: _networks(_PRIVATE_4, IPv4Network), 6: _networks(_PRIVATE_6, IPv6Network)}
