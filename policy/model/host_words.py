"""Hosts and local paths inside the words of network programs."""

import re
from collections.abc import Iterable

from policy.model.glob import late

ADDRESS = late(r"[A-Za-z0-9+.-]+://|([A-Za-z0-9_.-]+@)?[A-Za-z0-9_-][A-Za-z0-9_.-]+:(?!\\)")
LOGIN = late(r"[A-Za-z0-9_.+-]+@[A-Za-z0-9_.-]+:")
WHOLE_HOST = late(r"[A-Za-z0-9+.-]+://[^/?#]+[/?#]")
SENT_FILE = late(r"[^@<]*[@<]([^;]+)", re.DOTALL)  # `@path`, `name=@path;type=..`, `name@path`


# Default ports by scheme (IANA's list of service names). Web addresses are not included: a host without a port means 80
# and 443, because a server may redirect from the first to the second.
_PORTS = {
    "ssh": "22", "sftp": "22", "scp": "22", "git+ssh": "22", "ssh+git": "22", "git": "9418", "rsync": "873",
    "ftp": "21", "ftps": "990", "telnet": "23", "ldap": "389", "ldaps": "636", "smtp": "25", "smtps": "465",
    "imap": "143", "imaps": "993", "pop3": "110", "pop3s": "995", "mqtt": "1883", "dict": "2628", "gopher": "70",
    "socks4": "1080", "socks4a": "1080", "socks5": "1080", "socks5h": "1080",
}  # fmt: skip
_WEB = frozenset(["http", "https", "ws", "wss", "ftp", "ssh", "git"])
# libpq: these parameters name the host, not the authority before them.
_ELSEWHERE = late(r"[?&](host|hostaddr|port|service|servicefile)=")
_LOOPBACK = late(r"localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]")
_MAY_BE_LOOPBACK = late(r"localhost|127\.|\[::1\]")
_LISTENING = late(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[?::1?\]?|0\.0\.0\.0|\*)?")
_SLASHED = late(r"(https?|wss?|ftps?):/", re.IGNORECASE)
_DIGITS = late(r"[0-9]+")
_COPIED = late(r"([^@:/]*@)?(\[[^\]/]*\]|[^@:/\[\]]+):")  # `host:path`, as `scp` and Git parse it


def endpoint(text: str, port: str = "") -> str | None:
    """Return the host that `text` names, in the form of Terms: with the port that `text` writes or that its scheme
    implies.

    No port is added for http, https, ws and wss: a host without a port means 80 and 443. None for a local path; empty
    if the host is not certain. `port` is the port for a bare name: digits, `*` for any, or nothing for 80 and
    443.
    """
    scheme, found, rest = text.partition("://")
    if found:
        if scheme.lower() == "file":
            return None
        if scheme.lower().endswith("+srv") or (scheme.lower() not in _WEB and _ELSEWHERE.search(rest)):
            return ""
        named = _authority(rest)
        return _joined(*named, _PORTS.get(scheme.lower(), "")) if named else ""
    if _SLASHED.match(text):
        return ""  # some programs treat one slash as two
    if text.startswith((".", "/", "~")) or text[:6].lower() == "file:/":
        return None
    away = _COPIED.match(text)
    if away and (away[1] or port == "22"):
        double = text.startswith("::", away.end() - 1)  # a module of an rsync server
        return _joined(away[2], "", "873" if double else port or "22")
    named = _authority(text)
    return _joined(*named, port) if named else ""


def names_private_network(host: str) -> bool:
    """Return True if an entry of an allowlist names this machine or a private network, and does not contain `private`.

    A name that resolves to such an address is detected only when the proxy resolves it.
    """
    from policy.model.host_rule import HostRule, host_rule

    rule = host_rule(host)
    if not isinstance(rule, HostRule) or rule.private:
        return False
    name = rule.host.removeprefix("*.")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if not name.startswith("[") and not name.replace(".", "").isdigit():
        return False
    import ipaddress  # imported here: it is slow to load, and only addresses need it

    return not ipaddress.ip_address(name.strip("[]")).is_global


def names_loopback(host: str, private: Iterable[str]) -> bool:
    """Return True if `host` (as from `endpoint`) is the loopback by its literal name or address, and none of the
    entries `private` of an allowlist leads it to the loopback of the machine.
    """
    if not _MAY_BE_LOOPBACK.match(host):
        return False
    from policy.model.host_rule import HostRule, host_rule

    wanted = host_rule(host)
    if not isinstance(wanted, HostRule) or not _LOOPBACK.fullmatch(wanted.host):
        return False
    entries = (entry for text in private if isinstance(entry := host_rule(text), HostRule) and entry.private)
    return not any(
        entry.host == wanted.host and (not entry.ports or not wanted.ports or set(entry.ports) & set(wanted.ports))
        for entry in entries
    )


def listens_on_loopback(address: str) -> bool:
    """Return True if a server that listens on `address` (empty: on all addresses) is only reached from the sandbox."""
    return _LISTENING.fullmatch(address) is not None


def _authority(text: str) -> tuple[str, str] | None:
    """Return the name and the port of `[LOGIN@]NAME[:PORT][/..]`."""
    whole = re.split(r"[/?#]", text, maxsplit=1)[0]
    if "\\" in whole or "@" in text.partition("/")[0][len(whole) :]:
        return None  # programs disagree about the end of the host, and so about the login
    whole = whole.rpartition("@")[2]
    name, colon, port = whole.rpartition(":")
    if not colon or port.endswith("]"):
        return whole, ""
    return (name, port) if not port or _DIGITS.fullmatch(port) else None


def _joined(name: str, port: str, usual: str) -> str:
    from policy.model.host_rule import host_name, host_rule  # most commands name no host
    from policy.model.verdict import Problem

    known = host_name(name)
    port = port or usual
    if known is None:
        return ""
    rule = host_rule(f"{known}:{port}" if port else known)
    return "" if isinstance(rule, Problem) else str(rule)


def is_remote_path(text: str) -> bool:
    """Return True if `text` is `NAME:PATH`, a path on another machine or in a container, and not a local path."""
    before, found, _ = text.partition(":")
    return bool(found) and "/" not in before and bool(before)


_MOUNT = late(r"[a-z-]+(=|,|\Z)")


def mounted(text: str) -> tuple[str, bool]:
    """Return the local path of a mount option (empty for a named volume), and True if it is mounted read-only."""
    if _MOUNT.match(text) and "=" in text:
        fields = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
        source = next((fields[name] for name in ("source", "src") if name in fields), "")
        kept = [fields[name] for name in ("readonly", "ro") if name in fields]
        fixed = bool(kept) and all(value in ("", "true", "1") for value in kept)
        return source if fields.get("type") != "volume" or "/" in source else "", fixed
    source, _, rest = text.partition(":")
    options = rest.partition(":")[2].split(",")
    return source if source.startswith(("/", ".", "~")) else "", "ro" in options and "rw" not in options
