"""Checks of the values of `[mcp.NAME]`, the settings of a tool server."""

import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from policy.model.host_rule import host_rule
from policy.model.tool_names import certain_server
from policy.model.verdict import Problem
from policy.toml.schema import Value
from runner.config.validators import Fault
from runner.text.http_address import is_loopback

_LONGEST = 4096  # characters of one text: more than a user would read before an approval
_MOST_WORDS = 256  # arguments, variables or headers of one server
NARROWING = frozenset(("enabled", "tools", "exclude_tools"))  # keys that allow nothing
LABELS = ("untrusted", "workspace", "trusted")  # of the results of a tool in `results`
TIERS = ("read", "write", "network", "dangerous")  # of a tool in `tiers`
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)  # RFC 9110, 5.6.2
_REFERENCE = re.compile(r"\$(?:\{[^}]*\}|[A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_LOCAL = ("args", "env", "cwd", "read", "write")  # keys of a server on this machine


def name_fault(name: str) -> Fault | None:
    """Return why `name` cannot be the name of a server, and another name; None if it can be."""
    if certain_server(name):
        return None
    why = "a name has at most 64 letters, digits and `.-_` of ASCII, begins with a letter or a digit, and has no `__`"
    return why, f"call the server `{fitting_name(name)}`"


def fitting_name(name: str) -> str:
    """Return a name that a server can have and that resembles `name`."""
    plain = re.sub(r"[^A-Za-z0-9.-]+", "_", name, flags=re.ASCII)
    plain = re.sub(r"_+", "_", plain).strip("_").lstrip(".-")[:64].rstrip("_")
    return plain if certain_server(plain) else "server"


def texts_in(value: Value | None) -> tuple[str, ...]:
    """Return the texts of a list or of a table; the text itself, in a tuple, of a text."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, tuple):
        return ()
    return tuple(each if isinstance(each, str) else each[-1] for each in value)


def pairs_in(value: Value | None) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a table."""
    entries = value if isinstance(value, tuple) else ()
    return tuple((each[0], each[1]) for each in entries if isinstance(each, tuple) and len(each) == 2)


def bounded_fault(value: Value) -> Fault | None:
    """Return why texts are too many or too long, and how to correct that; None if they are not."""
    texts = texts_in(value)
    if len(texts) > _MOST_WORDS:
        return f"it has more than {_MOST_WORDS} entries", "use fewer"
    if any(len(each) > _LONGEST for each in texts):
        return f"it has a text of more than {_LONGEST:,} characters", "shorten the text"
    if any("\0" in each for each in texts):
        return "it contains the character NUL", "remove the character"
    return None


def _tools(value: Value) -> Fault | None:
    if not texts_in(value):
        return "an empty list leaves open whether all tools are meant or none", "remove the key, or write tools"
    return bounded_fault(value)


def _results(value: Value) -> Fault | None:
    wrong = next((label for _, label in pairs_in(value) if label not in LABELS), None)
    if wrong is None:
        return bounded_fault(value)
    from runner.config.validators import choice

    return choice("label", wrong, LABELS)


def _tiers(value: Value) -> Fault | None:
    wrong = next((tier for _, tier in pairs_in(value) if tier not in TIERS), None)
    if wrong is None:
        return bounded_fault(value)
    from runner.config.validators import choice

    return choice("tier", wrong, TIERS)


def variables_fault(value: Value) -> Fault | None:
    """Return why the names of a table cannot be those of variables; None if they can be."""
    wrong = next((name for name, _ in pairs_in(value) if not _VARIABLE.fullmatch(name)), None)
    if wrong is not None:
        return f"`{wrong}` cannot be the name of a variable", "use letters, digits and `_`"
    return bounded_fault(value)


def _headers(value: Value) -> Fault | None:
    for name, text in pairs_in(value):
        if not _HEADER.fullmatch(name):
            return f"`{name}` cannot be the name of a header", "use letters, digits and `-`"
        if any(not char.isprintable() for char in text):
            return f"the header `{name}` contains an unprintable character", "remove the character"
    return bounded_fault(value)


def _hosts(value: Value) -> Fault | None:
    for text in texts_in(value):
        if isinstance(found := host_rule(text), Problem):
            return f"`{text}`: {found.why}", found.fix
    return bounded_fault(value)


def _port(value: Value) -> Fault | None:
    right = isinstance(value, int) and 1024 <= value < 65536
    return None if right else ("it is not a port that a program of yours can open", "write a number from 1024 to 65535")


def url_fault(value: Value) -> Fault | None:
    """Return why a text cannot be the address of a server. An address with a variable is checked with its value."""
    text = str(value)
    if _REFERENCE.search(text):
        return bounded_fault(value)
    try:
        parts = urlsplit(text)
        login, host, _ = parts.username is not None or parts.password is not None, parts.hostname, parts.port
    except ValueError:
        return "it is not a URL", 'write it like "https://mcp.example.com/mcp"'
    if login:
        return "it contains a user name or a password", "write the credential as a header with `$VARIABLE`"
    if parts.scheme not in ("https", "http") or not host:
        return "it does not start with `https://` and a host", 'write it like "https://mcp.example.com/mcp"'
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in text):
        return "it contains a blank, a backslash or an unprintable character", "remove the character"
    if parts.scheme == "http" and not is_loopback(host):
        return f"`http://{host}` would carry every call unencrypted", "use `https://`"
    return bounded_fault(value)


