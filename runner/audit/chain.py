"""Hash chain of audit records: canonical form, hashes and signed statements, the same for every store. No I/O.

`hash = sha256(hash of the previous record || canonical bytes)`; the first record follows 32 zero bytes.
"""

import hashlib
import json
from collections.abc import Callable

from policy.model.frozen import dataclass

ZERO = "0" * 64
NAME = 16  # characters of the first record's hash: they name the chain, in every copy of it


def canonical(body: dict[str, object]) -> str:
    """Return `value` as canonical JSON: ASCII (lone surrogates and NUL are escaped), sorted keys, no spaces, no NaN."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def seal(previous: str, text: str) -> str:
    """Return the hash of the record `text` that follows the record with the hash `previous`."""
    return hashlib.sha256(bytes.fromhex(previous) + text.encode("utf-8", "surrogatepass")).hexdigest()


def digest(said: dict[str, object]) -> str:
    """Return the name of a note that several records share."""
    return hashlib.sha256(canonical(said).encode("ascii")).hexdigest()


def cleaned(body: dict[str, object], redact: Callable[[str], str]) -> tuple[dict[str, object], list[str]]:
    """Return `body` without secrets, and the names of the fields that held one, such as `action.script`."""
    lost: dict[str, None] = {}

    def clean(text: str, place: str) -> str:
        shown = redact(text)
        if shown != text:
            lost[place] = None
        return shown

    def each(value: object, place: str) -> object:
        match value:
            case str():
                return clean(value, place)
            case list():
                return [each(item, place) for item in value]
            case dict():
                shown = {key: clean(key, place) for key in value}  # a path may be a key, and hold one
                return {shown[key]: each(item, f"{place}.{shown[key]}") for key, item in value.items()}
            case _:
                return value

    return {key: each(value, key) for key, value in body.items()}, list(lost)


def statement(body: dict[str, object]) -> bytes:
    """Return the bytes that the signature of a checkpoint, a tombstone or a seal covers: all fields but `signature`."""
    rest = {key: value for key, value in body.items() if key != "signature"}
    return b"ringfence audit 1\n" + canonical(rest).encode("ascii")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log.

    Attributes:
        id: number in the store, from 1 without gaps
        body: the JSON object, with today's names of rules and rights in place of those of earlier versions, so that
            only the store can compute the hash
        log: name of the record's chain in a merged file; empty otherwise
        number: number in the chain; equal to `id` unless logs were merged
    """

    id: int
    hash: str
    body: dict[str, object]
    log: str = ""
    number: int = 0

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))


@dataclass(frozen=True, slots=True)
class Chain:
    """A verified chain.

    Attributes:
        count: number of its records
        hash: hash of the last record
        root: root of the Merkle tree over all records
        pruned: number of removed records, which a tombstone replaces
        checkpoints: number of checkpoints
        signed: number of records that the last signed checkpoint covers
        keys: public keys of all signatures; nothing proves whose keys these are
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
        return f"{self.count}:{self.hash}"


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """Result of a verification in which every record holds: of one chain, or of several in a merged file.

    Keep the heads elsewhere to be able to prove later that no record was cut off.
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
    """Result of a failed verification. `id` is the first record that does not hold, and 0 if the store itself does not;
    `why` is the reason.
    """

    id: int
    why: str
