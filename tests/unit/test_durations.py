"""Tests of the order of the test files: the longest pieces of work first, and none too long for one worker."""

from tests.support.durations import LONGEST, Durations, longest_first, pieces

RECORDED = Durations({"tests/a.py": 1.0, "tests/b.py": 2.5 * LONGEST, "tests/c.py": 3.0, "tests/d.py": 500.0})
IDS = [f"tests/{name}.py::test[{number}]" for name in "abcde" for number in range(30)]
SCOPES = {id: "counts" for id in IDS if id.startswith("tests/d")}  # files of a group are never split


def test_a_long_file_is_split_into_parts_in_order() -> None:
    made = pieces(IDS, SCOPES, RECORDED)
    b = [made[id] for id in IDS if id.startswith("tests/b")]
    assert b == sorted(b)
    assert {name: b.count(name) for name in b} == dict.fromkeys(("tests/b.py 0", "tests/b.py 1", "tests/b.py 2"), 10)
    assert {made[id] for id in IDS if id.startswith("tests/a")} == {"tests/a.py 0"}


def test_a_group_is_one_piece() -> None:
    assert {pieces(IDS, SCOPES, RECORDED)[id] for id in SCOPES} == {"counts"}


def test_long_pieces_run_first_and_an_unknown_file_counts_as_an_average_one() -> None:
    order = longest_first(IDS, SCOPES, RECORDED)
    files = [id.split("/")[1][0] for id in sorted(IDS, key=order.__getitem__)]
    assert [name for number, name in enumerate(files) if files[number - 1] != name] == ["d", "e", "b", "c", "a"]


def test_files_of_equal_length_stay_together() -> None:
    order = longest_first(IDS, {}, Durations({}))
    assert sorted(IDS, key=order.__getitem__) == IDS
