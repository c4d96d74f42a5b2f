"""Verification of a log: every hash, head, checkpoint and tombstone, and records whose hashes were stored elsewhere.

One pass reads all records. The index columns of the store are compared with the records at the same time.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from json import loads

from policy.model.frozen import dataclass
from runner.audit.chain import NAME, ZERO, Head, LogFaultError, LogStore, RecordRow, Walk, invalid_value_errors, seal
from runner.audit.checkpoint import MerkleTree, leaf, tree_of

_PROGRESS_EVERY = 8192  # records between two calls of `progress`

VerifyProgress = Callable[[int, int], None]  # called with the number of verified records and of all records


@dataclass(frozen=True, slots=True)
class Chain:
    """A verified chain.

    Attributes:
        count: number of its records, including pruned ones
        hash: hash of the last record
        root: root of the Merkle tree over all records
        pruned: number of removed records, which a tombstone replaces
        checkpoints: number of checkpoints
        signed: number of records that the last signed checkpoint covers
        keys: public keys of all signatures; the log does not prove the owners of these keys
    """

    log: str
    count: int
    hash: str
    root: str
    pruned: int = 0
    checkpoints: int = 0
    signed: int = 0
    keys: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """Return `COUNT:HASH` of the last record."""
        return f"{self.count}:{self.hash}"


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """Result of a successful verification: of one chain, or of several in a merged file.

    A head that is stored elsewhere proves later that no record was cut off.
    """

    chains: tuple[Chain, ...]

    @property
    def count(self) -> int:
        return sum(chain.count for chain in self.chains)

    @property
    def head(self) -> str:
        """Return the head of the only chain of a log; `0:000...` for an empty log."""
        return self.chains[0].head if self.chains else f"0:{ZERO}"


@dataclass(frozen=True, slots=True)
class BrokenChain:
    """Result of a failed verification. `id` is the first invalid record, or 0 if the store itself is invalid; `why` is
    the reason.
    """

    id: int
    why: str


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """Record that must be part of the log, because its hash was stored elsewhere.

    Attributes:
        number: number of the record
        hash: hash of the record
        root: Merkle root over all records up to this one; empty if unknown
        log: chain that the record belongs to; empty for any chain
    """

    number: int
    hash: str
    root: str = ""
    log: str = ""

    @classmethod
    def head(cls, text: str) -> "ExpectedRecord":
        """Return the expected record for `COUNT:HASH`. Raises ValueError if COUNT is not a number."""
        number, _, digest = text.partition(":")
        return cls(int(number), digest)


@dataclass(frozen=True, slots=True)
class Expected:
    """Conditions besides the chain itself: the records `noted` are in the chain.

    If there are `keys`, one of them must have made each signature, and a checkpoint must be signed. `vouched` permits a
    chain without a signed checkpoint, because the keys signed the expected records.
    """

    noted: tuple[ExpectedRecord, ...] = ()
    keys: tuple[str, ...] = ()
    vouched: bool = False


NOTHING_NOTED = Expected()


class _Fault(Exception):
    """Error for a record that is invalid."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.broken = BrokenChain(number, why)


def verify(
    store: LogStore, expected: Expected = NOTHING_NOTED, progress: VerifyProgress | None = None
) -> VerifiedLog | BrokenChain:
    """Verify the whole log and return the result. Raises AuditError only if the store cannot be read at all."""
    if unreadable := store.unreadable():
        return BrokenChain(0, unreadable)
    compared = _compared(store)
    last = 0
    try:
        with store.walking() as walk:
            checks: dict[str, _Check] = {}
            for done, row in enumerate(walk.rows(), 1):
                last = row.id
                check = checks.get(row.log)
                if check is None:
                    check = checks[row.log] = _Check(store, row, expected)
                check.take(row)
                if progress is not None and not done % _PROGRESS_EVERY:
                    progress(done, walk.count)
            chains = tuple(_ended(walk, checks, expected, last))
    except _Fault as fault:
        wait([compared])
        return fault.broken
    except sqlite3.DatabaseError as error:
        wait([compared])
        return BrokenChain(last + 1, f"the file is damaged from this record on ({error})")
    except invalid_value_errors():
        wait([compared])
        return BrokenChain(max(last, 1), "this program did not write the record, or the head of its chain")
    try:
        stray, faults = compared.result()
    except (sqlite3.DatabaseError, LogFaultError) as error:
        return BrokenChain(0, f"the index fields of the records cannot be read ({error})")
    if stray is not None:
        return BrokenChain(stray, "its index fields differ from its content")
    if faults:
        return BrokenChain(0, faults)
    return VerifiedLog(chains)


