"""Migrations from older formats of the configuration file. A file without a `version` has the oldest format."""

from collections.abc import Mapping
from typing import cast

from policy.model.frozen import dataclass
from policy.toml.schema import KeyPath

VERSION = 1  # the current format


@dataclass(frozen=True, slots=True)
class Migration:
    """One change of the file format.

    Attributes:
        to: number of the new format.
        renamed: old and new names of keys.
        why: reason for the change.
    """

    to: int
    why: str
    renamed: Mapping[KeyPath, KeyPath]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "keys are spelled with `_` everywhere", {("limits", "open-files"): ("limits", "open_files")}),
)


def renew(document: dict[str, object]) -> Mapping[KeyPath, KeyPath]:
    """Rename the keys of an older document in place and return the old name of each.

    A document with both names keeps the old one, which is then reported as an unknown key.
    """
    version = document.get("version", 0)
    was: dict[KeyPath, KeyPath] = {}
    for migration in MIGRATIONS:
        if not isinstance(version, int) or migration.to <= version:
            continue
        for old, new in migration.renamed.items():
            if _move(document, old, new):
                was[new] = was.pop(old, old)
    return was


def _move(document: dict[str, object], old: KeyPath, new: KeyPath) -> bool:
    """Rename one key. INVARIANT: a key stays in its table, so that the text around the key keeps its meaning."""
    table = value_at(document, old[:-1])
    if not isinstance(table, dict) or old[-1] not in table or new[-1] in table:
        return False
    table[new[-1]] = table.pop(old[-1])
    return True


def value_at(document: dict[str, object], path: KeyPath) -> object:
    """Return the value at `path`, or None if there is none."""
    at: object = document
    for word in path:
        at = cast(dict[str, object], at).get(word) if isinstance(at, dict) else None
    return at
