"""Logins in a text: in addresses, headers, command lines, assignments, jars of cookies and stores of other tools.

SOURCE: RFC 3986 (userinfo), RFC 9110 (Authorization), git-remote-ext(1), curl(1), sshpass(1), the Netscape format of
cookies, and the store of passwords that Subversion keeps in `auth`.
"""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum

from runner.secrets.redactor import key_spans
from runner.secrets.secret import SHORTEST, names_secret

_NO_WORDS = ("x-oauth-basic", "x-token-auth")  # fixed passwords of logins whose user name is the token
_SIGNED = ("SIGNATURE", "SIG", "JWT")  # ends of secret parameter names that are not secret names of variables
_SCHEMES = frozenset(("basic", "bearer", "digest", "negotiate", "ntlm", "token", "none"))
# Keys of the output of a credential helper that are not secret. SOURCE: git-credential(1)
_HARMLESS = ("username", "protocol", "host", "path", "quit")

# Each pattern for `_words` and `_without` has a group `word`, the login, and a group `kept`, the text before the login
# that is not removed. Every repetition has a bound or a first character of its own, so that the time never grows with
# the square of the text's length.
_LOGIN = re.compile(r"(?P<kept>://)(?P<word>[^/\s\"'<>]+)@")
_PARAMETER = re.compile(r"(?P<kept>[?&#;](?P<name>[\w.-]+)=)(?P<word>[^&#;\s\"'<>]+)")
# `user:word@host:path`, as ssh and proxies write it: only in the position of an address, not within a sentence.
_HOST = r"(?:\[[0-9A-Fa-f:.]{2,60}\]|[A-Za-z0-9][A-Za-z0-9.-]{0,253})"
_USER = r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}::)?[A-Za-z0-9_.+-]{1,100}:"
_SHORT = re.compile(
    rf"(?P<kept>(?:^|[=:#\"']\s{{0,8}}|\b(?:of|from|pull|fetch|push|to)\s){_USER})(?P<word>[^\s/:@\"'$%]{{1,256}})"
    rf"(?=@{_HOST}[:/])",
    re.MULTILINE,
)
_WHOLE = re.compile(rf"(?P<kept>{_USER})(?P<word>[^\s/:@\"'$]{{1,256}})(?=@{_HOST}(?:[:/]\S*)?\Z)")
_HEADER = re.compile(
    r"(?P<kept>\b(?:(?:proxy-)?authorization|(?:private|job|deploy)-token|x-[a-z-]{0,30}(?:token|key|auth|secret)"
    r"|api-?key|cookie)[\"']?\s{0,4}:\s{0,4}[\"']?(?:(?:basic|bearer|token|remoteauth|digest)\s{1,4})?)"
    r"(?P<word>[A-Za-z0-9+/=._~:-]{6,})",
    re.IGNORECASE,
)
_COOKIE = re.compile(
    r"^(?P<kept>\S{1,300}\t(?:TRUE|FALSE)\t\S{0,300}\t(?:TRUE|FALSE)\t\d{1,20}\t\S{1,300}\t)(?P<word>\S+)", re.MULTILINE
)
_STORED = re.compile(r"^(?P<kept>K \d{1,3}\n(?:password|passphrase)\nV \d{1,6}\n)(?P<word>[^\n]+)", re.MULTILINE)
_VALUE = r"[\"']?(?P<word>[^\s\"';&|)}($`\\<>%-][^\s\"';&|)}$`\\<>]*)"
_SET = re.compile(rf"(?P<kept>(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{{0,60}})\s{{0,3}}[=:]\s{{0,3}}){_VALUE}")
_ASSIGNED = re.compile(
    r"(?P<kept>(?:\b|_)(?:password|passwd|token|secret)=[\"']?)(?P<word>[^\s\"';&|)}$`\\<]+)", re.IGNORECASE
)
_FLAG = re.compile(
    r"(?P<kept>(?<!\S)[\"']?--?(?:pass(?:word|wd|phrase)?|pwd?|token|secret|api-?key|access-?token|auth-?token"
    rf"|bearer|oauth2-bearer)(?:=|\s{{1,4}})){_VALUE}",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"(?P<kept>(?<!\S)[\"']?(?:-u|-U|--user|--proxy-user|--proxyauth|--proxy-auth)(?:=|\s{0,4})[\"']?"
    r"[^\s:\"'@/$-][^\s:\"'@/$]{0,100}:)(?P<word>[^\s\"'@$`/]+)"
)
_SSHPASS = re.compile(r"(?P<kept>\bsshpass\s{1,4}(?:-\w\s{1,4}){0,4}-p\s{0,4}[\"']?)(?P<word>[^\s$`\"']+)")
_SHORT_FLAG = re.compile(r"(?P<kept>(?<!\S)-p\s{0,4}[\"']?)(?P<word>[^\s$`\"'/.-][^\s$`\"'/]*)")
# In a command or a header: a literal password, not the name of a variable.
_NAMED = r"(?P<kept>(?:\b|_)(?:password|passwd|token|secret)[\"']?"
_WRITTEN = re.compile(rf"{_NAMED}\s{{0,4}}[=:]\s{{0,4}}){_VALUE}", re.IGNORECASE)
_BESIDE = re.compile(rf"{_NAMED}\s{{1,4}}){_VALUE}", re.IGNORECASE)
_SCHEME = re.compile(r"(?P<kept>\b(?:bearer|basic)\s{1,4})(?P<word>[A-Za-z0-9+/=._~-]{8,})", re.IGNORECASE)
_NETRC = re.compile(r"\bpassword\s+(\S+)")
_PRINTED = re.compile(r"\b(?:echo|printf)\s+([^;&|)}\n]+)")
_LINE_ENDS = re.compile(r"\\[nrt]")

