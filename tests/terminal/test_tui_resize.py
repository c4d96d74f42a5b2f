"""Tests of a window that changes its size during work: nothing shown is lost or shown twice. In tmux, which wraps rows again."""

import io
import re
from functools import partial
from pathlib import Path

import pytest
from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import DummyInput
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from runner.frontends.terminal.probe import TerminalProbe
from runner.frontends.tui.renderer import Canvas, Painter
from tests.support.screen_harness import ScreenHarness, bash

ITEMS = [f"item {number} " + "of the list, with some words behind it " * (number % 3) for number in range(1, 31)]
# The long line leaves its place to short ones, and what is live stands still then.
SCRIPT = f"echo {'long ' * 15}; sleep 0.3; echo a; echo b; sleep 0.3; echo c; until test -e go; do sleep 0.1; done"


@pytest.mark.parametrize("widths", [(70, 60, 50, 64, 80, 40, 90), (109, 108, 60, 100), (30, 80, 30, 110)])
def test_what_went_up_stays_and_what_is_live_is_there_once(harness: ScreenHarness, widths: tuple[int, ...]) -> None:
    text = "\n".join(f"- {item}" for item in ITEMS)
    window = harness.start_in_tmux([bash(SCRIPT, text), {"text": "The end."}], "--mode", "trust-project")
    window.type("go", "Enter")
    window.until("│ c")
    typed = ""
    for width in widths:
        window.resize(width, 30)
        typed += "x"
        window.type("x")
        # Drawn again, by the new width, and nothing of the drawing before is left.
        window.until_whole(partial(_once, [f"> {typed}\n", "working ", "└ running"]))
    window.resize(120, 30)
    window.type("C-u")
    Path(harness.work / "go").touch()
    told = [*(f"• {item.strip()} " for item in ITEMS), "> go ", "read $ echo", "The end.", "done (2 requests)"]
    window.until_whole(lambda screen: "working " not in screen and _once(told, re.sub(r"\s+", " ", screen)))


def _once(told: list[str], screen: str) -> bool:
    return all(screen.count(each) == 1 for each in told)


@pytest.mark.parametrize(
    ("environ", "answer", "up", "why"),
    [
        ({"TERM": "xterm-256color"}, "", 4, "two of the three rows take two now"),
        ({"TERM": "xterm-256color"}, ">41;379;0c", 2, "xterm, also over ssh"),
        ({"TERM": "xterm-256color"}, ">1;10;0c", 2, "mosh"),
        ({"TERM": "xterm-256color"}, ">65;7003;1c", 4, "GNOME's"),
        ({"TERM": "xterm-kitty"}, ">1;4000;26c", 4, "kitty"),
        ({"TERM": "linux"}, "", 2, "a console"),
        ({"TERM": "rxvt-unicode"}, "", 2, "nothing has left its screen yet"),
    ],
)
def test_what_a_narrower_window_did_to_the_rows(environ: dict[str, str], answer: str, up: int, why: str) -> None:
    columns = 40
    canvas = Canvas(io.StringIO(), lambda: Size(rows=24, columns=columns), term=environ["TERM"])
    with create_app_session(input=DummyInput(), output=canvas):
        window = Window(FormattedTextControl("x" * 30 + "\n" + "x" * 30 + "\n"), dont_extend_height=True)
        app: Application[None] = Application(Layout(window))
        painter = Painter(app.renderer.style, canvas, lambda: "", environ)
        ground = TerminalProbe(environ, lambda: None)
        ground.heard(answer)
        painter.wraps = painter.wraps and not ground.cuts
        painter.render(app, app.layout)
        painter._cursor_pos = painter._cursor_pos._replace(y=2)
        columns = 20
        assert painter._where()[0] == up, why
