"""Credentials: where they are found, and the one value type that carries them to a provider's header.

Flow: environment or OS keyring -> `Secret` -> `runner/providers/connection.py`. Beside the providers, only
`runner/redactor.py` looks at a value, to mask it.
"""

import hmac
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import NoReturn

from policy.verdict import Problem

KEYRING_SERVICE = "ringfence"
KEYRING_PATIENCE = 5.0  # seconds; a locked keyring may wait for a dialog that nobody sees
MASK = "[secret]"

# The environment variable that each provider's own tools use.
VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
}


class SecretError(Exception):
    """No usable credential. `problem` names what was tried, never what was found."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Secret:
    """A value with one door, `reveal()`.

    Printing, formatting, logging, pickling and JSON give no value, copying gives the same guarded object, and
    comparing takes constant time. The value sits in a closure, so no attribute holds it and no inspector prints it.
    """

    __slots__ = ("_door",)

    def __init__(self, value: str) -> None:
        if not value:
            raise ValueError("a secret is not empty")
        object.__setattr__(self, "_door", lambda: value)

    def reveal(self) -> str:
        """The value. Every use of this word outside the providers and the redactor is a defect."""
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


def find_secret(provider: str, environ: Mapping[str, str], *, patience: float = KEYRING_PATIENCE) -> Secret:
    """The API key of `provider`: its environment variable, else the keyring item `ringfence` / `provider`.

    Raises SecretError when there is none, when the keyring does not answer within `patience` seconds, or when the
    key holds characters that no HTTP header may carry.
    """
    variable = VARIABLES.get(provider)
    if variable and (value := environ.get(variable, "").strip()):
        return _usable(value, f"environment variable `{variable}`")
    value = (_ask_keyring(provider, variable, patience) or "").strip()
    if value:
        return _usable(value, f"keyring item `{KEYRING_SERVICE}` / `{provider}`")
    raise _missing(provider, variable, "the keyring has no such item")


def from_environment(provider: str, environ: Mapping[str, str]) -> Secret | None:
    """The key from the environment alone, or None: for servers on this machine, which often need no key."""
    variable = VARIABLES.get(provider)
    value = environ.get(variable, "").strip() if variable else ""
    return _usable(value, f"environment variable `{variable}`") if value else None


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """`text` with every exact occurrence of a secret's value masked; longer values first."""
    for value in sorted((secret.reveal() for secret in secrets), key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def _bytes(secret: Secret) -> bytes:
    return secret.reveal().encode("utf-8", "surrogatepass")


def _usable(value: str, source: str) -> Secret:
    # An HTTP library would quote an unusable header value in its exception, so such a key stops here.
    if not all("!" <= char <= "~" for char in value):
        raise SecretError(
            Problem(
                what="the API key cannot be used",
                why=f"the value in the {source} has spaces, line ends or other characters that a key never has",
                fix="store the key again, as one line of plain characters",
            )
        )
    return Secret(value)


def store_command(provider: str) -> str:
    """What a person types to keep a key; by our own interpreter, which certainly has the keyring package."""
    return f"{sys.executable} -m keyring set {KEYRING_SERVICE} {provider}"


def _missing(provider: str, variable: str | None, keyring_said: str) -> SecretError:
    tried = [f"environment variable `{variable}` is not set"] if variable else []
    tried.append(f"keyring item `{KEYRING_SERVICE}` / `{provider}`: {keyring_said}")
    ways = [f"set `{variable}`, or run"] if variable else ["run"]
    ways.append(f"`{store_command(provider)}`")
    return SecretError(Problem(f"no API key for `{provider}`", "; ".join(tried), " ".join(ways)))


def _ask_keyring(provider: str, variable: str | None, patience: float) -> str | None:
    found: list[str | None] = []
    failed: list[str] = []

    def ask() -> None:
        try:
            import keyring  # slow to import, and its back ends load plug-ins

            found.append(keyring.get_password(KEYRING_SERVICE, provider))
        # Seam: keyring back ends are third-party plug-ins that raise anything. Only the class name is kept, since
        # nobody knows what their messages quote.
        except Exception as error:
            failed.append(_keyring_trouble(error))

    # A thread, because nothing else can leave a call that hangs in a system library; a daemon, so exit is not held.
    thread = threading.Thread(target=ask, name="keyring", daemon=True)
    thread.start()
    thread.join(patience)
    if thread.is_alive():
        raise _missing(provider, variable, f"the keyring did not answer within {patience:g} seconds")
    if failed:
        raise _missing(provider, variable, failed[0])
    return found[0]


def _keyring_trouble(error: Exception) -> str:
    match type(error).__name__:
        case "NoKeyringError":
            return "this machine offers no keyring"
        case "KeyringLocked":
            return "the keyring is locked"
        case "InitError":
            return "the keyring could not be opened"
        case name:
            return f"the keyring failed ({name})"
