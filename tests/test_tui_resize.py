"""A window that changes its size while somebody works: nothing that was shown is lost, nothing is shown twice."""

import re
from functools import partial
from pathlib import Path

import pytest
from test_tui import Desk, bash, desk  # noqa: F401  # a fixture

ITEMS = [f"item {number} " + "of the list, with some words behind it " * (number % 3) for number in range(1, 31)]
# The long line leaves its place to short ones, and what is live stands still then.
SCRIPT = f"echo {'long ' * 15}; sleep 0.3; echo a; echo b; sleep 0.3; echo c; until test -e go; do sleep 0.1; done"


@pytest.mark.parametrize("widths", [(70, 60, 50, 64, 80, 40, 90), (109, 108, 60, 100), (30, 80, 30, 110)])
def test_what_went_up_stays_and_what_is_live_is_there_once(desk: Desk, widths: tuple[int, ...]) -> None:  # noqa: F811
    text = "\n".join(f"- {item}" for item in ITEMS)
    desk.environ["XTERM_VERSION"] = "XTerm(379)"  # which cuts rows; this tmux was begun in it, and wraps them
    window = desk.start([bash(SCRIPT, text), {"text": "The end."}], "--mode", "trust-project")
    window.type("go", "Enter")
    window.until("│ c")
    typed = ""
    for width in widths:
        window.resize(width, 30)
        typed += "x"
        window.type("x")
        # Drawn again, by the new width, and nothing of the drawing before is left.
        window.until_whole(partial(_once, [f"> {typed}\n", "working;", "└ running"]))
    window.resize(120, 30)
    window.type("C-u")
    Path(desk.work / "go").touch()
    told = [*(f"• {item.strip()} " for item in ITEMS), "> go ", "read $ echo", "The end.", "done (2 turns)"]
    window.until_whole(lambda screen: "working;" not in screen and _once(told, re.sub(r"\s+", " ", screen)))


def _once(told: list[str], screen: str) -> bool:
    return all(screen.count(each) == 1 for each in told)