class _Check:
    """Verification of one chain, record by record."""

    __slots__ = (
        *("_keys", "_noted", "_one", "_vouched"),
        *("checkpoints", "digest", "keys", "name", "notes", "number", "pruned", "signed", "tree"),
    )

    def __init__(self, store: LogStore, first: RecordRow, expected: Expected) -> None:
        self.number, self.digest, self.tree, self.pruned = 0, ZERO, MerkleTree(), 0
        self.checkpoints = self.signed = 0
        self.name = ""
        self.keys: dict[str, None] = {}
        self._keys, self._vouched = expected.keys, expected.vouched
        self._one = not store.merged
        self.notes = {each for each in expected.noted if each.log in ("", first.log)}  # expected and not reached yet
        self._noted = {each.number for each in self.notes}
        tombstone = store.latest("tombstone", first.log)
        if tombstone is not None:
            self._skip_pruned(tombstone)

    def _skip_pruned(self, tombstone: RecordRow) -> None:
        """Begin after the pruned records. The tombstone is a later record of the chain, and is checked there."""
        try:
            self.tree = tree_of(tombstone)
            self.number = self.pruned = self.tree.count
            self.digest = bytes.fromhex(loads(tombstone.body)["hash"]).hex()
        except invalid_value_errors():
            raise _Fault(tombstone.id, "it is a tombstone that is not valid") from None
        for each in [each for each in self.notes if each.number <= self.number]:
            if (each.number, each.hash) != (self.number, self.digest):
                raise _Fault(tombstone.id, f"the expected record {each.number} was pruned, so it cannot be checked")
            self.notes.remove(each)

    def take(self, row: RecordRow) -> None:
        """Check the next record of the chain. Raises _Fault."""
        self.number = number = self.number + 1
        if row.number != number:
            if row.number <= self.pruned:
                raise _Fault(row.id, "it is present, although a tombstone says that it was pruned")
            if row.number < number:
                raise _Fault(row.id, f"record {row.number} of its chain exists already")
            first = max(row.id - row.number + number, 1)
            raise _Fault(first, f"record {number} is missing; the next one is {row.number}")
        if not isinstance(row.body, str):
            raise _Fault(row.id, "its content is not text")
        if row.kind in ("checkpoint", "tombstone"):
            self._mark(row)
        digest = self.digest = seal(self.digest, row.body)
        if row.hash != digest:
            raise _Fault(row.id, "its content, its place or its hash was changed after it was written")
        self.tree.add(leaf(digest))
        if number == 1:
            self.name = digest[:NAME]
        if number not in self._noted:
            return
        for noted in [each for each in self.notes if each.number == number]:
            if noted.hash == digest:
                if noted.root and noted.root != self.tree.root:
                    raise _Fault(row.id, "the Merkle root of the records up to it is not the expected one")
                self.notes.remove(noted)
            elif self._one or noted.log:
                raise _Fault(row.id, "it is not the expected record: the log was rewritten")

    def _mark(self, row: RecordRow) -> None:
        """Check a checkpoint or a tombstone. `self.tree` holds all records before it."""
        if seal(self.digest, row.body) != row.hash:
            return  # reported by `take`, with the message for any record
        try:
            body, tree = loads(row.body), tree_of(row)
            root, digest, log = body["root"], body["hash"], body["log"]
        except invalid_value_errors():
            raise _Fault(row.id, f"it is a {row.kind} that is not valid") from None
        if row.kind == "checkpoint":
            self.checkpoints += 1
            held = (tree.count, tree.root, root, digest, log)
            if held != (self.tree.count, self.tree.root, self.tree.root, self.digest, row.log):
                raise _Fault(row.id, "it is a checkpoint that does not match the records before it")
        elif (tree.root, log) != (root, row.log):
            raise _Fault(row.id, "it is a tombstone whose root does not match the pruned records")
        if "signature" in body:
            self._signature(row, body)

    def _signature(self, row: RecordRow, body: dict[str, object]) -> None:
        from runner.audit.signing import has_valid_signature

        if not has_valid_signature(body):
            raise _Fault(row.id, f"it is a {row.kind} whose signature is not valid")
        if self._keys and body["key"] not in self._keys:
            raise _Fault(row.id, f"it is a {row.kind} that was signed with another key")
        self.keys[str(body["key"])] = None
        if row.kind == "checkpoint":
            self.signed = self.tree.count

    def end(self, head: Head, last: int) -> Chain:
        """Compare the head and return the result. `last` is the id of the last record of the store. Raises _Fault."""
        if head.number > self.number:
            raise _Fault(last + 1, f"record {self.number + 1} is missing: records were removed at the end")
        if (head.number, head.hash) != (self.number, self.digest):
            raise _Fault(max(last, 1), "the head of the log does not name it as the last record")
        if not self.pruned and head.log != self.name:  # of a pruned chain, the tombstone has the name: see `_mark`
            raise _Fault(1, "the head of the log names another first record")
        if self._keys and not self.signed and not self._vouched:
            raise _Fault(1, "no checkpoint is signed with the given key")
        return Chain(
            *(head.log, self.number, self.digest, self.tree.root),
            *(self.pruned, self.checkpoints, self.signed, tuple(self.keys)),
        )


def _ended(walk: Walk, checks: dict[str, _Check], expected: Expected, last: int) -> Iterator[Chain]:
    heads = {head.log: head for head in walk.heads}
    for log, check in checks.items():
        if log not in heads:
            raise _Fault(max(last, 1), "the head of the log does not name it as the last record")
        yield check.end(heads[log], last)
    for head in walk.heads:
        if head.log not in checks and head.number:
            raise _Fault(1, "record 1 is missing: records were removed at the end")
    for noted in expected.noted:
        asked = [check for log, check in checks.items() if noted.log in ("", log)]
        if not asked and checks:
            raise _Fault(1, f"the expected head is of another log, `{noted.log}`")
        if all(noted in check.notes for check in asked):
            raise _Fault(last + 1, f"the log ends before the expected record {noted.number}")


def _compared(store: LogStore) -> Future[tuple[int | None, str]]:
    """Compare the index columns with the records in another thread, because SQLite does most of the work.

    The result is the first record with wrong columns, and the faults of the store if there is no such record.
    """
    result: Future[tuple[int | None, str]] = Future()

    def compare() -> None:
        try:
            stray = store.strays()
            result.set_result((stray, store.faults() if stray is None else ""))
        except Exception as error:  # raised in the thread that asks for the result
            result.set_exception(error)

    threading.Thread(target=compare, daemon=True).start()
    return result