_Accepts = Callable[[re.Match[str]], bool]


class TextKind(StrEnum):
    """The kind of a text. The kind decides which words count as a login.

    Attributes:
        SETTINGS: Settings of Git; their comments are searched.
        RECORD: A file in which Git writes addresses next to text of users: a reflog, FETCH_HEAD, a message.
        OTHER: A script, a log, or the settings of another tool.
    """

    SETTINGS = "settings"
    RECORD = "record"
    OTHER = "other"


def addresses(text: str) -> Iterator[str]:
    """Yield the logins in addresses, and texts that have the shape of a key."""
    yield from filter(None, map(_password, _LOGIN.finditer(text)))
    yield from _words(text, _PARAMETER, _is_parameter)
    for start, end in key_spans(text):
        yield text[start:end]


def without_addresses(text: str) -> str:
    """Return a text without the logins that `addresses` finds."""
    text = _without(text, _LOGIN, lambda match: bool(_password(match)))
    text = _without(text, _PARAMETER, _is_parameter)
    kept, last = [], 0
    for start, end in sorted(key_spans(text)):
        kept.append(text[last:start])
        last = max(last, end)
    return "".join((*kept, text[last:]))


def value(text: str) -> Iterator[str]:
    """Yield the logins in the value of a setting, which may be an address or contain headers."""
    yield from addresses(text)
    if found := _WHOLE.match(text.strip()):
        yield found["word"]
    yield from _words(text, _HEADER, _is_key)


def command(text: str) -> Iterator[str]:
    """Yield the literal logins in a command line."""
    text = _LINE_ENDS.sub(" ", text.replace("% ", " "))
    for pattern, accepts in _OF_COMMANDS:
        yield from _words(text, pattern, accepts)


def transport(text: str) -> Iterator[str]:
    """Yield the logins of a command that connects to a server. Its option `-p` may be a password, not only a port."""
    yield from command(text)
    yield from _words(text.replace("% ", " "), _SHORT_FLAG, _is_likely)


