"""Host patterns of the users' rules: the hosts that a pattern opens, and those that it forbids."""

from collections.abc import Iterable
from functools import lru_cache

from policy.model.frozen import replace
from policy.model.glob import glob
from policy.model.host_rule import HostRule, host_rule
from policy.model.host_words import names_private_network

# Every host that is not on this machine or in a private network, in rules of the layer TYPED. In a rule of a file, this
# pattern opens nothing.
PUBLIC = "*"


def opens(patterns: Iterable[str], wanted: str) -> tuple[str, ...]:
    """Return the part of the host `wanted` (in the form of Terms) that the allowing `patterns` open: `wanted`
    with the ports, methods and path of the pattern.

    Empty if no pattern covers the whole host and one of its ports.
    """
    target = _rule(wanted)
    found = (_common(rule, target) for text in patterns if (rule := _rule(text)) is not None) if target else ()
    return tuple(dict.fromkeys(str(rule) for rule in found if rule is not None))


def opens_public(wanted: str) -> tuple[str, ...]:
    """Return the host `wanted` (in the form of Terms) if it names neither this machine nor a private network."""
    target = _rule(wanted)
    known = target is not None and not target.private and not names_private_network(target.host)
    return (str(target),) if known else ()


def contains(patterns: Iterable[str], wanted: str) -> bool:
    """Return True if one of `patterns` permits everything that the entry `wanted` of Terms permits."""
    target = _rule(wanted)
    rules = [rule for text in patterns if (rule := _rule(text)) is not None]
    return target is not None and any(_within(target, rule) for rule in rules)


def _within(inner: HostRule, outer: HostRule) -> bool:
    below = outer.host.startswith("*.") and inner.host.endswith(outer.host[1:]) and len(inner.host) >= len(outer.host)
    folder = outer.prefix.rstrip("/") + "/"
    return (
        (inner.host == outer.host or below)
        and (not outer.ports or (bool(inner.ports) and set(inner.ports) <= set(outer.ports)))
        and (not outer.methods or (bool(inner.methods) and set(inner.methods) <= set(outer.methods)))
        and (not outer.prefix or inner.prefix == outer.prefix or inner.prefix.startswith(folder))
        and (outer.private or not inner.private)
    )


def meets(pattern: str, wanted: str) -> bool:
    """Return True if `pattern`, which forbids or asks, may be about the host `wanted`.

    `*.x.org` is every host below x.org; `*` elsewhere is a part of one name. A port in the pattern must be among those
    that would be opened. `wanted` may itself be `*.NAME`.
    """
    target = _rule(wanted)
    if target is None:
        return True  # not in the form of Terms, so its meaning is unknown
    name, port = _apart(pattern)
    if port and target.ports and int(port) not in target.ports:
        return False
    host = target.host.strip("[]")
    if host.startswith("*."):
        below = host[2:]
        return _fits(name, f"x.{below}") or name.endswith(f".{below}") or _overlap(name, below)
    return _fits(name, host)


def _overlap(name: str, below: str) -> bool:
    """Return True if a pattern with wildcards may match a host below `below`."""
    labels, wanted = name.split("."), below.split(".")
    shorter = min(len(labels), len(wanted))
    return ("*" in name or "?" in name) and all(map(glob, wanted[-shorter:], labels[-shorter:]))


def _fits(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    labels, wanted = host.split("."), pattern.split(".")
    return len(labels) == len(wanted) and all(map(glob, labels, wanted))


def _apart(pattern: str) -> tuple[str, str]:
    """Return the name, without brackets and the final dot, and the port."""
    if pattern.startswith("["):
        name, _, rest = pattern[1:].partition("]")
        return name, rest[1:] if rest[1:].isdigit() else ""
    name, mark, port = pattern.rpartition(":")
    if mark and port.isdigit() and ":" not in name:
        return name.rstrip("."), port
    return pattern.rstrip("."), ""


def _common(rule: HostRule, wanted: HostRule) -> HostRule | None:
    below = rule.host.startswith("*.") and wanted.host.endswith(rule.host[1:]) and len(wanted.host) >= len(rule.host)
    if rule.host != wanted.host and not below:
        return None
    ports = rule.ports or wanted.ports
    if rule.ports and wanted.ports and not (ports := tuple(port for port in wanted.ports if port in rule.ports)):
        return None
    return replace(wanted, ports=ports, methods=rule.methods, prefix=rule.prefix, private=rule.private)


@lru_cache(maxsize=2048)
def _rule(text: str) -> HostRule | None:
    found = host_rule(text)
    return found if isinstance(found, HostRule) else None
