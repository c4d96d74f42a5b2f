"""The strict parser of HTTP/1 requests, so that no two programs on the way can read one request differently.

RFC 9112 defines the syntax. Where it lets a recipient be lenient (bare line feeds, folded lines, several lengths), this
parser refuses the request. The request for the server is written from the parsed fields, one request per connection.
"""

import re
from urllib.parse import unquote_plus

from policy.model.frozen import dataclass
from policy.model.host_rule import authority
from sandbox.egress.ledger import Failed, Malformed

LONGEST = 64 << 10  # bytes of a head
END = b"\r\n\r\n"
MOST_FIELDS = 200  # headers of one request
_LINE = re.compile(r"([A-Z][A-Z-]{0,30}) ([!-~]+) HTTP/1\.([01])\Z")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\Z")
_ABSOLUTE = re.compile(r"(?i:(http)://)([^/?#]*)([^#]*)\Z")
_ANY = re.compile(r"(?:(?i:https?)://([^/?#]+))?(/(?!/)[^?#]*)\Z")
_FOLD = re.compile(rb"\r\n[ \t]+")
_SPACED = re.compile(rb"(\r\n[^\s:]+)[ \t]+:")
_STATUS = re.compile(r"HTTP/1\.[01] ([1-5][0-9][0-9])( .*)?\Z")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?\r\n\Z")
# fmt: off
# RFC 9110, 7.6.1: headers for one connection only. The proxy writes Host, length and coding itself.
_HOP = frozenset((
    "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade", "content-length", "host", "http2-settings",
))
# With a header or a parameter of these kinds some servers use another method, host or path than that of the request
# line, or read from another place. No registry of such names exists, so every name that contains one of these words
# counts, except the listed headers of ordinary clients. SOURCE: RFC 7239; the documentation of Symfony, Rails, ASP.NET,
# IIS, Envoy, nginx, gunicorn (`SCRIPT_NAME`), Vault, Consul and Nomad; of object stores, for the sources of copies.
# `Destination` (RFC 4918) is not in the list: it is a path of the request, which is judged like the others.
_OVERRIDE_PARTS = (
    "method", "override", "rewrit", "forward", "original", "upstream", "backend", "sendfile",
    "request-target", "copy-source", "copy-from", "rename-source", "symlink-target", "object-manifest",
)
_OVERRIDE_ENDS = ("url", "uri", "path", "host", "authority", "hostname", "verb")
_OVERRIDE_STARTS = (
    "x-envoy-", "x-accel-", "x-real-", "x-script-", "script-name", "path-info",
    "x-vault-namespace", "x-consul-namespace", "x-consul-partition", "x-nomad-namespace",
)
_NO_OVERRIDES = (
    "access-control-request-method",  # a browser asks what another site may do
    "max-forwards",                   # how many proxies may pass the request on
    "mcp-method",                     # repeats the method in the body of a tool call
    "x-stainless-helper-method",      # the function of OpenAI's or Anthropic's library that was called
    "x-amz-meta-", "x-goog-meta-", "x-ms-meta-", "x-object-meta-", "x-container-meta-",  # kept with an object
)
_OVERRIDE_PARAMETER = re.compile(r"[_-]+(http[_-]?)?(method|verb)|\$?(x[_-])?http[_-]?method|.*method[_-]?override")
# fmt: on


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One parsed HTTP/1 request.

    Attributes:
        path: The path with the query as sent; empty for CONNECT.
        length: Bytes of the body; -1 for a body in chunks.
        host: The host of the request; empty if the request leaves the host to its tunnel.
        port: The port of the request.
    """

    method: str
    host: str
    port: int
    path: str
    fields: tuple[tuple[str, str], ...]
    length: int
    websocket: bool

    @property
    def bare(self) -> str:
        """Return the path without the query."""
        return self.path.partition("?")[0]

    @property
    def overridden(self) -> bool:
        """Return True if a header or query parameter makes some servers use another method, host or path.

        A method in a body (`_method` in a form) is not detected.
        """
        for parameter in re.split("[&;]", self.path.partition("?")[2]):
            name = unquote_plus(parameter.partition("=")[0]).strip().lower()
            # PHP reads `.`, blank and `[` in a name as `_`.
            if _OVERRIDE_PARAMETER.fullmatch(re.sub(r"[.\[ ]", "_", name)):
                return True
        return any(_overrides(name) for name, _ in self.fields)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return every path of the request, including the destination of a copy (RFC 4918, 10.3).

        The path of a destination is empty if it is uncertain or belongs to another host.
        """
        destinations = [value for name, value in self.fields if _plain_name(name) == "destination"]
        return (self.bare, *(self._on_this_host(value) for value in destinations))

    def _on_this_host(self, address: str) -> str:
        match = _ANY.match(address)
        if match is None or (match[1] and authority(match[1]) not in ((self.host, self.port), (self.host, None))):
            return ""
        return match[2]


