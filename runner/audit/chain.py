"""The chain that every store keeps alike: the one spelling of a record, its hash, and what a signature covers. No I/O.

`hash = sha256(hash of the record before || canonical bytes)`; before the first there are 32 zero bytes.
"""

import hashlib
import json
from collections.abc import Callable

from policy.model.frozen import dataclass

ZERO = "0" * 64
NAME = 16  # characters of the first record's hash: they name the chain, in every copy of it


def canonical(body: dict[str, object]) -> str:
    """The one spelling of a record: ASCII (lone surrogates and NULs are escapes), sorted keys, no spaces, no NaN."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def seal(previous: str, text: str) -> str:
    """The hash of the record `text` that follows the one with the hash `previous`."""
    return hashlib.sha256(bytes.fromhex(previous) + text.encode("utf-8", "surrogatepass")).hexdigest()


def digest(said: dict[str, object]) -> str:
    """The name of a note that several records share."""
    return hashlib.sha256(canonical(said).encode("ascii")).hexdigest()


def cleaned(body: dict[str, object], redact: Callable[[str], str]) -> tuple[dict[str, object], list[str]]:
    """`body` without secrets, and the names of the fields that held one, such as `action.script`."""
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
    """What the signature of a checkpoint, a tombstone or a seal is over: all of it but the signature itself."""
    rest = {key: value for key, value in body.items() if key != "signature"}
    return b"ringfence audit 1\n" + canonical(rest).encode("ascii")


@dataclass(frozen=True, slots=True)
class Record:
    """One sealed record. `id` counts from 1 without gaps. `body` is its JSON object, with today's names of rules and
    rights in place of those of earlier versions, so that only the store can tell its hash.

    Where several logs were merged, `log` names the chain that it belongs to, and is empty otherwise. `number` is its
    place in its chain, the same as the id unless logs were merged.
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
    """A chain that holds: `count` records up to the head `hash`, `root` of the Merkle tree over all of them.

    `pruned` of them were removed, and a tombstone stands for them. Of its `checkpoints` the last signed one covers the
    first `signed` records; `keys` are the public keys of all signatures, none of them known to be anybody's.
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
class Sealed:
    """Every record holds: of one chain, or of several in a file that was merged.

    Note the heads elsewhere to be able to prove later that nothing was cut off.
    """

    chains: tuple[Chain, ...]

    @property
    def count(self) -> int:
        return sum(chain.count for chain in self.chains)

    @property
    def head(self) -> str:
        """Of the one chain that a log has; `0:000...` of an empty one."""
        return self.chains[0].head if self.chains else f"0:{ZERO}"


@dataclass(frozen=True, slots=True)
class Broken:
    """`id` is the first record that does not hold; `why` says what is wrong with it. 0: the store itself does not."""

    id: int
    why: str
