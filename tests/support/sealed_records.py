"""Audit logs with signed checkpoints, and changes of their records."""

import json
from collections.abc import Callable
from pathlib import Path

from runner.audit.chain import canonical, seal
from runner.audit.log import AuditLog
from runner.audit.signing import Signer
from runner.audit.verify import BrokenChain, Chain, Expected, VerifiedLog, verify
from runner.secrets.secret import Secret
from tests.support.audit_records import fence_down

SIGNER, OTHER = Signer(Secret("11" * 32)), Signer(Secret("22" * 32))


def whole(path: Path, **expected: object) -> Chain:
    """The one chain of a log that holds."""
    with AuditLog.open_to_read(path) as log:
        result = verify(log.store, Expected(**expected))  # type: ignore[arg-type]  # fields of Expected
    assert isinstance(result, VerifiedLog), result
    (chain,) = result.chains
    return chain


def broken(path: Path, **expected: object) -> BrokenChain:
    with AuditLog.open_to_read(path) as log:
        result = verify(log.store, Expected(**expected))  # type: ignore[arg-type]  # fields of Expected
    assert isinstance(result, BrokenChain), result
    return result


def resealed(path: Path, change: Callable[[dict[str, object]], None], at: int = 12) -> None:
    """Change a record and rebuild the chain, as an owner of the file who knows the format could."""
    with fence_down(path) as raw:
        previous = raw.execute("SELECT hash FROM records WHERE id = ?", (at - 1,)).fetchone()[0]
        for number, text in raw.execute("SELECT id, body FROM records WHERE id >= ? ORDER BY id", (at,)).fetchall():
            body = json.loads(text)
            if number == at:
                change(body)
            previous = seal(previous, canonical(body))
            raw.execute("UPDATE records SET body = ?, hash = ? WHERE id = ?", (canonical(body), previous, number))
        raw.execute("UPDATE logs SET hash = ?", (previous,))
