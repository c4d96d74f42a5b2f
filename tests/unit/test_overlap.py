"""Tests of the continuation of an interrupted answer: the repeated text is dropped, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.partial_reply import OverlapFilter, last_words

BEFORE = "First I read the makefile, and then I was about to"

# (before, what comes, what is shown of it, why)
SEAMS = [
    (BEFORE, " say it.", " say it.", "nothing comes again"),
    (BEFORE, "and then I was about to say it.", " say it.", "the last words come again"),
    (BEFORE, f"{BEFORE} say it.", " say it.", "all of it comes again"),
    (BEFORE, "\n and then I was about to say it.", " say it.", "with a blank before it"),
    (BEFORE, "to say it", "to say it", "one word may be meant"),
    (BEFORE, "and then I was about", "and then I was about", "a repetition that does not reach the seam is none"),
    (BEFORE, "", "", "nothing comes"),
    ("the numb", "the number is 3", "er is 3", "a word that was cut in the middle"),
    ("The list:\n\n", "The list:\n\n- one", "- one", "the blank that was shown is not shown again"),
    ("The list:\n\n", "The list:\n- one", "- one", "nor another one in its place"),
    ("The list:\n\n", "- one", "- one", "nothing comes again after a blank"),
    ("", "anything", "anything", "there is no seam"),
    ("  \n", "anything", "anything", "nor behind a blank"),
    ("ha ha ha ha ha ha ha ha ha ha", "ha ha ha ha ha ha ha ha ha ha!", "!", "the longest repetition is the one"),
    ("x" * 9000 + BEFORE, f"{BEFORE}.", ".", "behind much text"),
]


@pytest.mark.parametrize(("before", "comes", "shown", "why"), SEAMS, ids=[row[3] for row in SEAMS])
@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_what_comes_again_is_dropped(before: str, comes: str, shown: str, why: str, size: int) -> None:
    seam = OverlapFilter(before)
    pieces = [seam.feed(comes[at : at + size]) for at in range(0, len(comes), size)]
    assert "".join(pieces) + seam.end() == shown, why


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60), st.integers(1, 9))
def test_only_the_beginning_is_ever_dropped_and_only_what_was_there(before: str, comes: str, size: int) -> None:
    seam = OverlapFilter(before)
    shown = "".join(seam.feed(comes[at : at + size]) for at in range(0, len(comes), size)) + seam.end()
    assert comes.endswith(shown)
    assert comes[: len(comes) - len(shown)].strip() in before


def test_the_last_words_begin_at_a_word_and_are_few() -> None:
    assert last_words("one two three") == "one two three"
    long = "word " * 1000 + "end"
    assert len(last_words(long)) <= 80
    assert last_words(long).startswith("word ")
    assert last_words(long).endswith(" end")
    assert last_words("x" * 1000) == "x" * 80
