"""Registry of every secret that this process has held, for the redactor.

A `Secret` registers itself when it is created and stays registered as long as the process runs: text that contains the
secret may be written later than the last use of the key.
"""

from typing import Protocol

MASK = "[secret]"
SHORTEST = 12  # characters; servers without keys are given words such as `ollama`, which would ruin ordinary text


class Revealable(Protocol):
    """A secret whose value can be read. `runner/secrets/secret.py` has the one implementation."""

    def reveal(self) -> str:
        """Return the value."""


_known: dict[int, Revealable] = {}  # by order of arrival


def register(secret: Revealable) -> None:
    """Add a secret to the registry. Adding a secret again changes nothing."""
    if not any(known == secret for known in _known.values()):
        _known[len(_known)] = secret


def count() -> int:
    """Return the number of registered secrets. The number only grows, so a change means that there are new ones."""
    return len(_known)


def everything() -> tuple[Revealable, ...]:
    """Return all registered secrets that are long enough to be masked."""
    return tuple(secret for secret in _known.values() if len(secret.reveal()) >= SHORTEST)


def longest() -> int:
    """Return the length in bytes of the longest secret that is masked."""
    return max((len(secret.reveal().encode()) for secret in everything()), default=0)


def held_in(data: bytes | bytearray) -> bool:
    """Return True if `data` contains the plain value of a secret that is masked."""
    return any(secret.reveal().encode() in data for secret in everything())


def forget() -> None:
    """Empty the registry. For tests, which create many secrets in one process."""
    _known.clear()
