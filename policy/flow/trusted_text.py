"""The trusted text of a session, and whether it names a value, a host or an address.

A value is named if it occurs as a whole token: no letter, digit or sign of a longer name is directly beside it. A
number is named only beside a word that says what the number is of.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from policy.model.frozen import dataclass, field, replace

# A host or an address in running text. The last label has letters only, so that versions and times do not match.
_ADDRESS = re.compile(
    r"(?<![\w@.-])(?:(?P<scheme>https?|ssh|git|wss?)://)?(?:[\w.+-]+@)?"
    r"(?P<host>(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,24}|localhost|[0-9]{1,3}(?:\.[0-9]{1,3}){3})"
    r"(?P<port>:[0-9]{1,5})?(?P<copied>:(?![0-9/]))?(?P<path>[^\s\"'<>()\[\]{}|\\^`]*)?",
    re.IGNORECASE,
)
# Endings of file names that are also top-level domains: `README.md` in a prompt names a file and no host.
_FILE_ENDINGS = frozenset((
    "ai", "as", "app", "bat", "bin", "bz", "cab", "cc", "cfd", "cl", "cpp", "cs", "css", "dat", "dev", "do",
    "doc", "docs", "foo", "go", "gz", "hs", "htm", "html", "in", "inc", "info", "ini", "ipynb", "java", "js",
    "json", "jl", "kt", "la", "lock", "log", "lua", "md", "ml", "mov", "mp", "mm", "name", "nim", "pdf",
    "php", "pl", "pm", "png", "properties", "ps", "pub", "py", "rb", "rs", "sass", "sc", "scss", "sh", "so",
    "sql", "st", "sum", "svg", "swift", "tar", "tex", "tf", "toml", "ts", "tsx", "txt", "vb", "vue", "xml",
    "yaml", "yml", "zig", "zip",
))  # fmt: skip
_OF_NAMES = ("_", "-", "@", "/", ".", "+")
_NUMBER = re.compile(r"[+-]?[0-9][0-9.,]*")
_WORD = re.compile(r"[a-z]+|[0-9]+|[#$€£¥]", re.IGNORECASE)
_MONEY = frozenset((
    "$", "€", "£", "¥", "usd", "eur", "gbp", "dollar", "dollars", "euro", "euros", "pound", "pounds",
))  # fmt: skip
_OF_AMOUNTS = frozenset((
    "amount", "price", "cost", "sum", "total", "value", "fee", "rent",
))  # fmt: skip
# What can lead a server to a path above, in the forms that servers decode.
_UP = re.compile(r"(?:/|\\|%2f|%5c)\.\.(?![\w.-])|%2e|\\")
_REACH = 3  # words before a number, and 1 after it, that can say what the number is of


@dataclass(frozen=True, slots=True)
class Address:
    """An address in a text: the host in lower case, the path without a query, and True if only a host is written."""

    host: str
    path: str
    bare: bool


@dataclass(frozen=True, slots=True)
class TrustedText:
    """Texts of the user and of the configuration.

    Attributes:
        texts: the texts, in lower case.
        hosts: hosts that are trusted beside those in the texts: those of allow rules, and the model's own.
        own: addresses and names of the user, such as `user.email` of Git, in lower case. Text may go to the user, but
            that says nothing about what the user wants.
    """

    texts: tuple[str, ...] = ()
    hosts: frozenset[str] = field(default_factory=frozenset)
    own: frozenset[str] = field(default_factory=frozenset)

    def names(self, value: str, about: Iterable[str] = ()) -> bool:
        """Return True if the texts contain `value` as a whole token. `about` are words that say what `value` is of,
        such as the name of an argument: a number counts only beside one of them.
        """
        value = value.strip().lower()
        if not value:
            return True
        if _NUMBER.fullmatch(value):
            return any(_number_named(text, value, frozenset(about)) for text in self.texts)
        if (day := whole_day(value)) is not None:
            return any(_same_day(day, known) for text in self.texts for known in _days(text))
        if (address := whole_address(value)) is not None and "/" in value:
            return self.reaches(address)
        return any(_whole(text, value) for text in self.texts)

    def reaches(self, address: Address) -> bool:
        """Return True if the texts name the host of `address` alone, or an address at or above `address`.

        THREAT T266: an address of a host that many people use does not name all of that host: after
        `https://github.com/me/project` in a prompt, `https://github.com/other/project` is another destination.
        """
        if address.host in self.hosts:
            return True
        return any(
            known.host == address.host and (known.bare or _below(address.path, known.path))
            for text in self.texts
            for known in addresses(text)
        )

    def knows_host(self, host: str) -> bool:
        """Return True if an address in the texts has this host, whatever the path is."""
        return host in self.hosts or any(known.host == host for text in self.texts for known in addresses(text))

    def with_text(self, *texts: str) -> "TrustedText":
        """Return a copy with more texts."""
        more = tuple(lowered for text in texts if (lowered := text.strip().lower()))
        return replace(self, texts=tuple(dict.fromkeys((*self.texts, *more))))

    def with_hosts(self, hosts: Iterable[str]) -> "TrustedText":
        """Return a copy with more trusted hosts."""
        return replace(self, hosts=self.hosts | frozenset(host.lower() for host in hosts))


def _below(path: str, known: str) -> bool:
    """Return True if `path` is `known` or below it, by whole names."""
    known = known.rstrip("/").removesuffix(".git")
    path = path.rstrip("/")
    if _UP.search(path):
        return False
    return path.removesuffix(".git") == known or path.startswith(f"{known}/")


def whole_address(value: str) -> Address | None:
    """Return the address that `value` as a whole is, or None."""
    match = _ADDRESS.fullmatch(value.strip().lower())
    return _address_of(match) if match else None


@lru_cache(maxsize=256)
def addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses in `text`, which is in lower case. Names of files are no addresses."""
    found = (_address_of(match) for match in _ADDRESS.finditer(text))
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _address_of(match: re.Match[str]) -> Address | None:
    host, scheme, rest = match["host"].lower(), match["scheme"], match["path"] or ""
    if scheme is None and not match["copied"] and not match["port"] and not rest.startswith("/"):
        if host.rpartition(".")[2] in _FILE_ENDINGS or rest[:1] in ("@",):
            return None
        rest = ""
    if scheme is None and "@" in match[0].partition(host)[0] and not match["copied"]:
        return None  # an e-mail address
    path = rest.partition("?")[0].partition("#")[0]
    path = path if scheme or match["copied"] or path.startswith("/") else ""
    path = path if path.endswith("/..") else path.rstrip(".,;:!?*_")  # a sentence can end after an address
    if match["copied"]:
        path = f"/{path.lstrip('/')}"
    bare = path.strip("/") == "" and "?" not in rest
    return Address(host + (match["port"] or ""), "" if bare else path, bare)


