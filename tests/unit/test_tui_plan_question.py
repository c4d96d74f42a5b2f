"""Tests of the question below a plan: the keys that start work, and the mode that each selects."""

import itertools

import pytest

from policy.model.tier import Mode
from runner.approval.approver import Leave, PlanAnswer, Stay
from runner.frontends.tui.panel import Done, Edit
from runner.frontends.tui.question import PlanQuestion


def looked_at() -> PlanQuestion:
    """Return a question that is on the screen for a second before each key."""
    panel = PlanQuestion(clock=itertools.count().__next__)
    panel.lines(80, 20)
    return panel


# fmt: off
KEYS: list[tuple[list[str], PlanAnswer | None, str]] = [
    (["a"],                          Leave(Mode.DEFAULT),        "a letter"),
    (["e"],                          Leave(Mode.ACCEPT_EDITS),   "another"),
    (["t"],                          Leave(Mode.TRUST_PROJECT),  "the last"),
    *[([digit],                      None,                       f"{digit} is no letter") for digit in "0123456789"],
    (["d"],                          None,                       "a no at other questions"),
    (["enter"],                      Stay(),                     "Enter alone begins nothing"),
    (["up", "enter"],                Leave(Mode.TRUST_PROJECT),  "a row that was gone to"),
    (["up", "up", "up", "enter"],    Leave(Mode.DEFAULT),        "the first row"),
    (["n"],                          Stay(),                     "no"),
    (["escape"],                     Stay(),                     "leaving is no"),
    (["y"],                          None,                       "which way was not said"),
    ([" "],                          None,                       "a blank is nothing"),
]
# fmt: on


@pytest.mark.threat("T102")
@pytest.mark.parametrize(("keys", "expected", "why"), KEYS, ids=[row[2] for row in KEYS])
def test_keys(keys: list[str], expected: PlanAnswer | None, why: str) -> None:
    panel = looked_at()
    steps = [panel.key(key) for key in keys]
    found = steps[-1].value if isinstance(steps[-1], Done) else None
    assert found == expected, why


def test_words_go_to_the_model() -> None:
    panel = looked_at()
    assert isinstance(panel.key("f"), Edit)
    assert panel.edited("smaller steps\n") == Done(Stay("smaller steps"))
    assert not isinstance(panel.edited(None), Done), "who thought better of it is asked again"
    assert not isinstance(panel.edited("  "), Done)


def test_it_fits_a_narrow_screen() -> None:
    drawn = PlanQuestion().lines(30, 4)
    assert len(drawn) == 4
    assert all(sum(len(text) for _, text in row) <= 30 for row in drawn)
