"""Every secret that this process has held: what the redactor has to know, whoever found it.

A `Secret` enters itself when it is made and stays as long as the process: text that holds it may come out later than
the last use of the key. What the environment holds under a name that speaks of a secret is entered when a run starts.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.secrets import Secret

MASK = "[secret]"
SHORTEST = 12  # characters; servers without keys are given words such as `ollama`, which would ruin ordinary text

_known: dict[int, "Secret"] = {}  # by order of arrival

# Parts of a variable's name: `NPM_TOKEN`, `DB_PASSWORD`, `AWS_SECRET_ACCESS_KEY`, `GITHUB_PAT`.
_PARTS = frozenset(
    ("PASSWD", "PASS", "PASSPHRASE", "PWD", "CREDENTIAL", "CREDENTIALS", "AUTH", "PAT", "COOKIE", "TOKENS", "SECRETS")
)
_ENDS = ("TOKEN", "SECRET", "PASSWORD", "KEY")  # of a part: `GHTOKEN`, `PGPASSWORD`, `APIKEY`


def register(secret: "Secret") -> None:
    """Enter a secret. Again is harmless."""
    if not any(known == secret for known in _known.values()):
        _known[len(_known)] = secret


def count() -> int:
    """How many there are; grows only, so a reader sees by it whether there are new ones."""
    return len(_known)


def everything() -> tuple["Secret", ...]:
    """All of them that are long enough to be masked."""
    return tuple(secret for secret in _known.values() if len(secret.reveal()) >= SHORTEST)


def longest() -> int:
    """Bytes of the longest of them."""
    return max((len(secret.reveal().encode()) for secret in everything()), default=0)


def held_in(data: bytes | bytearray) -> bool:
    """Whether one of them stands in `data`, as it is."""
    return any(secret.reveal().encode() in data for secret in everything())


def forget() -> None:
    """Begin anew. For tests, which make many secrets in one process."""
    _known.clear()


def masked(text: str) -> str:
    """`text` without them; where none is known, nothing is loaded to look for them."""
    if not _known:
        return text
    from runner.redactor import Redactor

    return Redactor(live=True).text(text)


def from_environment(environ: Mapping[str, str]) -> None:
    """Enter what the environment holds under the name of a secret, or as the login of an address."""
    for value in _values(environ):
        if len(value) >= SHORTEST:
            from runner.secrets import Secret  # most environments hold none

            Secret(value)


def _values(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if len(value) < SHORTEST:
            continue
        if speaks_of_one(name) and not value.startswith(("/", "~")):  # a path to a key is none
            yield value.strip()
        if "://" in value and "@" in value:
            yield from _logins(value)


def speaks_of_one(name: str) -> bool:
    """Whether a variable of this name holds a secret, or says where one is."""
    return any(part in _PARTS or part.endswith(_ENDS) for part in name.upper().split("_"))


def _logins(value: str) -> Iterator[str]:
    """The words in `https://name:word@host` (RFC 3986, userinfo)."""
    for rest in value.split("://")[1:]:
        login, at, _ = rest.partition("/")[0].rpartition("@")
        if at and ":" in login:
            yield login.partition(":")[2]