def request(head: bytes, within: tuple[str, int] | None = None) -> HttpRequest:
    """Parse the complete head of a request. `within`: host and port of its tunnel, if any. Raises Malformed."""
    lines = _lines(head)
    if any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise Malformed("the request contains a bare CR, LF or NUL character")
    match = _LINE.match(lines[0])
    if match is None:
        raise Malformed("the request line is invalid")
    method, target, minor = match[1], match[2], match[3]
    fields = tuple(map(_field, lines[1:]))
    if len(fields) > MOST_FIELDS:
        raise Malformed("the request has too many headers", 431)
    host, port, path = _target(method, target, within)
    if method != "CONNECT":  # the Host header of CONNECT is not used; servers differ in which of two hosts counts
        hosts = _values(fields, "host")
        if len(hosts) > 1 or (minor == "1" and not hosts):
            raise Malformed("the request must have one Host header")
        where = authority(hosts[0]) if hosts else (host, port)
        if where is None or where[0] != host or (where[1] or (80 if within is None else port)) != port:
            raise Malformed("the Host header names another host or port than the request")
    length = _length(fields, minor)
    if method == "CONNECT" and length:
        raise Malformed("a CONNECT request has no body")
    tokens = [_plain_name(word.strip()) for value in _values(fields, "connection") for word in value.split(",")]
    upgrade = _values(fields, "upgrade")
    websocket = "upgrade" in tokens and [value.lower() for value in upgrade] == ["websocket"] and method == "GET"
    dropped = _HOP | set(tokens)
    forwarded = tuple((name, value) for name, value in fields if _plain_name(name) not in dropped)
    return HttpRequest(method, host, port, path, forwarded, length, websocket and not length)


def sent(request: HttpRequest, usual: int = 80, added: tuple[str, str] | None = None) -> bytes:
    """Return the head that is sent to the server, with all headers that the proxy adds.

    Args:
        usual: The port that the server assumes if none is named.
        added: A header that replaces every header that servers may read under its name. The answer is then requested
            without a content coding, so that the credential in it can be masked.
    """
    host = request.host if request.port == usual else f"{request.host}:{request.port}"
    lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {host}"]
    replaced = {_plain_name(added[0]), "accept-encoding"} if added else set()
    lines += [f"{name}: {value}" for name, value in request.fields if _plain_name(name) not in replaced]
    if added:
        lines += [f"{added[0]}: {added[1]}", "Accept-Encoding: identity"]
    if request.length < 0:
        lines.append("Transfer-Encoding: chunked")
    elif request.length or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {request.length}")
    # One request per connection, so that no further request can follow without being judged.
    lines += ["Connection: Upgrade", "Upgrade: websocket"] if request.websocket else ["Connection: close"]
    return "\r\n".join(lines).encode("latin-1") + END


def response(head: bytes, moved: tuple[str, str] = ("", "")) -> tuple[int, bytes]:
    """Return the status of a response, and its head for the client; the connection ends after it. Raises Failed.

    `moved` is a pair of URL prefixes: in the addresses of redirects the first is replaced by the second.
    """
    first, *lines = _lines(head)
    match = _STATUS.match(first)
    if match is None or any("\n" in line or "\r" in line or "\0" in line for line in (first, *lines)):
        raise Failed("the server's answer is not HTTP/1")
    status, forwarded = int(match[1]), [first]
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() in ("connection", "keep-alive"):
            continue
        located, place = name.lower() in ("location", "content-location"), value.strip()
        if located and moved[0] and f"{place}/".lower().startswith(moved[0]):
            line = f"{name}: {moved[1]}{place[len(moved[0]) :]}"
        forwarded.append(line)
    if status == 101:
        forwarded.append("Connection: Upgrade")
    elif status >= 200:
        forwarded.append("Connection: close")
    return status, "\r\n".join(forwarded).encode("latin-1") + END


def unfolded(head: bytes) -> bytes:
    """Return the head of a response without folded lines and without a space before a colon (RFC 9112, 5.1, 5.2)."""
    return _SPACED.sub(rb"\1:", _FOLD.sub(b" ", head))


