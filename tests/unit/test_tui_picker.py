"""Tests of the list to choose from, and of its search."""

import pytest

from runner.frontends.slash.command import Row
from runner.frontends.tui.menu import best, score
from runner.frontends.tui.panel import Done, Unanswered
from runner.frontends.tui.picker import ListGuard, Picker
from runner.frontends.tui.rows import fit, row_cells, wrapped

FILES = ["runner/loop.py", "runner/frontends/tui/app.py", "tests/test_loop.py", "docs/loops of yarn.md", "README.md"]


@pytest.mark.parametrize(
    ("query", "first", "why"),
    [
        ("", "runner/loop.py", "nothing typed: as they came"),
        ("app", "runner/frontends/tui/app.py", "whole in the text"),
        ("loop.py", "runner/loop.py", "at the beginning of a word, before the one inside another word"),
        ("rlp", "runner/loop.py", "letters in order"),
        ("LOOP yarn", "docs/loops of yarn.md", "every word, whatever its case"),
        ("zzz", None, "letters that are not there"),
    ],
)
def test_what_is_found_first(query: str, first: str | None, why: str) -> None:
    assert next(iter(best(query, FILES, str)), None) == first, why


def test_more_letters_never_make_a_row_fit_that_did_not() -> None:
    assert score("loo", "lo") is None
    assert score("loop", "x") is None


ROWS = [Row("1", "alpha", "first"), Row("2", "beta"), Row("3", "gamma \x1b[31mred\n\u202eevil")]


@pytest.mark.parametrize(
    ("keys", "value", "why"),
    [
        (["enter"], "1", "the first"),
        (["down", "enter"], "2", "one further"),
        (["up", "enter"], "3", "around the end"),
        (["b", "enter"], "2", "what a letter finds"),
        (["b", "backspace", "enter"], "1", "a letter taken back"),
        (["b", "c-u", "down", "enter"], "2", "all of it taken back"),
        (["pagedown", "enter"], "3", "to the end, and no further"),
        (["escape"], None, "nothing"),
        (["c-c"], None, "nothing"),
        (["f", "i", "r", "s", "t", "enter"], "1", "by its note"),
    ],
)
def test_keys_choose(keys: list[str], value: str | None, why: str) -> None:
    picker = Picker("which", ROWS)
    for key in keys[:-1]:
        assert picker.key(key) == Unanswered(), why
    assert picker.key(keys[-1]) == Done(value), why


def test_enter_takes_nothing_where_nothing_fits() -> None:
    picker = Picker("which", ROWS)
    picker.key("q")
    assert picker.key("enter") == Unanswered()


@pytest.mark.parametrize("size", [(80, 24), (20, 5), (5, 4), (200, 60)])
def test_rows_fit_the_screen_and_hold_nothing_that_drives_it(size: tuple[int, int]) -> None:
    width, height = size
    picker = Picker("which\x1b]0;owned\x07", [*ROWS, *(Row(str(n), f"wide \u6f22\u5b57 {n}") for n in range(50))])
    for key in ["down"] * 30:
        picker.key(key)
        drawn = picker.lines(width, height)
        assert len(drawn) <= max(height, 4)
        assert all(row_cells(row) <= width for row in drawn)
        text = "".join(part for row in drawn for _, part in row)
        assert text.isprintable()
        assert "\u202e" not in text


@pytest.mark.parametrize(
    ("text", "width", "rows", "why"),
    [
        ("one two three", 7, ["one two", "three"], "at blanks"),
        ("abcdefgh", 3, ["abc", "def", "gh"], "inside a word where it must be"),
        ("\u6f22\u5b57\u6f22", 4, ["\u6f22\u5b57", "\u6f22"], "by columns, not by characters"),
        ("a\n\nb", 5, ["a", "", "b"], "newlines begin rows"),
        ("\u6f22", 1, ["\u6f22"], "a character wider than the screen still goes on"),
    ],
)
def test_wrapping(text: str, width: int, rows: list[str], why: str) -> None:
    assert ["".join(part for _, part in row) for row in wrapped("", text, width)] == rows, why


def test_a_cut_row_says_so() -> None:
    assert fit([("", "abc"), ("bold", "defgh")], 5) == [("", "abc"), ("bold", "d"), ("bold", "…")]


