"""The value type that carries a credential to a provider's header.

Flow: `runner/secrets/resolve.py` -> `Secret` -> `runner/providers/connection.py`. Beside the providers, only the
keyring, when a key is stored, and `runner/secrets/redactor.py`, to mask it, read a value.
"""

import hmac
from typing import NoReturn

from policy.model.verdict import ProblemError
from runner.secrets import registry
from runner.secrets.registry import MASK as MASK

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
        registry.register(self)

    def reveal(self) -> str:
        """Return the value. Every call outside the providers, the keyring and the redactor is a defect."""
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
        return hmac.compare_digest(_bytes(self), _bytes(other))

    __hash__ = None  # type: ignore[assignment]  # a hash would be a fingerprint of the value

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled")


def _bytes(secret: Secret) -> bytes:
    return secret.reveal().encode("utf-8", "surrogatepass")


def usable(value: str) -> Secret | None:
    """Strip surrounding white space and wrap the value in a `Secret`.

    Return None if the value is empty, longer than 8,192 characters, or contains a character that is not allowed in an
    HTTP header. An HTTP library would quote such a value in its exception.
    """
    value = value.strip()
    fit = 0 < len(value) <= LONGEST and all("!" <= char <= "~" for char in value)
    return Secret(value) if fit else None


def store_command(provider: str) -> str:
    """Return the command that stores a key."""
    return f"agent auth login {provider}"
