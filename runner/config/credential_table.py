"""The entries `[[credential]]` of a configuration file: their keys, and the strict check of each entry."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from policy.model.assessment import RuleKind, RuleRef
from policy.model.credential import Credential
from policy.model.host_rule import HostRule, authority, host_rule
from policy.model.verdict import Problem
from policy.toml.profile import texts
from policy.toml.schema import TomlEntry, ValueType

# fmt: off
CREDENTIAL_KEYS: Mapping[str, ValueType] = {
    "name":      ValueType.TEXT,
    "hosts":     ValueType.TEXTS,
    "header":    ValueType.TEXT,
    "basic":     ValueType.TEXT,
    "env":       ValueType.TEXT,
    "keyring":   ValueType.TEXT,
    "helper":    ValueType.TEXTS,
    "use":       ValueType.TEXTS,
    "intercept": ValueType.SWITCH,
    "plain":     ValueType.SWITCH,
}
CREDENTIAL_EXAMPLE = '''name   = "forge"
hosts  = ["GET,POST git.example.com/team/"]
header = "Authorization: Bearer {secret}"
env    = "FORGE_TOKEN"'''
# fmt: on
MOST_CREDENTIALS = 100  # of one file, and of all files together

# fmt: off
CREDENTIAL_HELP: Mapping[str, str] = {
    "name":      "the name in lists; a later entry of the same name replaces this one",
    "hosts":     "the requests that get the credential: `[METHOD,.. ]HOST[:PORT][/PATH/]`",
    "header":    "the header to add, with `{secret}` in its value",
    "basic":     "instead of `header`: the user name for Basic authentication, with the secret as password",
    "env":       "the variable with the secret, in the environment of `agent`",
    "keyring":   "the name of the secret in the keyring, as in `agent auth login NAME`",
    "helper":    "the program and arguments that print the secret on one line",
    "use":       'programs to configure: "git" (default), "gh", "pip=ADDRESS", "npm=ADDRESS", "VARIABLE=ADDRESS"',
    "intercept": "decrypt TLS to these hosts, with a certificate that only commands of this session accept",
    "plain":     "the hosts use HTTP without encryption; the network between can read the secret",
}
# fmt: on
TOOLS = ("git", "pip", "npm", "gh")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([ -~]{1,1000})\Z")
_ADDRESS = re.compile(r"(https?)://([^/?#@\s]+)(/[A-Za-z0-9/._~!$&'()*+,=:@-]*)?\Z")
# RFC 9110: headers that the proxy sets itself, and headers of one connection only.
_RESERVED_HEADERS = frozenset((
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive",
    "proxy-authorization", "proxy-connection", "accept-encoding", "expect", "http2-settings", "content-type",
))  # fmt: skip
# Variables that the loader, the shell or an interpreter obeys: an address as their value could break programs.
_RESERVED_VARIABLES = re.compile(
    r"(PATH|HOME|SHELL|IFS|ENV|BASH.*|LD_.*|GIT_CONFIG_.*|.*_PROXY|NODE_OPTIONS|PYTHON.*|TMPDIR)\Z", re.IGNORECASE
)


def credentials(entries: Iterable[TomlEntry]) -> tuple[Credential, ...]:
    """Return the credentials in order. A later credential replaces an earlier one of the same name. Raise TomlError."""
    by_name: dict[str, Credential] = {}
    for entry in entries:
        made = credential(entry)
        by_name.pop(made.name, None)
        by_name[made.name] = made
        if len(by_name) > MOST_CREDENTIALS:
            raise entry.error_at("", f"there are at most {MOST_CREDENTIALS} credentials", "remove some")
    return tuple(by_name.values())


def credential(entry: TomlEntry) -> Credential:
    """Return the credential of one entry. Raise TomlError for an entry that cannot be used."""
    name = _text(entry, "name")
    if not _NAME.match(name):
        raise entry.error_at("name", "it is not a short name", 'use letters, digits, `.`, `_` and `-`: "forge"')
    plain, intercept = bool(entry.values.get("plain")), bool(entry.values.get("intercept"))
    if plain and intercept:
        raise entry.error_at("intercept", "without TLS there is nothing to decrypt", "remove `plain` or `intercept`")
    rules = tuple(_rule(entry, text) for text in texts(entry.values.get("hosts", ())))
    if not rules:
        raise entry.error_at("hosts", "it names no hosts", 'add hosts = ["git.example.com/team/"]')
    header, value, user = _header(entry)
    made = Credential(
        name=name,
        rules=rules,
        header=header,
        value=value,
        user=user,
        source=_source(entry),
        use=(),
        intercept=intercept,
        plain=plain,
        ref=RuleRef(RuleKind.USER, entry.source, entry.line),
    )
    given = texts(entry.values["use"]) if "use" in entry.values else () if intercept else ("git",)
    return replace(made, use=tuple(_use(entry, made, text) for text in given))


def _text(entry: TomlEntry, key: str) -> str:
    value = entry.values.get(key)
    if not isinstance(value, str):
        raise entry.error_at("", f"it has no `{key}`", 'add name = "forge"')
    return value


def _rule(entry: TomlEntry, text: str) -> HostRule:
    rule = host_rule(text)
    if isinstance(rule, Problem):
        raise entry.error_at("hosts", rule.why, rule.fix)
    if not rule.ports:
        raise entry.error_at("hosts", f"`{text}` means every port of the host", "name the port: `example.org:8443`")
    if rule.ports == (80,) and not entry.values.get("plain"):
        why = f"`{text}` is the port of HTTP without encryption, and the network could read the secret"
        raise entry.error_at("hosts", why, "name the port of TLS, or write plain = true to allow it")
    return rule


def _header(entry: TomlEntry) -> tuple[str, str, str]:
    """Return the name of the header, its value, and the user name of Basic authentication."""
    if ("header" in entry.values) == ("basic" in entry.values):
        fix = 'write header = "Authorization: Bearer {secret}", or basic = "USER"'
        raise entry.error_at("", "it needs either `header` or `basic`", fix)
    if "basic" in entry.values:
        user = _text(entry, "basic")
        if ":" in user or not user.isprintable():
            raise entry.error_at("basic", "RFC 7617 forbids `:` in a user name", "write only the user name")
        return "Authorization", "", user
    match = _HEADER.match(_text(entry, "header"))
    if match is None or match[2].count("{secret}") != 1:
        fix = 'write it like "Authorization: Bearer {secret}"'
        raise entry.error_at("header", "it is not a header with `{secret}` in its value", fix)
    if match[1].lower().replace("_", "-") in _RESERVED_HEADERS:
        raise entry.error_at("header", f"`{match[1]}` is reserved", "use the header that the server reads")
    return match[1], match[2].strip(), ""


def _source(entry: TomlEntry) -> tuple[str, ...]:
    sources = [key for key in ("env", "keyring", "helper") if key in entry.values]
    if len(sources) != 1:
        fix = 'write env = "VARIABLE", keyring = "NAME" or helper = ["pass", "show", "forge"]'
        raise entry.error_at(sources[1] if sources else "", "it needs exactly one source of the secret", fix)
    value = entry.values[sources[0]]
    words = (value,) if isinstance(value, str) else texts(value)
    if not words or any("\0" in word for word in words):
        raise entry.error_at(sources[0], "it is empty", "write the source of the secret")
    if sources == ["env"] and not _VARIABLE.match(words[0]):
        raise entry.error_at("env", f"`{words[0]}` is not the name of a variable", 'write it like env = "FORGE_TOKEN"')
    return (sources[0], *words)


def _use(entry: TomlEntry, made: Credential, text: str) -> tuple[str, str]:
    """Return the program or the variable, and the address for which the credential is used.

    The address is empty for `git` alone, and may be `placeholder` for a variable.
    """
    name, equals, address = text.partition("=")
    if name == "gh":
        if not made.intercept:
            fix = "add intercept = true to decrypt TLS to the hosts, or remove `gh`"
            raise entry.error_at("use", "`gh` always uses TLS to its host", fix)
        if not equals:
            equals, address = "=", f"https://{made.rules[0].host.removeprefix('*.')}/"
    if name == "git" and not equals:
        return name, ""
    if not equals or not _VARIABLE.match(name) or _RESERVED_VARIABLES.match(name):
        fix = 'write "git", "pip=https://HOST/simple/", "npm=https://HOST/npm/", "gh" or "VARIABLE=https://HOST/"'
        raise entry.error_at("use", f"`{text}` is not a known program", fix)
    if address == "placeholder" and name not in TOOLS:
        return name, address
    match = _ADDRESS.match(address)
    scheme = "http" if made.plain else "https"
    if match is None or match[1] != scheme:
        raise entry.error_at("use", f"`{text}` contains no address", f"write it like {name}={scheme}://HOST/PATH/")
    where = authority(match[2])
    if where is None or not made.names(where[0], where[1] or made.port):
        raise entry.error_at("use", f"`{address}` is not in `hosts`", "add it to `hosts`, or use another address")
    return name, f"{scheme}://{match[2].lower()}{match[3] or '/'}"
