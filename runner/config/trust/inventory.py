"""What a repository brings, as a value: its entries, the one hash that stands for all of them, and how two differ."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from hashlib import sha256

from policy.model.frozen import dataclass

# In what is hashed, so that a later version, which may use more of these kinds, asks again.
_FORMAT = "ringfence-trust-2"


class Kind(Enum):
    """What an entry is, in one word for a person."""

    CONFIGURATION = "configuration"
    INSTRUCTIONS = "instructions"
    PROMPT = "prompt"
    COMMAND = "command"
    HOOK = "hook"
    SKILL = "skill"
    SERVERS = "servers"

    @property
    def used(self) -> bool:
        """Whether this version does anything with it."""
        return self in (Kind.CONFIGURATION, Kind.INSTRUCTIONS, Kind.PROMPT, Kind.COMMAND, Kind.SKILL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or what lies where one would be. `path` is relative to the workspace (`../` is above it), and as
    untrusted as its content.

    `refused` says why it is not read: it is never used then, whatever a person says to the rest, and `sha256` is empty.
    """

    path: str
    kind: Kind
    executable: bool = False
    size: int = 0
    sha256: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that `workspace` brings, in the order of the paths; `contents` are the very bytes that were hashed."""

    workspace: str
    entries: tuple[Entry, ...] = ()
    contents: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def sha256(self) -> str:
        """One hash for all of it, the same wherever the workspace lies."""
        return hash_of(self.entries)

    def hashes(self, kind: Kind) -> dict[str, str]:
        """The hash of each readable entry of one kind, by its path."""
        return {entry.path: entry.sha256 for entry in self.entries if entry.kind is kind and not entry.refused}


def hash_of(entries: Iterable[Entry]) -> str:
    """The hash of a canonical list: path, kind, executable or not, content, and why a thing is not read."""
    rows = sorted((each.path, each.kind.value, each.executable, each.sha256, each.refused) for each in entries)
    return sha256(f"{_FORMAT}\n{json.dumps(rows, separators=(',', ':'))}".encode()).hexdigest()


def differences(before: Iterable[Entry], after: Iterable[Entry]) -> tuple[tuple[str, str], ...]:
    """What is other than it was, as (path, what happened to it), in the order of the paths."""
    old, new = {each.path: each for each in before}, {each.path: each for each in after}
    found = []
    for path in sorted(old.keys() | new.keys()):
        was, now = old.get(path), new.get(path)
        if was is None or now is None:
            found.append((path, "is new" if was is None else "is gone"))
        elif was.refused != now.refused:
            found.append((path, f"{now.refused} now" if now.refused else "can be read now"))
        elif (was.sha256, was.kind) != (now.sha256, now.kind):
            found.append((path, "has changed"))
        elif was.executable != now.executable:
            found.append((path, "is executable now" if now.executable else "is not executable any more"))
    return tuple(found)
