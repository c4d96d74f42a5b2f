"""Seal: a small JSON summary of a log at one moment, to be stored where the writer of the log cannot change it.

A seal shows later if the log still begins with exactly those records. In CI, where there is no keyring, a seal
replaces a signature, because the program cannot change the place where the seal is stored.
"""

import sys
from collections.abc import Callable
from json import loads
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner import VERSION
from runner.audit.chain import AuditError, LogStore, Wanted, convert_invalid_values, now
from runner.audit.checkpoint import tree_over
from runner.audit.signing import PUBLIC, has_valid_signature
from runner.audit.verify import ExpectedRecord

if TYPE_CHECKING:
    from runner.audit.signing import Signer

FORMAT = "ringfence audit seal 1"
MOST = 64 << 20  # bytes of a seal; each checkpoint in it has a few hundred


def create_seal(store: LogStore, signer: "Callable[[], Signer | None]") -> dict[str, object]:
    """Return the seal of the log as it is now, signed if there is a key. Raises AuditError if the log cannot be
    sealed."""
    if store.merged:
        raise AuditError(Problem("the log cannot be sealed", "it was merged from several logs", "seal each of them"))
    with convert_invalid_values("the log cannot be sealed"), store.walking() as walk:
        if not walk.heads or not walk.heads[0].number:
            raise AuditError(Problem("the log cannot be sealed", "it contains no record yet", "run a command first"))
        head = walk.heads[0]
        body: dict[str, object] = {
            "format": FORMAT,
            "time": now(),
            **{"log": head.log, "count": head.number, "hash": head.hash, "root": tree_over(store, head.number).root},
            "checkpoints": [_checkpoint(row.body) for row in store.select(Wanted(("checkpoint",)))][::-1],
            "versions": {"ringfence": VERSION, "python": sys.version.split()[0], "schema": store.schema},
        }
    signs = signer()
    return signs.signed(body) if signs is not None else body


def _checkpoint(text: str) -> dict[str, object]:
    body = loads(text)
    return {name: body[name] for name in ("count", "root", "key", "signature") if name in body}


def read_seal(text: bytes, keys: tuple[str, ...]) -> ExpectedRecord:
    """Return the record that must be in the chain according to a seal.

    Raises AuditError if the text is not a seal, if its signature is invalid, or if `keys` is not empty and none of them
    signed the seal.
    """
    try:
        body = loads(text)
        log, count, digest, root = body["log"], body["count"], body["hash"], body["root"]
        good = body["format"] == FORMAT and isinstance(log, str) and isinstance(count, int) and count > 0
        if not good or not PUBLIC.fullmatch(digest) or not PUBLIC.fullmatch(root):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        why = f"it is not what `agent audit seal` writes (`{FORMAT}`)"
        raise AuditError(Problem("the seal cannot be read", why, "give an unchanged file of that command")) from None
    if "signature" in body and not has_valid_signature(body):
        why = "its signature does not match its key"
        raise AuditError(Problem("the seal is not valid", why, "it was changed after it was written"))
    if keys and body.get("key") not in keys:
        why = "it is not signed" if "signature" not in body else f"it is signed with {body.get('key')}"
        raise AuditError(Problem("the seal is not valid", why, "give a seal that was signed with that key"))
    return ExpectedRecord(count, digest, root, log)