def printed(text: str) -> Iterator[str]:
    """Yield the literal words that a command prints, except the keys of a helper's output without a secret."""
    for words in _PRINTED.findall(text):
        for word in words.split():
            name, equals, rest = word.strip("\"'").partition("=")
            literal = rest if equals else name
            if name not in _HARMLESS and literal and literal[0] not in "$-%`<>" and not literal.startswith("\\n"):
                yield literal


def netrc(text: str) -> Iterator[str]:
    """Yield the passwords of a file such as `.netrc`."""
    yield from _NETRC.findall(text)


def logins(text: str, kind: TextKind) -> Iterator[str]:
    """Yield the logins in a text of this kind."""
    yield from addresses(text)
    for pattern, accepts in _PATTERNS[kind]:
        yield from _words(text, pattern, accepts)


def without(text: str, kind: TextKind) -> str:
    """Return a text without the logins that `logins` finds."""
    text = without_addresses(text)
    for pattern, accepts in _PATTERNS[kind]:
        text = _without(text, pattern, accepts)
    return text


def _without(text: str, pattern: re.Pattern[str], accepts: _Accepts) -> str:
    return pattern.sub(lambda match: match["kept"] if accepts(match) else match[0], text)


def _words(text: str, pattern: re.Pattern[str], accepts: _Accepts) -> Iterator[str]:
    for found in pattern.finditer(text):
        if accepts(found):
            yield found["word"]


def _password(found: re.Match[str]) -> str:
    """Return the secret part of the login of an address; empty if the login is only a user name.

    In a web address, a user name of at least SHORTEST characters without a password counts as a token.
    """
    name, _, word = found["word"].partition(":")
    web = found.string[max(0, found.start() - 5) : found.start()].lower().endswith(("http", "https"))
    if not word or word in _NO_WORDS:
        return name if web and len(name) >= SHORTEST else word
    return word


def _is_secret_name(name: str) -> bool:
    name = name.replace("-", "_").replace(".", "_")
    return names_secret(name) or name.upper().endswith(_SIGNED)


def _is_parameter(found: re.Match[str]) -> bool:
    return _is_secret_name(found["name"])


def _accept_any(found: re.Match[str]) -> bool:
    return True


def _is_key(found: re.Match[str]) -> bool:
    """Return True unless the word of a header is only the name of an authentication scheme."""
    return found["word"].lower() not in _SCHEMES


def _is_likely(found: re.Match[str]) -> bool:
    """Return True if the word looks like a password: six characters or more, not only digits and dots, with a digit."""
    word: str = found["word"]
    return len(word) >= 6 and any(map(str.isdigit, word)) and not word.replace(".", "").isdigit()


def _is_set(found: re.Match[str]) -> bool:
    name = found["name"]
    if found["word"].startswith(("/", "~", ".")):
        return False  # a path to a login is not a login
    return (_is_secret_name(name) or name.upper().endswith(("PASS", "PWD", "PW", "PASSWD"))) and _is_likely(found)


_OF_COMMANDS = (
    (_WRITTEN, _accept_any),
    (_BESIDE, _is_likely),
    (_SCHEME, _accept_any),
    (_FLAG, _accept_any),
    (_PAIR, _is_likely),
    (_SSHPASS, _accept_any),
    (_SET, _is_set),
    (_HEADER, _is_key),
)
_SURE = ((_SHORT, _accept_any), (_HEADER, _is_key), (_SSHPASS, _accept_any), (_PAIR, _is_likely), (_FLAG, _is_likely))
_PATTERNS: dict[TextKind, tuple[tuple[re.Pattern[str], _Accepts], ...]] = {
    TextKind.SETTINGS: ((_ASSIGNED, _accept_any), *_SURE),
    TextKind.RECORD: ((_SHORT, _accept_any),),
    TextKind.OTHER: (*_SURE, (_COOKIE, _accept_any), (_STORED, _accept_any), (_SET, _is_set)),
}
