"""One entry of `Terms.hosts`: `[METHOD[,METHOD] ]HOST[:PORT|:*][/PATH-PREFIX][ private]`.

HOST is a name, `*.NAME` (every name below NAME, not NAME itself) or an IP address in canonical spelling, IPv6 in
brackets. Without a port, ports 80 and 443 are meant. METHOD and PATH-PREFIX restrict plain HTTP, where the proxy sees
them: an entry with one of them permits no tunnel. `private`: the host may be this machine or in a private network. Only
the user's own configuration may use `private`; the caller checks that.
"""

import re
from urllib.parse import unquote

from policy.model.frozen import dataclass
from policy.model.verdict import Problem

USUAL = (80, 443)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT", "MKCOL", "COPY", "MOVE")
LONGEST_NAME = 253  # RFC 1035, 2.3.4
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMERIC = re.compile(r"([0-9]+|0x[0-9a-f]*)\Z")
_PORT = re.compile(r"[1-9][0-9]{0,4}\Z")
_PREFIX = re.compile(r"/[A-Za-z0-9/._~!$&'()*+,=:@-]*\Z")  # RFC 3986, 3.3, without `%` and `;`
_BARE_SIX = re.compile(r"[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\Z")
_FIX = "write it like `example.org`, `*.example.org:8443` or `GET example.org/api`"


@dataclass(frozen=True, slots=True)
class HostRule:
    """One parsed entry of an allowlist.

    Attributes:
        host: the canonical host; a leading `*.` means every name below.
        ports: the permitted ports; empty for all.
        methods: the permitted methods of plain HTTP; empty for all.
        prefix: the permitted path prefix of plain HTTP; empty for all.
        private: True if the host may resolve to this machine or to a private network.
    """

    host: str
    ports: tuple[int, ...] = USUAL
    methods: tuple[str, ...] = ()
    prefix: str = ""
    private: bool = False

    def __str__(self) -> str:
        """Return the canonical text. Two rules are equal exactly if their canonical texts are. Parsing the text returns
        an equal rule.
        """
        methods = ",".join(self.methods) + " " if self.methods else ""
        port = "" if self.ports == USUAL else f":{self.ports[0]}" if self.ports else ":*"
        return f"{methods}{self.host}{port}{self.prefix}{' private' if self.private else ''}"

    @property
    def bound(self) -> bool:
        """Return True if the rule permits only some plain HTTP requests, and therefore no tunnel."""
        return bool(self.methods or self.prefix)

    def names(self, host: str, port: int) -> bool:
        """Return True if the rule is about this host (in the form of `host_name`) and port; methods and paths are
        ignored.
        """
        below = self.host.startswith("*.") and host.endswith(self.host[1:]) and len(host) >= len(self.host)
        return (host == self.host or below) and (not self.ports or port in self.ports)

    def meets(self, host: str, port: int, method: str = "", path: str = "") -> bool:
        """Return True if the rule permits a request with `method` for `path` (as sent, without the query), or a
        tunnel if both are empty.

        A path that servers may interpret in two ways matches no prefix.
        """
        if not self.names(host, port):
            return False
        if not self.bound:
            return True
        if not method or (self.methods and method not in self.methods):
            return False
        below = path == self.prefix or path.startswith(self.prefix.rstrip("/") + "/")
        return not self.prefix or (_certain(path) and below)


def host_rule(text: str) -> HostRule | Problem:
    """Return the rule that `text` states, or a Problem that explains the error."""
    words = text.split()
    private = len(words) > 1 and words[-1] == "private"
    words = words[:-1] if private else words
    methods: tuple[str, ...] = ()
    if len(words) == 2:
        methods = tuple(sorted(set(words[0].split(","))))
        for method in methods:
            if method not in METHODS:
                why = f"`{method}` is not a method that a rule can name"
                return _wrong(text, why, f"use one or more of {', '.join(METHODS)}")
    elif len(words) != 1:
        return _wrong(text, "it is not one host", _FIX)
    rest = words[-1]
    if "://" in rest:
        return _wrong(text, "it has a scheme", "remove the scheme: " + _FIX)
    if "?" in rest or "#" in rest:
        return _wrong(text, "only the path is compared, not the query or the fragment", "end it at the path")
    if "@" in rest.partition("/")[0]:
        return _wrong(text, "it contains a user name", _FIX)
    authority, slash, after = rest.partition("/")
    prefix = slash + after if after else ""
    if prefix and not (_PREFIX.match(prefix) and _certain(prefix)):
        return _wrong(text, "servers may read that path in two ways", "write it without `%`, `;`, `//`, `.` and `..`")
    if _BARE_SIX.match(authority):
        fix = "put an IPv6 address in brackets: `[2001:db8::1]`"
        return _wrong(text, "the end of the address is ambiguous", fix)
    host, port = _split(authority)
    ports: tuple[int, ...] = USUAL
    if port == "*":
        ports = ()
    elif port is not None:
        if not _PORT.match(port) or int(port) > 65535:
            return _wrong(text, f"`{port}` is not a port", "use a number from 1 to 65535, or `*` for all")
        ports = (int(port),)
    star = "*." if host.startswith("*.") else ""
    named = _name(host[len(star) :])
    if isinstance(named, Problem):
        return Problem(f"`{text}` is not a host that can be allowed", named.why, named.fix)
    if star and (named.startswith("[") or _NUMERIC.match(named.rpartition(".")[2])):
        return _wrong(text, "an address has no subdomains", "name the address itself")
    return HostRule(star + named, ports, methods, prefix, private)


