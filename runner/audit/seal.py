"""A seal: what there is to know about a log at one moment, small enough to be kept elsewhere, as JSON.

Whoever has it can tell later whether the log still begins with those very records. In CI, where there is no keyring,
it takes the place of a signature: the place where it is kept is what vouches for it.
"""

import sys
from collections.abc import Callable
from json import loads
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.audit.checkpoint import grown
from runner.audit.encode import now
from runner.audit.signing import PUBLIC, holds
from runner.audit.stores.store import AuditError, Store, Wanted, sound
from runner.audit.verify import Noted
from runner.version import VERSION

if TYPE_CHECKING:
    from runner.audit.signing import Signer

FORMAT = "ringfence audit seal 1"
MOST = 64 << 20  # bytes of a seal; a checkpoint takes a few hundred


def sealed(store: Store, signer: "Callable[[], Signer | None]") -> dict[str, object]:
    """The seal of a log as it is now, signed where there is a key. Raises AuditError for what cannot be sealed."""
    if store.merged:
        raise AuditError(Problem("the log cannot be sealed", "it was merged from several", "seal each of them"))
    with sound("the log cannot be sealed"), store.walking() as walk:
        if not walk.heads or not walk.heads[0].number:
            raise AuditError(Problem("the log cannot be sealed", "it holds no record yet", "run something first"))
        head = walk.heads[0]
        body: dict[str, object] = {
            "format": FORMAT,
            "time": now(),
            **{"log": head.log, "count": head.number, "hash": head.hash, "root": grown(store, head.number).root},
            "checkpoints": [_checkpoint(row.body) for row in store.select(Wanted(("checkpoint",)))][::-1],
            "versions": {"ringfence": VERSION, "python": sys.version.split()[0], "schema": store.schema},
        }
    signs = signer()
    return signs.signed(body) if signs is not None else body


def _checkpoint(text: str) -> dict[str, object]:
    body = loads(text)
    return {name: body[name] for name in ("count", "root", "key", "signature") if name in body}


def read_seal(text: bytes, keys: tuple[str, ...]) -> Noted:
    """What a seal says must lie on the chain. Raises AuditError when it is none, or its signature does not hold, or
    it is not signed by one of `keys` where any are given."""
    try:
        body = loads(text)
        log, count, digest, root = body["log"], body["count"], body["hash"], body["root"]
        good = body["format"] == FORMAT and isinstance(log, str) and isinstance(count, int) and count > 0
        if not good or not PUBLIC.fullmatch(digest) or not PUBLIC.fullmatch(root):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        why = f"it is not what `agent audit seal` writes (`{FORMAT}`)"
        raise AuditError(Problem("the seal cannot be read", why, "give the file as it was written")) from None
    if "signature" in body and not holds(body):
        why = "its signature is not that of the key it names"
        raise AuditError(Problem("the seal does not hold", why, "it was changed after it was written"))
    if keys and body.get("key") not in keys:
        why = "it is not signed" if "signature" not in body else f"it is signed with {body.get('key')}"
        raise AuditError(Problem("the seal does not hold", why, "give the seal that was made with that key"))
    return Noted(count, digest, root, log)
