"""Secrets in environment variables, found by the names of the variables and by passwords in addresses."""

from collections.abc import Iterator, Mapping

from runner.secrets.registry import SHORTEST

# Parts of a variable's name: `NPM_TOKEN`, `DB_PASSWORD`, `AWS_SECRET_ACCESS_KEY`, `GITHUB_PAT`.
_PARTS = frozenset(
    ("PASSWD", "PASS", "PASSPHRASE", "PWD", "CREDENTIAL", "CREDENTIALS", "AUTH", "PAT", "COOKIE", "TOKENS", "SECRETS")
)


_ENDS = ("TOKEN", "SECRET", "PASSWORD", "KEY")  # of a part: `GHTOKEN`, `PGPASSWORD`, `APIKEY`


def from_environment(environ: Mapping[str, str]) -> None:
    """Register every value that has the name of a secret, and every password in an address."""
    for value in _values(environ):
        if len(value) >= SHORTEST:
            from runner.secrets.secret import Secret  # loaded only where the environment holds one

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
    """Return True if a variable with this name holds a secret or the location of one."""
    return any(part in _PARTS or part.endswith(_ENDS) for part in name.upper().split("_"))


def _logins(value: str) -> Iterator[str]:
    """Yield the passwords in addresses such as `https://name:password@host` (RFC 3986, userinfo)."""
    for rest in value.split("://")[1:]:
        login, at, _ = rest.partition("/")[0].rpartition("@")
        if at and ":" in login:
            yield login.partition(":")[2]