CHECKS: Mapping[str, Callable[[Value], Fault | None]] = {
    "args": bounded_fault,
    "callback_port": _port,
    "command": bounded_fault,
    "cwd": bounded_fault,
    "env": variables_fault,
    "exclude_tools": bounded_fault,
    "headers": _headers,
    "hosts": _hosts,
    "read": bounded_fault,
    "results": _results,
    "tiers": _tiers,
    "tools": _tools,
    "url": url_fault,
    "write": bounded_fault,
}


def server_fault(values: Mapping[str, Value]) -> tuple[str, Fault] | None:
    """Return the key and the fault of keys that contradict each other; None if they fit together.

    `values` are the values of one `[mcp.NAME]` from all layers.
    """
    local, remote = "command" in values, "url" in values
    transport = values.get("transport", "http" if remote else "stdio")
    if local and remote:
        return "url", ("the server has a `command` too", "keep `command` for a server on this machine, or `url`")
    if not local and not remote:
        fix = "write `command`, or `url` for a remote server"
        return "", ("there is neither a `command` nor a `url`", fix)
    if (transport == "stdio") is not local:
        fix = "remove the key: `command` means stdio" if local else 'write "http", or "sse" for an old server'
        return "transport", (f"a server with `{'command' if local else 'url'}` has another transport", fix)
    wrong = next((key for key in (("headers",) if local else _LOCAL) if key in values), None)
    if wrong:
        what = "a server with `command` sends no headers" if local else "a remote server runs on another machine"
        return wrong, (what, "remove the key")
    if remote and not all(text.split()[-1:] == ["private"] for text in texts_in(values.get("hosts"))):
        fix = "write `HOST private` for a server in a private network or on this machine, or remove the key"
        return "hosts", ("a remote server runs on another machine, without a sandbox that could open a host", fix)
    return None


def literal_keys(values: Mapping[str, Value]) -> Iterable[tuple[str, str]]:
    """Yield the key and the name of each value that looks like a credential in plain text."""
    from runner.secrets.redactor import key_spans
    from runner.secrets.secret import SHORTEST, names_secret

    for key in ("env", "headers"):
        for name, text in pairs_in(values.get(key)):
            plain = _REFERENCE.sub("", text).strip()
            bare = plain.removeprefix("Bearer").removeprefix("Basic").strip()
            named = names_secret(name.replace("-", "_")) or name.lower() == "authorization"
            if next(key_spans(plain), None) or (named and len(bare) >= SHORTEST and not bare.startswith(("/", "~"))):
                yield key, name
    for key in ("command", "args", "url"):
        for text in texts_in(values.get(key)):
            if next(key_spans(text), None):
                yield key, ""
