"""Tests of Markdown of a model at a terminal: read as it streams, shown as text only, and completely."""

import re
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.events import ModelText, Prompted
from runner.frontends.tui.blocks import LONGEST, Blocks, Code, Prose, RenderedBlock
from runner.frontends.tui.markdown import markdown_rows
from runner.frontends.tui.rows import ansi, cells, measure, plain
from runner.frontends.tui.screen import Screen
from runner.frontends.tui.theme import DARK, PLAIN
from runner.text.sanitize import visible
from tests.support.law import examples

SGR = re.compile(r"\x1b\[[\d;]*m")
ESC = "\x1b"
RLO = "\u202e"


def blocks(text: str, step: int) -> list[RenderedBlock]:
    taker = Blocks()
    return [
        each for start in range(0, len(text), step) for each in taker.feed(text[start : start + step])
    ] + taker.end()


def shown(text: str, width: int = 60) -> str:
    """Return the final text on the screen without colours."""
    screen = Screen(lambda: width + 1, PLAIN)
    screen.take(ModelText(text))
    screen.take(Prompted("END"))
    return SGR.sub("", screen.done()).removesuffix("\n> END\n").strip("\n")


# fmt: off
DRAWN = [
    ("one two\nthree", "one two three", "a line's end is a blank"),
    ("one  \ntwo", "one\ntwo", "two blanks break a line"),
    ("# One\ntwo", "One\n\ntwo", "a heading"),
    ("### One ###", "### One", "a deeper heading says so"),
    ("One\n===\ntwo", "One\n\ntwo", "a heading that is underlined"),
    ("One\n---\ntwo", "One\n\ntwo", "and the other way"),
    ("a\n\n---\n\nb", "a\n\n────────────────────\n\nb", "a rule is short: one of the whole width breaks when the window does"),
    ("- a\n- b\n  - c\n- d", "• a\n• b\n  • c\n• d", "a tight list"),
    ("- a\n\n- b", "• a\n\n• b", "a loose one"),
    ("3. a\n4. b\n9. c", "3. a\n4. b\n9. c", "numbers are as they were written"),
    ("1. a\n\n   more\n2. b", "1. a\n\n   more\n2. b", "a paragraph of an item"),
    ("- a\n  ```python\n  x = 1\n\n  y = 2\n  ```\n- b", "• a\n    x = 1\n\n    y = 2\n• b", "code of an item"),
    ("> a\n> > b", "│ a\n│\n│ │ b", "quotes"),
    ("```\n  a\n\n\n# b\n```\nc", "    a\n\n\n  # b\n\nc", "in a fence nothing is markup"),
    ("````\n```\n````\nc", "  ```\n\nc", "a fence is closed by one as long"),
    ("~~~\n```\n~~~", "  ```", "and of the same sign"),
    ("```python\nx", "  x", "a fence that is never closed"),
    ("```rm -rf /\nx\n```", "  rm -rf /\n  x", "what a fence says and is no language is not hidden"),
    ("|a|b|\n|-|-|\n|1|2|", "a │ b\n──┼──\n1 │ 2", "a table"),
    ("|a|b|\n|-|-|\n|日本|2|", "a    │ b\n─────┼──\n日本 │ 2", "of wide characters"),
    ("|a|b|c|\n|-|-|-|\n|" + "aaaa " * 8 + "|" + "bbb " * 9 + "|c|",
        f"a{' ' * 26}│ b{' ' * 27}│ c\n{'─' * 27}┼{'─' * 29}┼──\n"
        f"{'aaaa ' * 5}  │ {'bbb ' * 7}│ c\naaaa aaaa aaaa{' ' * 13}│ bbb bbb{' ' * 21}│", "the widest columns give way"),
    ("`a*b*c` *d* **e** ~~f~~", "a*b*c d e f", "what stands in a line"),
    ("snake_case_name 2 * 3 * 4", "snake_case_name 2 * 3 * 4", "no markup"),
    ("[a](http://b.example/c)", "a (http://b.example/c)", "a link says where it leads"),
    ("[http://good.example](http://evil.example)", "http://good.example (http://evil.example)", "also one that lies about it"),
    ("<http://b.example>", "http://b.example", "once, when it is the same"),
    ('[a](http://b.example "t u")', 'a (http://b.example "t u")', "a title"),
    ("![a](http://b.example/t.png)", "[image: a] (http://b.example/t.png)", "an image is words: nothing is fetched"),
    ("[a](javascript:x)", "[a](javascript:x)", "no link"),
    ("<b>a</b> <!-- c -->", "<b>a</b> <!-- c -->", "HTML is not read, and hides nothing"),
    ("<details>\n<summary>a</summary>\nb\n</details>", "<details> <summary>a</summary> b </details>", "nor a block of it"),
    ("[a]: http://b.example 'c'", "[a]: http://b.example 'c'", "nor do definitions hide anything"),
    (f"a{ESC}[31mb{ESC}]8;;http://x{ESC}\\c", "a␛[31mb␛]8;;http://x␛\\c", "no sequence drives the terminal"),
    ("&#27;[31m &#x1b;[2J &#x202e;a &#x200b;", "�[31m �[2J <U+202E>a <U+200B>", "nor one that an entity spells"),
    (f"a{RLO}b", "a<U+202E>b", "nothing runs backwards"),
    (f"`a{RLO}b{ESC}`", "a<U+202E>b␛", "nor in code"),
    (f"```{RLO}\n{ESC}[2J\n```", "  <U+202E>\n  ␛[2J", "nor in a fence"),
    (f"[a](http://x/{RLO}b)", "a (http://x/%E2%80%AEb)", "nor in a link"),
    ("a\r\nb\r\n\r\nc", "a b\n\nc", "lines that end as elsewhere"),
    ("a\x00b\x07c\x9bd", "a�b␇c<U+009B>d", "control characters"),
    ("x" * 130, "\n".join(["x" * 60, "x" * 60, "x" * 10]), "what is too long for a row is broken"),
    ("日" * 40, "\n".join(["日" * 30, "日" * 10]), "wide characters"),
    ("a\u0301" * 70, "\n".join(["a\u0301" * 60, "a\u0301" * 10]), "marks stay on their letter"),
    (">" * 50 + " a", ">" * 50 + " a", "what is too deep to be read stays as it is"),
]
# fmt: on


