"""Checkpoints: records that hold the root of a Merkle tree over all records before them, signed if there is a key."""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from json import loads
from typing import TYPE_CHECKING

from runner.audit.chain import AuditError, LogStore, RecordRow, append, invalid_value_errors, now

if TYPE_CHECKING:
    from runner.audit.signing import Signer


_sha256 = hashlib.sha256


def leaf(record: str) -> bytes:
    """Return the Merkle leaf of a record from its hash in hexadecimal."""
    return _sha256(b"\0" + bytes.fromhex(record)).digest()


class MerkleTree:
    """Merkle tree to which leaves are appended. `peaks` are the roots of its complete subtrees, largest first; an
    append needs only them.
    """

    __slots__ = ("count", "peaks")

    def __init__(self, count: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.count = count
        self.peaks = list(peaks)

    @classmethod
    def of(cls, count: object, peaks: object) -> "MerkleTree":
        """Return the tree with the peaks that `peak_texts` returned. Raises ValueError if they do not form a tree."""
        if not isinstance(count, int) or not isinstance(peaks, list) or count < 0 or count.bit_count() != len(peaks):
            raise ValueError("no Merkle tree has these peaks")
        digests = [bytes.fromhex(peak) if isinstance(peak, str) else b"" for peak in peaks]
        if any(len(digest) != 32 for digest in digests):
            raise ValueError("a peak is not a hash")
        return cls(count, digests)

    def add(self, node: bytes) -> None:
        """Append one leaf."""
        peaks, count = self.peaks, self.count
        while count & 1:
            node = _sha256(b"\1" + peaks.pop() + node).digest()
            count >>= 1
        peaks.append(node)
        self.count += 1

    @property
    def root(self) -> str:
        if not self.peaks:
            return _sha256().hexdigest()
        node = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            node = _sha256(b"\1" + peak + node).digest()
        return node.hex()

    @property
    def peak_texts(self) -> list[str]:
        """Return the peaks in hexadecimal, as JSON values."""
        return [peak.hex() for peak in self.peaks]


def checkpoint(store: LogStore, signer: "Callable[[], Signer] | None") -> int | None:
    """Add a checkpoint to the log and return its number. Return None if the last record is a checkpoint, if there is no
    record, or if only the owner of the log may add one.

    If the key cannot be used, the checkpoint is written without a signature, with the reason. Raises AuditError.
    """
    if not store.marks:
        return None
    signs, unsigned = None, ""
    try:
        signs = signer() if signer is not None else None  # may ask a keyring, so it is done before the log is locked
    except AuditError as error:
        unsigned = error.problem.why
    with store.writing("a checkpoint could not be recorded") as writing:
        head = writing.head
        last = store.latest("checkpoint")
        if head.number == (last.number if last is not None else 0):
            return None
        tree = tree_over(store, head.number)
        body: dict[str, object] = {"kind": "checkpoint", "time": now(), "log": head.log}
        body |= {"count": head.number, "hash": head.hash, "root": tree.root, "peaks": tree.peak_texts}
        body |= {"unsigned": unsigned} if unsigned else {}
        return append(writing, signs.signed(body) if signs is not None else body)


def tree_over(store: LogStore, count: int) -> MerkleTree:
    """Return the tree over the first `count` records of the chain that is appended to.

    The computation starts from the newest stored tree with at most `count` records.
    """
    trees = [MerkleTree()]
    for row in map(store.latest, ("checkpoint", "tombstone")):
        with suppress(*invalid_value_errors()):  # `verify` reports an invalid one
            trees += [tree_of(row)] if row is not None else []
    tree = max((tree for tree in trees if tree.count <= count), key=lambda tree: tree.count)
    for digest in store.hashes(tree.count + 1, count):
        tree.add(leaf(digest))
    return tree


def tree_of(row: RecordRow) -> MerkleTree:
    """Return the tree that a checkpoint or a tombstone holds. Raises one of `invalid_value_errors` for invalid data."""
    body = loads(row.body)
    return MerkleTree.of(body.get("count" if row.kind == "checkpoint" else "last"), body.get("peaks"))
