"""A window that changes its size while somebody works: nothing that was shown is lost, nothing is shown twice."""

import re
from pathlib import Path

import pytest
from test_tui import Desk, bash, desk  # noqa: F401  # a fixture

ITEMS = [f"item {number} " + "of the list, with some words behind it " * (number % 3) for number in range(1, 31)]
# The long line leaves its place to short ones, and what is live stands still then.
SCRIPT = f"echo {'long ' * 15}; sleep 0.3; echo a; echo b; sleep 0.3; echo c; until test -e go; do sleep 0.1; done"


@pytest.mark.parametrize("widths", [(70, 60, 50, 64, 80, 40, 90), (109, 108, 60, 100), (30, 80, 30, 110)])
def test_what_went_up_stays_and_what_is_live_is_there_once(desk: Desk, widths: tuple[int, ...]) -> None:  # noqa: F811
    text = "\n".join(f"- {item}" for item in ITEMS)
    window = desk.start([bash(SCRIPT, text), {"text": "The end."}], "--mode", "trust-project")
    window.type("go", "Enter")
    window.until("│ c")
    typed = ""
    for width in widths:
        window.resize(width, 30)
        typed += "x"
        window.type("x")
        screen = window.until_shown(f"> {typed}\n")  # drawn again, by the new width
        assert screen.count("working;") == 1, screen
        assert screen.count("└ running") == 1, screen
    window.resize(120, 30)
    window.type("C-u")
    Path(desk.work / "go").touch()
    window.until("The end.")
    window.until("done (2 turns)\n>")  # nobody works any more
    shown = window.whole()
    words = re.sub(r"\s+", " ", shown)
    assert [words.count(f"• {item.strip()} ") for item in ITEMS] == [1] * len(ITEMS), shown
    assert words.count("read $ echo") == 1, shown
    assert shown.count("> go") == 1, shown
    assert "working;" not in shown