@pytest.mark.threat("T105")
@pytest.mark.parametrize(("text", "expected", "why"), DRAWN)
def test_drawn(text: str, expected: str, why: str) -> None:
    assert shown(text) == expected, why


@pytest.mark.parametrize(("text", "expected", "why"), DRAWN)
@pytest.mark.parametrize("step", [1, 3])
def test_it_is_the_same_however_it_comes(text: str, expected: str, why: str, step: int) -> None:
    assert blocks(text, step) == blocks(text, len(text))


def test_lists_deeper_than_the_parser_goes_are_shown_as_they_are() -> None:
    text = "".join("  " * depth + f"- w{depth}\n" for depth in range(40))
    assert re.findall(r"w\d+", shown(text)) == [f"w{depth}" for depth in range(40)]


@pytest.mark.parametrize("mark", ["[", "](", "**a", "`", "![", "<a", "[a][b] ", "*a_b_", "> ", "- ", "\\", "|a"])
def test_what_is_long_and_hostile_is_bounded(mark: str) -> None:
    """No block is longer than what is read as Markdown, whatever it is made of, and none of it is lost."""
    found = blocks(mark * 30_000, 4096)
    assert all(len(each.text) <= LONGEST for each in found if isinstance(each, Prose))
    assert "".join(each.text for each in found if isinstance(each, Prose)).replace(" ", "") == (mark * 30_000).replace(
        " ", ""
    )


