"""Property of a diff: applied to the old text it gives the new text; and its size is bounded."""

import itertools
import random
import time

from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside.files.diff import DIFF_LINES, Effort, changes, unified

NO_END = "\\ no newline at the end of the file"
TEXT = st.lists(st.sampled_from(["a", "b", "c", "", "+d", "-e", "@@"]), max_size=30).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])])
)


def applied(before: str, diff: list[str]) -> str:
    """Return the text that `patch` would make of `before` by the line numbers of the hunks."""
    old = [line + "\n" for line in before.split("\n")]
    old[-1] = old[-1].removesuffix("\n")  # "" when the text ends in a newline
    new: list[str] = []
    at = 0
    for line, after in zip(diff[2:], [*diff[3:], ""], strict=True):
        whole = line[1:] + ("" if after == NO_END else "\n")
        if line.startswith("@@ "):
            start, _, count = line.split()[1][1:].partition(",")
            begin = int(start) - (count != "0")
            new += old[at:begin]
            at = begin
        elif line[0] == "+":
            new.append(whole)
        elif line != NO_END:
            assert old[at] == whole
            new += [whole] if line[0] == " " else []
            at += 1
    return "".join(new + old[at:])


@given(before=TEXT, after=TEXT)
def test_a_diff_applied_gives_the_new_text(before: str, after: str) -> None:
    diff, dropped = unified(before, after, "f")
    assert dropped == 0
    if before == after:
        assert diff == []
    else:
        assert diff[:2] == ["--- f", "+++ f"]
        assert applied(before, diff) == after


# fmt: off
TABLE: list[tuple[str, str, list[str], str]] = [
    ("", "a\n",         ["@@ -0,0 +1 @@", "+a"],                                              "into an empty file"),
    ("a\n", "",         ["@@ -1 +0,0 @@", "-a"],                                              "nothing is left"),
    ("a", "a\n",        ["@@ -1 +1 @@", "-a", NO_END, "+a"],                                  "only the last newline"),
    ("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n6\n7\n8\n9\n",
        ["@@ -2,7 +2,7 @@", " 2", " 3", " 4", "-5", "+x", " 6", " 7", " 8"],                  "three lines around"),
    ("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "x\n2\n3\n4\n5\n6\n7\n8\ny\n",
        ["@@ -1,4 +1,4 @@", "-1", "+x", " 2", " 3", " 4", "@@ -6,4 +6,4 @@", " 6", " 7", " 8", "-9", "+y"], "two hunks"),
]
# fmt: on


def test_diff() -> None:
    for before, after, expected, why in TABLE:
        assert unified(before, after, "f") == (["--- f", "+++ f", *expected], 0), why


def test_a_diff_is_small_and_quick_for_any_size() -> None:
    begun = time.process_time()
    numbers = "".join(f"{number}\n" for number in range(200_000))
    diff, dropped = unified(numbers, numbers.replace("7", "x"), "f")
    assert len(diff) <= DIFF_LINES
    assert dropped > 100_000
    alike, other = "a\nb\n" * 250, "b\na\n" * 249
    unified(alike, other, "f")
    diff, _ = unified("x" * 1_000_000, "y" * 1_000_000, "f")
    assert sum(map(len, diff)) < 1000
    assert time.process_time() - begun < 5  # the smallest difference of such texts takes minutes


def test_lines_that_are_hard_to_compare_count_as_replaced() -> None:
    """THREAT T95: no line occurs once, and the shortest edit is long; the budget of steps ends the search."""
    pick = random.Random(1)
    old, new = pick.choices("abcdefgh", k=1500), pick.choices("abcdefgh", k=1500)
    effort = Effort(10_000)
    ((start, end, first, last),) = changes(old, new, effort)
    assert effort.spent
    assert old[:start] + new[first:last] + old[end:] == new


@given(before=TEXT, after=TEXT)
def test_lines_between_stretches_are_equal(before: str, after: str) -> None:
    old, new = before.split("\n"), after.split("\n")
    stretches = changes(old, new, Effort(1 << 30))
    assert all(old[a - 1 : a] == new[c - 1 : c] for a, _, c, _ in stretches if a and c)
    for (_, end, _, last), (start, _, first, _) in itertools.pairwise(stretches):
        assert old[end:start] == new[last:first] != []
