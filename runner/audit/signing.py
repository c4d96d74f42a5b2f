"""Ed25519 signatures of checkpoints, tombstones and seals. Only functions that sign or check load `cryptography`.

A signed body has the fields `key` (the public key, hexadecimal) and `signature`, which covers all other fields. SOURCE:
RFC 8032; the signed bytes are those of `statement`.
"""

import re
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.audit.chain import AuditError, canonical

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from runner.secrets.secret import Secret


PUBLIC = re.compile("[0-9a-f]{64}")  # a public key or a SHA-256, in hexadecimal


class Signer:
    """Signer with one private key of 32 bytes, as 64 hexadecimal digits. Raises ValueError for any other text."""

    __slots__ = ("_secret", "public")

    def __init__(self, secret: "Secret") -> None:
        self._secret = secret
        self.public = self._key().public_key().public_bytes_raw().hex()

    def signed(self, body: dict[str, object]) -> dict[str, object]:
        """Return `body` with the public key and the signature added."""
        whole = body | {"key": self.public}
        return whole | {"signature": self._key().sign(statement(whole)).hex()}

    def _key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self._secret.reveal()))


def has_valid_signature(body: dict[str, object]) -> bool:
    """Return True if a signed body has a valid signature of the key it names."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(body["key"])))
        key.verify(bytes.fromhex(str(body["signature"])), statement(body))
    except (InvalidSignature, ValueError, KeyError):
        return False
    return True


ITEM = "audit"
_NEW = "run `agent audit key new`"


def required_signer() -> "Signer":
    """Return the signer with the key in the keyring. Raises AuditError if there is no key, or the keyring fails."""
    found = stored_signer()
    if found is None:
        raise AuditError(Problem("the log cannot be signed", "the keyring contains no signing key", _NEW))
    return found


def stored_signer() -> "Signer | None":
    """Return the signer with the key in the keyring; None without a key or a keyring. Raises AuditError if the keyring
    fails."""
    from runner.secrets.keyring_store import DEFAULT, KeyringFailed, KeyringStore

    try:
        secret = KeyringStore().read(ITEM, DEFAULT)
        return Signer(secret) if secret is not None else None
    except KeyringFailed as error:
        if error.missing:
            return None
        raise AuditError(Problem("the log cannot be signed", f"the keyring: {error.why}", error.fix)) from None
    except ValueError:
        why = f"the entry `{ITEM}` of the keyring is not an Ed25519 key"
        raise AuditError(Problem("the log cannot be signed", why, f"{_NEW} --replace")) from None


def new_signer() -> "Signer":
    """Create a new key in the keyring, which replaces an earlier one. Raises KeyringFailed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from runner.secrets.keyring_store import DEFAULT, KeyringStore
    from runner.secrets.secret import Secret

    secret = Secret(Ed25519PrivateKey.generate().private_bytes_raw().hex())
    KeyringStore().write(ITEM, DEFAULT, secret)
    return Signer(secret)


def statement(body: dict[str, object]) -> bytes:
    """Return the bytes that the signature of a checkpoint, a tombstone or a seal covers: all fields but `signature`."""
    rest = {key: value for key, value in body.items() if key != "signature"}
    return b"ringfence audit 1\n" + canonical(rest).encode("ascii")
