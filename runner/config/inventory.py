"""The inventory of a repository's files for agents: the entries, their common hash, and differences."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from hashlib import sha256

from policy.model.frozen import dataclass

# Part of the hash, so that a later version that uses more kinds of files can ask again.
_FORMAT = "ringfence-trust-2"


class EntryKind(Enum):
    """The kinds of entries."""

    CONFIGURATION = "configuration"
    INSTRUCTIONS = "instructions"
    PROMPT = "prompt"
    COMMAND = "command"
    HOOK = "hook"
    SKILL = "skill"
    AGENT = "agent"
    SERVERS = "tool-servers"  # `servers` was the kind of files that no version started
    BUNDLE = "bundle"  # a file of a bundle, whatever it contains; no repository has entries of this kind


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """A file, or anything else (such as a link) with the name of such a file.

    Attributes:
        path: path relative to the workspace (`../` is above it), untrusted like the content.
        kind: the kind.
        executable: True if the file is executable.
        size: size in bytes.
        sha256: hash of the content; empty for a refused file.
        refused: the reason why the file is not read and never used, or empty.
    """

    path: str
    kind: EntryKind
    executable: bool = False
    size: int = 0
    sha256: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything for agents that `workspace` contains.

    Attributes:
        workspace: real path of the workspace.
        entries: the entries in the order of the paths.
        contents: the exact bytes that were hashed.
    """

    workspace: str
    entries: tuple[InventoryEntry, ...] = ()
    contents: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def sha256(self) -> str:
        """Return one hash of all entries, which does not depend on the path of the workspace."""
        return hash_of(self.entries)

    def hashes(self, kind: EntryKind) -> dict[str, str]:
        """Return the hash of each readable entry of one kind, by path."""
        return {entry.path: entry.sha256 for entry in self.entries if entry.kind is kind and not entry.refused}


def hash_of(entries: Iterable[InventoryEntry]) -> str:
    """Return the hash of a canonical list: path, kind, executable or not, content, and why an entry is not read."""
    rows = sorted((each.path, each.kind.value, each.executable, each.sha256, each.refused) for each in entries)
    return sha256(f"{_FORMAT}\n{json.dumps(rows, separators=(',', ':'))}".encode()).hexdigest()


def differences(before: Iterable[InventoryEntry], after: Iterable[InventoryEntry]) -> tuple[tuple[str, str], ...]:
    """Return the differences as (path, what changed), in the order of the paths."""
    old, new = {each.path: each for each in before}, {each.path: each for each in after}
    rows = []
    for path in sorted(old.keys() | new.keys()):
        was, now = old.get(path), new.get(path)
        if was is None or now is None:
            rows.append((path, "is new" if was is None else "is gone"))
        elif was.refused != now.refused:
            rows.append((path, f"{now.refused} now" if now.refused else "can be read now"))
        elif (was.sha256, was.kind) != (now.sha256, now.kind):
            rows.append((path, "has changed"))
        elif was.executable != now.executable:
            rows.append((path, "is executable now" if now.executable else "is not executable any more"))
    return tuple(rows)
