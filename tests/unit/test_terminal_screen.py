"""The screen of a process in a terminal: what a reader sees, and hostile output."""

import random

import pytest

from runner.engine.terminal_screen import SequenceFilter, TerminalScreen
from sandbox.backend import TerminalSize

SIZE = TerminalSize(6, 20)


def screen(*chunks: bytes) -> TerminalScreen:
    made = TerminalScreen(SIZE)
    for chunk in chunks:
        made.feed(chunk)
    return made


# fmt: off
ROWS: list[tuple[bytes, tuple[str, ...], str]] = [
    (b"one\r\ntwo",                         ("one", "two"),     "lines"),
    (b"50%\r100%",                          ("100%",),          "a carriage return overwrites"),
    (b"\x1b[31mred\x1b[0m",                 ("red",),           "colours are dropped"),
    (b"\x1b]0;title\x07x",                  ("x",),             "a title is no text"),
    (b"\x1b[2;3Hx",                         ("", "  x"),        "the cursor moves"),
    (b"old\x1b[2J\x1b[Hnew",                ("new",),           "the screen is cleared"),
    ("wide 漢字".encode(),                  ("wide 漢字",),      "wide characters"),
    ("e\u0301".encode(),                    ("é",),             "a mark that has a composed form"),
    (b"\x1b[?3h\x1b[1;1Hx",                 ("x",),             "the width never changes"),
]
# fmt: on


@pytest.mark.parametrize(("output", "lines", "why"), ROWS, ids=[row[2] for row in ROWS])
def test_a_reader_sees_the_screen(output: bytes, lines: tuple[str, ...], why: str) -> None:
    assert screen(output).lines() == lines, why
    assert screen(*(bytes([byte]) for byte in output)).lines() == lines, f"{why}, byte by byte"


def test_lines_that_scroll_away_are_kept() -> None:
    made = screen(b"".join(b"%d\r\n" % number for number in range(10)))
    assert (made.history(), made.lines()) == (tuple("01234"), tuple("56789"))
    assert (made.history(4), made.scrolled) == (("4",), 5)


def test_plain_text_has_no_sequences() -> None:
    plain = SequenceFilter().plain
    assert plain("a\x1b[1mb\x1b]0;t\x07c\r\nd\x1b[") == "abc\r\nd"
    one = SequenceFilter()
    assert one.plain("x\x1b[3") + one.plain("1my") == "xy"


HOSTILE = [
    b"\x1b[", b"\x1b]", b"\x1b", b";", b"?", b"9" * 5_000, b"m", b"h", b"l", b"r", b"H", b"A", b"L", b"\n", b"a", b"5",
    b"\xcc\x81", b"\xc2\x9b", b"\xc2\x9d", b"\xe4\xb8\xad", b"\x07", b"\x1b\\", b"1;2", b"J", b"K", b"P", b"@", b"X",
    b"d", b"e", b"g", b"s", b"u", b">", b"!p", b"#8", b"%G", b"(0", b"7", b"8", b"c", b"M", b"D", b"\xff", b"4J", b"9K",
]  # fmt: skip


@pytest.mark.threat("T134")
def test_no_output_breaks_or_resizes_the_screen() -> None:
    chance = random.Random(1)
    for _ in range(400):
        made = TerminalScreen(SIZE)
        for _ in range(3):
            made.feed(b"".join(chance.choice(HOSTILE) for _ in range(chance.randint(1, 12))))
            assert len(made.lines()) <= SIZE.rows
            assert all(len(line) <= SIZE.columns for line in made.lines())
        assert made._screen is not None
        assert (made._screen.lines, made._screen.columns) == (SIZE.rows, SIZE.columns)


@pytest.mark.threat("T134")
@pytest.mark.parametrize(
    "output",
    [
        b"a" + b"\xcc\x81" * 50_000,
        b"\x1b]" + b"x" * 100_000,
        b"\x1b[1;" * 20_000,
        b"x" * 1_000_000,
        b"\x1b[9999L" * 9_000,
    ],
    ids=[
        "marks on one character",
        "a title without an end",
        "numbers without an end",
        "a flood",
        "many inserted lines",
    ],
)
def test_what_is_kept_of_hostile_output_is_bounded(output: bytes) -> None:
    made = screen(output)
    made.lines()
    assert made._screen is not None
    kept = sum(len(cell.data) for row in made._screen.buffer.values() for cell in row.values())
    assert kept <= SIZE.rows * SIZE.columns
    assert len(made._filter._rest) <= 4_096
    assert len(made.history()) <= 2_000