def test_rows_are_aligned_cut_at_words_and_begin_on_the_value_in_force() -> None:
    rows = [Row("a", "a", "some words that do not fit"), Row("long", "longer", "words", now=True)]
    picker = Picker("which", rows)
    shown = ["".join(text for _, text in row).rstrip() for row in picker.lines(30, 20)]
    assert shown[2:4] == ["  a             some words…", "> longer (now)  words"]
    assert picker.key("enter") == Done("long")


# fmt: off
UNASKED: list[tuple[list[tuple[float, str]], object, str, str]] = [
    # seconds since the list appeared and key, the step of the last key, a part of the last row, why
    ([(0.6, "down"), (0.8, "down"), (1.0, "enter")],     Done("3"),     "",                          "arrows 0.2 s apart"),
    ([(0.1, "down"), (0.3, "down"), (0.6, "down"), (0.7, "enter")], Done("2"), "",                   "the wait never restarts"),
    ([(0.6, "b"), (0.7, "e"), (0.8, "t"), (1.4, "enter")], Done("2"),   "",                          "fast letters count"),
    ([(0.6, "b"), (0.8, "enter")],                       Unanswered(),  "it followed another key",   "the end of a sentence"),
    ([(0.1, "b"), (0.55, "enter")],                      Unanswered(),  "it followed another key",   "its beginning came too early"),
    ([(0.6, "b"), (0.8, "enter"), (1.15, "enter")],      Done("2"),     "",                          "Enter again counts"),
    ([(0.6, "b"), (0.8, "down"), (0.9, "enter")],        Unanswered(),  "it followed another key",   "an arrow opens nothing"),
    ([(0.3, "enter")],                                   Unanswered(),  "while the list appeared",   "Enter from before"),
    ([(0.1, "escape")],                                  Unanswered(),  "while the list appeared",   "Escape from before"),
    ([(0.3, "enter"), (0.6, "down")],                    Unanswered(),  "Enter selects",             "the row goes away"),
    ([(0.6, "b"), (0.7, "escape")],                      Done(None),    "",                          "Escape needs no wait"),
    ([(0.0, "c-c")],                                     Done(None),    "",                          "Ctrl+C is never ignored"),
]
# fmt: on


@pytest.mark.parametrize(("keys", "step", "foot", "why"), UNASKED, ids=[row[3] for row in UNASKED])
def test_keys_that_were_typed_for_something_else_choose_nothing(
    keys: list[tuple[float, str]], step: object, foot: str, why: str
) -> None:
    now = 0.0
    picker = Picker("which", ROWS, guard=ListGuard(lambda: now))
    assert picker.key("enter") == Unanswered(), "it is not on the screen yet"
    picker.lines(80, 20)
    for now, key in keys:  # noqa: B007  # the clock reads it
        last = picker.key(key)
        shown = picker.lines(80, 20)
    assert last == step
    assert foot in "".join(text for _, text in shown[-1])


SESSIONS = [
    ("f3761ced  2026-11-26 11:33 UTC  1 request  ", "hi"),
    ("d85fd2ce  2026-11-26 11:33 UTC  12 requests", "go"),
]


@pytest.mark.parametrize(
    ("rows", "width", "first", "why"),
    [
        (SESSIONS, 80, "> f3761ced  2026-11-26 11:33 UTC  1 request    hi", "the rows fit: nothing is cut"),
        (
            [(SESSIONS[0][0], "word " * 30)],
            80,
            "> f3761ced  2026-11-26 11:33 UTC  1 request  word word word word word word word…",
            "a long prompt is cut, and the time and the number of requests are not",
        ),
        (
            [("x" * 52, "y" * 24)],
            80,
            f"> {'x' * 52}  {'y' * 24}",
            "a label longer than its share beside a short detail",
        ),
        ([("x" * 90, "y" * 90)], 80, f"> {'x' * 47}…  {'y' * 27}…", "both are long"),
        ([("x" * 90, "y" * 10)], 80, f"> {'x' * 65}…  {'y' * 10}", "a long prompt with a short detail"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_labels_are_cut_only_where_a_row_does_not_fit(
    rows: list[tuple[str, str]], width: int, first: str, why: str
) -> None:
    picker = Picker("which", [Row(str(place), *row) for place, row in enumerate(rows)])
    assert "".join(text for _, text in picker.lines(width, 20)[2]).rstrip() == first, why
