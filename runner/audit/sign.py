"""Ed25519 signatures of checkpoints, tombstones and seals. Only making or checking one loads `cryptography`.

A signed body names its public key (`key`, hexadecimal) and ends with `signature`, over all the rest of it.
"""

from typing import TYPE_CHECKING

from policy.record import dataclass
from runner.audit.chain import statement

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key, as 32 bytes in hexadecimal. Not shown, and not kept anywhere but in the keyring."""

    private: str

    def __repr__(self) -> str:
        return "Signer()"

    @property
    def public(self) -> str:
        return self._key().public_key().public_bytes_raw().hex()

    def signed(self, body: dict[str, object]) -> dict[str, object]:
        """`body` with the public key and the signature."""
        whole = body | {"key": self.public}
        return whole | {"signature": self._key().sign(statement(whole)).hex()}

    def _key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.private))


def holds(body: dict[str, object]) -> bool:
    """Whether the signature of a signed body is that of the key it names."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(body["key"])))
        key.verify(bytes.fromhex(str(body["signature"])), statement(body))
    except (InvalidSignature, ValueError, KeyError):
        return False
    return True