def ends_with_connection(method: str, status: int, head: bytes) -> bool:
    """Return True if only the end of the connection tells where the answer with that head ends (RFC 9112, 6.3)."""
    if method == "HEAD" or status < 200 or status in (204, 304):
        return False
    fields = [line.lower().partition(":") for line in _lines(head)[1:]]
    coded = [value.strip(" \t") for name, _, value in fields if name == "transfer-encoding"]
    return not coded[-1].endswith("chunked") if coded else all(name != "content-length" for name, _, _ in fields)


def in_chunks(head: bytes) -> bool:
    """Return True if the body of the response with this head is chunked.

    Raises Failed for another transfer coding: none was requested (RFC 9112, 7.4), and its data cannot be masked.
    """
    lines = [line.lower() for line in _lines(head)]
    values = [line.partition(":")[2] for line in lines if line.startswith("transfer-encoding:")]
    words = [word.strip(" \t") for word in ",".join(values).split(",")]
    codings = [word for word in words if word not in ("", "identity")]
    if codings not in ([], ["chunked"]):
        raise Failed("the server's answer has a transfer coding that was not requested")
    return bool(codings)


def chunk_size(line: bytes) -> int:
    """Return the size of a chunk in bytes, from its first line. Raises Malformed."""
    match = _SIZE.match(line)
    if match is None:
        raise Malformed("the size of a chunk is invalid")
    return int(match[1], 16)


def looks_like(data: bytes) -> bool | None:
    """Return True if the first bytes of a client are an HTTP request; None while they could still become one."""
    word, space, rest = data[:64].partition(b" ")
    if len(word) > 31 or not re.fullmatch(rb"[A-Z][A-Z-]*", word):
        return False if word else None
    if not space or not rest:
        return None
    start = rest[:7].lower()
    if start[:1] in b"/*" or start == b"http://":
        return True
    return None if b"http://".startswith(start) else False


def _lines(head: bytes) -> list[str]:
    return head[: -len(END)].decode("latin-1").split("\r\n")


def _field(line: str) -> tuple[str, str]:
    match = _FIELD.match(line)
    if match is None:
        raise Malformed("a header of the request is invalid")
    return match[1], match[2].rstrip(" \t")


def _target(method: str, target: str, within: tuple[str, int] | None) -> tuple[str, int, str]:
    if method == "CONNECT":
        where = authority(target)
        if within is not None or where is None or where[1] is None:
            raise Malformed("the CONNECT request does not name one host and port")
        return where[0], where[1], ""
    if within is not None and (target.startswith("/") or target == "*"):
        return *within, target
    match = _ABSOLUTE.match(target)
    if match is None:
        if target.lower().startswith("https://"):
            raise Malformed("the proxy accepts `https://` addresses through CONNECT only")
        raise Malformed("the proxy accepts `http://` addresses and CONNECT only")
    where = authority(match[2])
    if where is None:
        raise Malformed("the request does not name a valid host")
    host, port = where[0], where[1] or 80
    if within is not None and (host, port) != within:
        raise Malformed("the request names another host than its tunnel")
    path = match[3] or ("*" if method == "OPTIONS" else "/")
    return host, port, path if path[0] in "/*" else "/" + path


def _length(fields: tuple[tuple[str, str], ...], minor: str) -> int:
    lengths, codings = _values(fields, "content-length"), _values(fields, "transfer-encoding")
    if not codings and not lengths:
        return 0
    if not lengths and minor == "1" and [coding.lower() for coding in codings] == ["chunked"]:
        return -1
    if codings or len(lengths) > 1 or not re.fullmatch("[0-9]{1,15}", lengths[0]):
        raise Malformed("the length of the request is ambiguous or invalid")
    return int(lengths[0])


def _plain_name(name: str) -> str:
    """Return the header name in lower case with `-` for `_`: programs behind CGI and WSGI see no difference."""
    return name.lower().replace("_", "-")


def _overrides(name: str) -> bool:
    """Return True if a header of this name makes some servers take another method, host or path."""
    plain = _plain_name(name)
    if plain.startswith(_NO_OVERRIDES):
        return False
    return (
        plain.startswith(_OVERRIDE_STARTS)
        or any(part in plain for part in _OVERRIDE_PARTS)
        or any(word.endswith(_OVERRIDE_ENDS) for word in plain.split("-"))
    )


def _values(fields: tuple[tuple[str, str], ...], name: str) -> list[str]:
    return [value for key, value in fields if key.lower() == name]