def test_code_goes_up_before_it_is_whole() -> None:
    taker = Blocks()
    found = taker.feed("```python\n" + "".join(f"a{number}\n" for number in range(200)))
    lines = [line for each in found if isinstance(each, Code) for line in each.lines]
    assert lines == [f"a{number}" for number in range(len(lines))]
    assert len(lines) > 150
    assert isinstance(taker.open, Code)
    assert [*lines, *taker.open.lines] == [f"a{number}" for number in range(200)]


def test_colours() -> None:
    text = ansi(markdown_rows("# A\n\n`b` **c** [d](e)\n\n```python\ndef f(): return 'x'  # y\n```", 60, DARK))
    for told in (
        "\x1b[1;36mA\x1b[0m",
        "\x1b[36mb\x1b[0m",
        "\x1b[1mc\x1b[0m",
        "\x1b[4md\x1b[0m",
        "\x1b[2m (e)\x1b[0m",
        "\x1b[35mdef\x1b[0m",
        "\x1b[32m'x'\x1b[0m",
        "\x1b[2;3m# y\x1b[0m",
    ):
        assert told in text, told


# Pieces of which markup is made, and what must never reach a terminal.
HOSTILE = [*"aé日\u0301\x1b\x07\x9b\u202e\u200b\ufe0f\U0001f600\r\x00\ud800", "\x1b[2J", "&#27;", "&#x202e;", "word "]
BLOCK = ["```", "~~~", "\n\n", "\n- ", "\n1. ", "\n> ", "    ", "  ", "](", "|-|-|\n", "<http://"]
MARKUP = st.sampled_from([*"*_`~[]()<>#|!+-&\\\n\n \t'\":;=/", *BLOCK, *HOSTILE])
TEXT = st.lists(MARKUP | st.text(max_size=3), max_size=60).map("".join)


@pytest.mark.threat("T105")
@examples(400)
@given(TEXT, st.integers(min_value=5, max_value=140), st.lists(st.integers(min_value=1, max_value=9), max_size=5))
def test_law_nothing_but_our_colours_reaches_the_terminal(text: str, columns: int, steps: list[int]) -> None:
    screen = Screen(lambda: columns, DARK)
    out = ""
    rows = []
    cuts = [0, *accumulate(steps), len(text)]
    for start, end in pairwise(cuts):
        screen.take(ModelText(text[start:end]))
        out += screen.done()
        rows += screen.live(measure(columns), 24)
        assert len(screen.live(measure(columns), 24)) <= 8
    screen.take(Prompted(text))
    out += screen.done()
    rest = SGR.sub("", out)
    assert visible(rest, prose=True) == rest
    out.encode("utf-8")
    assert all(cells(line) <= measure(columns) for line in rest.split("\n"))
    for row in rows:
        assert visible(plain(row), prose=True) == plain(row)
        assert "\n" not in plain(row)
        assert cells(plain(row)) <= measure(columns)


WORDS = st.integers(min_value=0, max_value=10**6).map(
    lambda number: "".join(chr(97 + int(digit)) for digit in str(number))
)
SOURCE = st.lists(
    WORDS
    | st.sampled_from(
        [*'*_`~[]()>#|+-\\\n "', "\n\n", "\n- ", "\n  - ", "\n1. ", "\n> ", "    ", "```", "\n```\n", "](", "\n|-|\n"]
    ),
    max_size=60,
)


@examples(400)
@given(SOURCE)
def test_law_no_word_is_lost(pieces: list[str]) -> None:
    text = "".join(pieces)
    kept = iter(letter for letter in shown(text) if letter.isalpha())
    assert all(letter in kept for letter in text if letter.isalpha()), shown(text)


@examples(300)
@given(TEXT, st.integers(min_value=1, max_value=7))
def test_law_pieces_do_not_matter(text: str, step: int) -> None:
    assert blocks(text, step) == blocks(text, max(len(text), 1))
