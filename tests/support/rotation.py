"""The rotation of the matrix: each row of a table runs once, as one user on one backend that change from row to row.

The variants of a row are its tests that differ in nothing but the user and the backend. Which one runs is a function of the
name of the row alone, so that it stays the same when other rows come and go. `--matrix` runs all variants, and tests that
are about the user or the backend themselves (`@pytest.mark.whole_matrix("why")`) always run all of theirs.
"""

import zlib
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

# Parameters that consist of such names only are a part of the matrix: users, backends, and what counts for a limit.
NAMES = {"root", "nobody", "self", "T1", "T2", "T3", "container"}
COUNTERS = {"kernel", "watchdog"}
# In the other folders a user or a backend is the subject of the row.
FOLDERS = {"sandbox", "services", "process", "terminal"}


def rotate(items: Sequence[pytest.Item], folders: dict[pytest.Item, str], shared: set[str]) -> list[pytest.Item]:
    """Return the tests that run, in their order: of each row one variant.

    Args:
        folders: the folder below `tests` of each test.
        shared: files whose rows share a costly fixture: all rows with the same text before the colon in their id are run
            in the same variant.
    """
    rows: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        row, variant = item.nodeid, ""
        if folders[item] in FOLDERS and item.get_closest_marker("whole_matrix") is None:
            row, variant = _split(item)
            if item.path.stem in shared:
                function, bracket, ids = row.partition("[")
                row = function + bracket + ids.partition(":")[0]
        rows.setdefault(row, {}).setdefault(variant, []).append(item)
    kept = {item for row, variants in rows.items() for item in variants[choose(row, sorted(variants))]}
    return [item for item in items if item in kept]


def choose(row: str, variants: Sequence[T]) -> T:
    """Return the variant in which a row runs."""
    return variants[zlib.crc32(row.encode()) % len(variants)]


def _split(item: pytest.Item) -> tuple[str, str]:
    """Return the name of the row that a test belongs to, and that of the variant, which is empty without a matrix."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return item.nodeid, ""
    parts = [part for name, value in callspec.params.items() if (part := _part_of_id(name, value))]
    row = item.nodeid
    for part in parts:
        function, bracket, ids = row.partition("[")
        assert part in ids, f"the id of {item.nodeid} does not contain its parameter `{part}`"
        row = function + bracket + ids.replace(part, "", 1)
    return row, " ".join(parts)


def _part_of_id(name: str, value: Any) -> str:
    """Return the text in the id for a parameter that is a part of the matrix, and nothing for another one."""
    names: list[str] = []
    if isinstance(value, str):
        names = value.split("-")
    elif isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        names = [part for each in value for part in each.split("-")]
    known = COUNTERS if name == "counted" else NAMES
    return "-".join(names) if names and known.issuperset(names) else ""