def _whole(text: str, value: str) -> bool:
    """Return True if `text` contains `value`, and no part of a longer name is beside it."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        before, after = text[start - 1 : start], text[end : end + 2]
        joined = after[:1] in ("-", "@", "/", ".", "_", ":") and after[1:2].isalnum()
        if not (_of_name(before) or after[:1].isalnum() or joined):
            return True
        start = text.find(value, start + 1)
    return False


def _of_name(char: str) -> bool:
    """Return True if a name can go on with `char`."""
    return char.isalnum() or char in _OF_NAMES


def _number_named(text: str, value: str, about: frozenset[str]) -> bool:
    """Return True if `text` contains the number `value` beside a word of `about`, or a sign of money for an amount."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        before, after = text[start - 1 : start], text[end : end + 2]
        longer = before.isalnum() or (before in (".", ",", "-") and text[start - 2 : start - 1].isdigit())
        longer = longer or after[:1].isalnum() or (after[:1] in (".", ",") and after[1:2].isdigit())
        if not longer:
            around = [
                *_WORD.findall(text[max(0, start - 60) : start])[-_REACH:],
                *_WORD.findall(text[end : end + 30])[:1],
            ]
            near = {_singular(word) for word in around}
            if near & {_singular(word) for word in about}:
                return True
            if "#" in near or (near & (_MONEY | _OF_AMOUNTS) and about & _OF_AMOUNTS):
                return True
        start = text.find(value, start + 1)
    return False


def _singular(word: str) -> str:
    return word.lower().removesuffix("s") if len(word) > 3 else word.lower()


# ---- days

_NAMES_OF_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTHS = {name: number for number, name in enumerate(_NAMES_OF_MONTHS, 1)}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY = re.compile(
    r"(?<![\w-])(?:(?P<y1>[0-9]{4})-(?P<m1>[0-9]{1,2})-(?P<d1>[0-9]{1,2})"
    rf"|(?P<m2>{_MONTH})\.? (?P<d2>[0-9]{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<y2>[0-9]{{4}}))?"
    rf"|(?P<d3>[0-9]{{1,2}})(?:st|nd|rd|th)?\.? (?:of )?(?P<m3>{_MONTH})\.?(?:,? (?P<y3>[0-9]{{4}}))?)(?![\w-])",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"[ t]*(?:[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?: ?[ap]\.?m\.?)?)?(?:z|[+-][0-9]{2}:?[0-9]{2})?"
)

_Day = tuple[int, int, int]  # year (0: not written), month, day


def whole_day(value: str) -> _Day | None:
    """Return the day that `value` as a whole is, with or without a time of the day; None for another text."""
    value = value.strip().lower()
    match = _DAY.match(value)
    return _day_of(match) if match and _CLOCK.fullmatch(value[match.end() :]) else None


@lru_cache(maxsize=256)
def _days(text: str) -> tuple[_Day, ...]:
    return tuple(dict.fromkeys(_day_of(match) for match in _DAY.finditer(text)))


def _day_of(match: re.Match[str]) -> _Day:
    parts = match.groupdict()
    year, month, day = (next((found for form in "123" if (found := parts.get(f"{key}{form}"))), "0") for key in "ymd")
    return int(year), int(month) if month.isdecimal() else _MONTHS[month.lower()], int(day)


def _same_day(one: _Day, other: _Day) -> bool:
    """Return True for the same day of the same month, unless both say a year and the years differ."""
    return one[1:] == other[1:] and (one[0] == other[0] or not (one[0] and other[0]))