def host_name(text: str) -> str | None:
    """Return the canonical spelling of a host name: lower case, without the final dot. None if `text` is not a host
    name.

    Numbers that some programs interpret as an address (`127.1`, `0x7f.0.0.1`, `2130706433`) are not host names.
    """
    found = _name(text) if text.isascii() else None
    return found if isinstance(found, str) else None


def authority(text: str) -> tuple[str, int | None] | None:
    """Return the host (in the form of `host_name`) and the port of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.

    The port is None if `text` has none. Returns None if `text` has another form.
    """
    host, port = _split(text)
    if port is not None and (not _PORT.match(port) or int(port) > 65535):
        return None
    name = host_name(host)
    return None if name is None else (name, int(port) if port else None)


def _split(text: str) -> tuple[str, str | None]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        return text, None
    return host, port


def _name(text: str) -> str | Problem:
    if text.startswith("[") and text.endswith("]"):
        return _six(text)
    if not text.isascii():
        written = _ascii(text)
        if written is None:
            return _wrong(text, "its letters can be read as more than one name", "write its ASCII form: `xn--...`")
        text = written
    name = text.lower()
    name = name[:-1] if name.endswith(".") and len(name) > 1 else name
    labels = name.split(".")
    if name == "*":
        return _wrong(text, "it matches the whole internet", "name the hosts that are meant")
    if len(name) > LONGEST_NAME or not all(_LABEL.match(label) for label in labels):
        return _wrong(text, "it is not a host name", _FIX)
    if _NUMERIC.match(labels[-1]):
        # As in browsers (WHATWG URL, "ends in a number"): such a name is an address or an error.
        numbers = [int(label) for label in labels if label.isdigit()]
        if len(numbers) == len(labels) == 4 and max(numbers) < 256 and name == ".".join(map(str, numbers)):
            return name
        return _wrong(text, "programs read this address differently", "write it like `192.0.2.1`")
    return name


def _six(text: str) -> str | Problem:
    import ipaddress  # imported here: it is slow to load, and few rules need it

    try:
        address = ipaddress.IPv6Address(text[1:-1])
    except ValueError:
        return _wrong(text, "it is not an IPv6 address", "write it like `[2001:db8::1]`")
    if address.scope_id is not None or address.ipv4_mapped is not None:
        why = "an address with an interface, or an IPv4 address inside IPv6, names no host of its own"
        return _wrong(text, why, "name the address without its interface, or the IPv4 address itself")
    return f"[{address.compressed}]"


def _ascii(text: str) -> str | None:
    """Return the ASCII form of a name (RFC 3490), or None if older and newer rules disagree: decoding must return the
    same name.
    """
    try:
        sent = text.encode("idna").decode("ascii")
        return sent.lower() if sent.encode("ascii").decode("idna").lower() == text.lower() else None
    except UnicodeError:
        return None


def _certain(path: str) -> bool:
    """Return True if every server interprets `path` in the same way.

    Uncertain are double decoding, `..;x/`, backslashes, empty parts, bytes that are not UTF-8 (a dot in two bytes,
    CVE-2008-2938), and letters that some servers convert to a dot or a slash.
    """
    whole = unquote(path, "latin-1")
    if not whole.isascii() and not _alone(whole):
        return False
    odd = any(char in "\\%\x7f" or char < " " for char in whole)
    if odd or "//" in whole or whole.count("/") != path.count("/") or not whole.startswith("/"):
        return False
    return not any(part.partition(";")[0] in (".", "..") for part in re.split("[/?#]", whole))


def _alone(whole: str) -> bool:
    """Return True if a non-ASCII path (one character for each byte) contains no character that resembles an ASCII
    mark.
    """
    import unicodedata  # imported here: few paths need it

    try:
        text = whole.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return False
    return not any(set(unicodedata.normalize("NFKC", char)) & set("./\\%;?#") for char in text if char > "~")


def _wrong(text: str, why: str, fix: str) -> Problem:
    return Problem(f"`{text}` is not a host that can be allowed", why, fix)
