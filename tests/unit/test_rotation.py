"""Tests of the rotation of the matrix: each row runs once, and each user and backend meets its share of the rows."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.rotation import rotate

ROWS = [f"row {number}" for number in range(400)]


class Item(SimpleNamespace):
    """The attributes of a test that the rotation reads."""

    __hash__ = object.__hash__


def items(marked: bool = False, folder: str = "sandbox") -> tuple[list[Any], dict[Any, str]]:
    made = [
        Item(
            nodeid=f"tests/sandbox/test_x.py::test_y[{bench}-{row}]",
            path=Path("test_x.py"),
            callspec=SimpleNamespace(params={"bench": bench, "script": row}),
            get_closest_marker=lambda name: marked or None,
        )
        for bench in ("root-T1", "root-T2", "nobody-T1", "nobody-T2")
        for row in ROWS
    ]
    return made, dict.fromkeys(made, folder)


def test_each_row_runs_once_and_each_variant_meets_many_rows() -> None:
    made, folders = items()
    kept: list[Any] = rotate(made, folders, set())
    assert sorted(each.callspec.params["script"] for each in kept) == sorted(ROWS)
    assert all(number > 60 for number in Counter(each.callspec.params["bench"] for each in kept).values())
    assert kept == [each for each in made if each in kept], "the order is kept"


def test_the_variant_of_a_row_depends_on_its_name_alone() -> None:
    made, folders = items()
    fewer = [each for each in made if each.callspec.params["script"] in ROWS[::3]]
    expected: list[Any] = [each for each in rotate(made, folders, set()) if each in fewer]
    assert rotate(list(reversed(fewer)), folders, set()) == list(reversed(expected))


def test_rows_that_share_a_costly_fixture_are_of_one_variant() -> None:
    made = [
        Item(
            nodeid=f"tests/sandbox/test_x.py::test_y[{user}-{share}:{row}]",
            path=Path("test_x.py"),
            callspec=SimpleNamespace(params={"user": user, "share": share, "script": row}),
            get_closest_marker=lambda name: None,
        )
        for user in ("root", "nobody")
        for share in range(8)
        for row in ROWS[:5]
    ]
    kept: list[Any] = rotate(made, dict.fromkeys(made, "sandbox"), {"test_x"})
    assert len(kept) == 40
    assert len({(each.callspec.params["user"], each.callspec.params["share"]) for each in kept}) == 8
    assert {each.callspec.params["user"] for each in kept} == {"root", "nobody"}, "each share has a variant of its own"


@pytest.mark.parametrize(
    ("marked", "folder", "why"),
    [
        (True, "sandbox", "the test is about the user or the backend"),
        (False, "unit", "a name of a backend is the subject of a row"),
    ],
)
def test_all_variants_run(marked: bool, folder: str, why: str) -> None:
    made, folders = items(marked, folder)
    assert rotate(made, folders, set()) == made, why
