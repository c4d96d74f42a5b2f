"""The key that signs the log: Ed25519, in the OS keyring under `ringfence` / `audit`, and nowhere else."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.audit.stores.store import AuditError

if TYPE_CHECKING:
    from runner.audit.signing import Signer
    from runner.config import Settings

ITEM = "audit"
_NEW = "run `agent audit key new`"


def signing(settings: "Settings") -> "Callable[[], Signer] | None":
    """What the log asks for its key when a checkpoint is due; None when nothing is to be signed (`audit.sign`)."""
    return needed if settings.values.get(("audit", "sign")) is True else None


def needed() -> "Signer":
    """The key. Raises AuditError when there is none, or the keyring does not give it."""
    found = kept()
    if found is None:
        raise AuditError(Problem("the log cannot be signed", "the keyring holds no key for it", _NEW))
    return found


def kept() -> "Signer | None":
    """The key, or None where there is none or no keyring. Raises AuditError when a keyring does not answer."""
    from runner.audit.signing import Signer
    from runner.secrets.keyring_store import DEFAULT, KeyringFailed, KeyringStore

    try:
        secret = KeyringStore().read(ITEM, DEFAULT)
        return Signer(secret) if secret is not None else None
    except KeyringFailed as error:
        if error.missing:
            return None
        raise AuditError(Problem("the log cannot be signed", f"the keyring: {error.why}", error.fix)) from None
    except ValueError:
        why = f"what the keyring holds under `{ITEM}` is no key of this kind"
        raise AuditError(Problem("the log cannot be signed", why, f"{_NEW} --replace")) from None


def made() -> "Signer":
    """A new key in the keyring, in the place of any before it. Raises KeyringFailed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from runner.audit.signing import Signer
    from runner.secrets.keyring_store import DEFAULT, KeyringStore
    from runner.secrets.secret import Secret

    secret = Secret(Ed25519PrivateKey.generate().private_bytes_raw().hex())
    KeyringStore().write(ITEM, DEFAULT, secret)
    return Signer(secret)
