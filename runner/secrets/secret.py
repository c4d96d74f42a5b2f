"""The value type that carries a credential to a provider's header, and the list of all values of this process.

Flow: `runner/secrets/resolve.py` -> `Secret` -> `runner/providers/connection.py`. Beside the providers, these
parts read a value: the keyring to store a key, the broker to add a credential to a request, the redactor to mask a
secret, `runner/audit/signing.py` to sign, `runner/mcp` to add the token of a tool server and to store it,
`runner/web/session_web.py` to add the key of a search service,
`runner/frontends/serve/http.py` for the token of its own clients, `runner/cli/remote.py` and
`runner/frontends/remote/tokens.py` to print and to hash the tokens of remote access, and this module to compare
secrets, to find them in bytes, and to show the last characters of a refused key.

A `Secret` registers itself when it is created and stays registered as long as the process runs: text that contains the
secret may be written later than the last use of the key.
"""

from collections.abc import Iterator, Mapping
from typing import NoReturn

from policy.model.verdict import ProblemError

MASK = "[secret]"
SHORTEST = 12  # characters; servers without keys are given words such as `ollama`, which would ruin ordinary text
LONGEST = 8192  # characters of a key; servers take no longer header


class SecretError(ProblemError):
    """An error for a missing or invalid credential. `problem` names the sources that were tried, never their values."""


class Secret:
    """A value that only `reveal()` returns.

    Printing, formatting, logging, pickling and JSON give no value, copying gives the same guarded object, and comparing
    takes constant time. The value is in a closure, so no attribute holds it and no inspector prints it.
    """

    __slots__ = ("_door",)

    def __init__(self, value: str) -> None:
        if not value:
            raise ValueError("a secret is not empty")
        object.__setattr__(self, "_door", lambda: value)
        if self not in _registered:
            _registered.append(self)

    def reveal(self) -> str:
        """Return the value. A call by a module that the docstring of this module does not name is a defect."""
        value: str = self._door()  # type: ignore[attr-defined]  # the slot is filled through object.__setattr__
        return value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret cannot be changed")

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # most runs hold at most one secret

        return compare_digest(_bytes(self), _bytes(other))

    __hash__ = None  # type: ignore[assignment]  # a hash would be a fingerprint of the value

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled")


_registered: list[Secret] = []  # in the order of registration


def _bytes(secret: Secret) -> bytes:
    return secret.reveal().encode("utf-8", "surrogatepass")


def usable(value: str) -> Secret | None:
    """Strip surrounding white space and wrap the value in a `Secret`.

    Return None if the value is empty, longer than 8,192 characters, or contains anything but visible ASCII characters.
    An HTTP library would quote such a value in its exception.
    """
    value = value.strip()
    fit = 0 < len(value) <= LONGEST and all("!" <= char <= "~" for char in value)
    return Secret(value) if fit else None


_ENDING = 4  # characters of a refused key that are shown


def ending(secret: Secret) -> str:
    """Return the last four characters of a key after three dots, so that the user can recognize the key; empty for a
    key of fewer than SHORTEST characters.
    """
    value = secret.reveal()
    return f"...{value[-_ENDING:]}" if len(value) >= SHORTEST else ""


def without_parts(text: str, secret: Secret) -> str:
    """Return `text` with every run of at least four characters that is a part of the key replaced by MASK.

    Servers that refuse a key quote its beginning and its end.
    """
    value = secret.reveal()
    size = min(_ENDING, len(value))
    parts = {value[at : at + size] for at in range(len(value) - size + 1)}
    shown: list[str] = []
    at = kept = 0
    while at + size <= len(text):
        if text[at : at + size] not in parts:
            at += 1
            continue
        end = at + size
        while text[end - size + 1 : end + 1] in parts and end < len(text):
            end += 1
        shown += [text[kept:at], MASK]
        at = kept = end
    return "".join([*shown, text[kept:]])


def store_command(provider: str) -> str:
    """Return the command that stores a key."""
    return f"agent auth login {provider}"


def registered_count() -> int:
    """Return the number of registered secrets. The number only grows, so a change means that there are new ones."""
    return len(_registered)


def masked_secrets() -> tuple[Secret, ...]:
    """Return all registered secrets that are long enough to be masked."""
    return tuple(secret for secret in _registered if len(secret.reveal()) >= SHORTEST)


def longest_masked() -> int:
    """Return the length in bytes of the longest secret that is masked."""
    return max((len(secret.reveal().encode()) for secret in masked_secrets()), default=0)


def holds_masked(data: bytes | bytearray) -> bool:
    """Return True if `data` contains the plain value of a secret that is masked."""
    return any(secret.reveal().encode() in data for secret in masked_secrets())


# Parts of a variable's name: `NPM_TOKEN`, `DB_PASSWORD`, `AWS_SECRET_ACCESS_KEY`, `GITHUB_PAT`.
_PARTS = frozenset(
    ("PASSWD", "PASS", "PASSPHRASE", "PWD", "CREDENTIAL", "CREDENTIALS", "AUTH", "PAT", "COOKIE", "TOKENS", "SECRETS")
)
_ENDS = ("TOKEN", "SECRET", "PASSWORD", "KEY")  # of a part: `GHTOKEN`, `PGPASSWORD`, `APIKEY`


def register_environment(environ: Mapping[str, str]) -> None:
    """Register the values of variables named like secrets, and passwords in addresses, from SHORTEST characters on."""
    for name, value in environ.items():
        if len(value) < SHORTEST:
            continue
        # The path of a key is no secret.
        values = [value.strip()] if names_secret(name) and not value.startswith(("/", "~")) else []
        if "://" in value and "@" in value:
            values += _logins(value)
        for each in values:
            if len(each) >= SHORTEST:
                Secret(each)


def names_secret(name: str) -> bool:
    """Return True if a variable with this name holds a secret or the location of one."""
    return any(part in _PARTS or part.endswith(_ENDS) for part in name.upper().split("_"))


def _logins(value: str) -> Iterator[str]:
    """Yield the passwords in addresses such as `https://name:password@host` (RFC 3986, userinfo)."""
    for rest in value.split("://")[1:]:
        login, at, _ = rest.partition("/")[0].rpartition("@")
        if at and ":" in login:
            yield login.partition(":")[2]
