"""A Merkle tree over the hashes of a chain's records: one hash for all of them, and short proofs for one of them.

SOURCE: RFC 9162 section 2.1 (the same tree as RFC 6962): a leaf is `sha256(0x00 || record hash)`, a node
`sha256(0x01 || left || right)`, and the left side of a split is the largest power of two.
"""

import hashlib
from collections.abc import Iterable

_sha256 = hashlib.sha256


def leaf(record: str) -> bytes:
    """The leaf of a record, from its hash in hexadecimal."""
    return _sha256(b"\0" + bytes.fromhex(record)).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return _sha256(b"\1" + left + right).digest()


class Tree:
    """A tree that grows. `peaks` are its whole subtrees, largest first: all that is needed to go on growing."""

    __slots__ = ("count", "peaks")

    def __init__(self, count: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.count = count
        self.peaks = list(peaks)

    @classmethod
    def of(cls, count: object, peaks: object) -> "Tree":
        """From what `told` gave. Raises ValueError when that is no tree."""
        if not isinstance(count, int) or not isinstance(peaks, list) or count < 0 or count.bit_count() != len(peaks):
            raise ValueError("no tree has these peaks")
        return cls(count, [_digest(peak) for peak in peaks])

    def add(self, grown: bytes) -> None:
        """One more leaf."""
        peaks, whole = self.peaks, self.count
        while whole & 1:
            grown = _sha256(b"\1" + peaks.pop() + grown).digest()
            whole >>= 1
        peaks.append(grown)
        self.count += 1

    @property
    def root(self) -> str:
        if not self.peaks:
            return _sha256().hexdigest()
        found = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            found = _node(peak, found)
        return found.hex()

    @property
    def told(self) -> list[str]:
        """The peaks as JSON holds them."""
        return [peak.hex() for peak in self.peaks]


def _digest(value: object) -> bytes:
    found = bytes.fromhex(value) if isinstance(value, str) else b""
    if len(found) != 32:
        raise ValueError("a peak is no hash")
    return found
