"""Connections to the loopback of the sandbox: a command whose every connection stays there needs no network.

Only a literal name or address counts, and only if no setting that the command obeys may replace it. A wrong answer here
opens nothing, because such a command gets no host: its connection then fails inside the sandbox.
"""

import re

from policy.interpreter.command_call import Call, ParsedOptions
from policy.model.abstract_word import AbstractWord
from policy.model.host_words import WHOLE_HOST, endpoint, names_loopback
from policy.rules.rule import Role

# Exported variables that never name a host or a proxy. Any other variable may lead a connection elsewhere.
_UNRELATED = frozenset((
    "CI", "DEBUG", "MYSQL_PWD", "NODE_ENV", "PGDATABASE", "PGPASSWORD", "PGPORT", "PGUSER", "PORT", "REDISCLI_AUTH",
))  # fmt: skip
_ELSEWHERE = re.compile(r"\b(?:host|hostaddr|service|servicefile|server)=", re.IGNORECASE)
_SOCKET_FOLDER = re.compile(r"/[^,\s]*")  # libpq separates several hosts by commas
_METHOD = re.compile(r"[A-Z]+")
_SHORT_FOR_LOCALHOST = re.compile(r":(?:[0-9]{1,5})?(?:/.*)?", re.DOTALL)  # `http :3000/path`


def stays_inside(call: Call, shape: ParsedOptions, roles: tuple[Role, ...]) -> bool:
    """Return True if every host that the described words name is the loopback, and at least one word names it."""
    leading = call.rule.loopback or frozenset()
    if not _obeys_words_alone(call) or any(flag.name in leading for flag, _ in shape.flags):
        return False
    words = [word for role, word in zip(roles, shape.operands, strict=True) if role is Role.HOST]
    words += [value for flag, value in shape.flags if flag.role is Role.HOST and value is not None]
    hosts = [host for word in words if (host := _host(word, call.port)) is not None]
    return bool(hosts) and all(names_loopback(host, call.findings.private_hosts) for host in hosts)


def bare_loopback_hosts(call: Call) -> list[str] | None:
    """Return the hosts that the words of a command with unlisted flags name without a scheme, or None unless every host
    among the words is the loopback.

    The `loopback` of the rule contains the flags whose value is the host (`-h=`), the flags that may lead elsewhere,
    `url` if an operand may be an address without a scheme, and `default` if the program contacts the loopback unless
    a word names a host. A folder in place of a host contains a Unix socket (`psql -h /tmp`), and is returned as an
    empty text: no socket of the machine is reachable from the sandbox.
    """
    known = call.rule.loopback or frozenset()
    texts = [word.text for word in call.words]
    if None in texts or not _obeys_words_alone(call):
        return None
    found: list[str | None] = []
    addresses: list[str | None] = []
    socket_folder = False
    naming = tuple(flag[:-1] for flag in known if flag.endswith("="))
    address_next = "url" in known
    words = iter(text for text in texts if text is not None)
    for text in words:
        name, equals, value = text.partition("=") if text.startswith("--") else (text[:2], text[2:], text[2:])
        if text[:1] == "-" and name in naming:
            value = value if equals else next(words, "")
            if _SOCKET_FOLDER.fullmatch(value):
                socket_folder = True
            else:
                found.append(endpoint(value))
        elif text[:1] == "-" and (name in known or re.fullmatch("-[A-Za-z]+h", text)):
            return None
        elif "://" in text:
            addresses.append(endpoint(text[text.rfind(" ") + 1 :]))
            address_next = False
        elif _ELSEWHERE.search(text):
            return None
        elif address_next and text[:1] != "-" and not _METHOD.fullmatch(text):
            found.append(endpoint(f"localhost{text}" if _SHORT_FOR_LOCALHOST.fullmatch(text) else text))
            address_next = False
    if not found and not addresses and "default" in known and not socket_folder:
        found.append("localhost")
    private = call.findings.private_hosts
    hosts = [host for host in found if host is not None and names_loopback(host, private)]
    certain = len(hosts) == len(found) and all(host and names_loopback(host, private) for host in addresses)
    if certain and socket_folder:
        return hosts or [""]
    return hosts if certain and (found or addresses) else None


def _obeys_words_alone(call: Call) -> bool:
    return _UNRELATED.issuperset(call.state.exports)


def _host(word: AbstractWord, port: str) -> str | None:
    """Return the host that a word names (see `endpoint`), empty if it is uncertain."""
    text = word.text
    if text is None and WHOLE_HOST.match(word.head):
        text = word.head
    if text is None:
        return ""
    return endpoint(text, port)
