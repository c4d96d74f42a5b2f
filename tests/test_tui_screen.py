"""What goes up into the scrollback and what is live below it, as a person sees both."""

import re

from test_transcript import STORY

from runner.tui.rows import plain
from runner.tui.screen import Screen
from runner.tui.theme import PLAIN


def test_a_story_goes_up_once() -> None:
    screen = Screen(lambda: 80, PLAIN)
    shown = ""
    for event in STORY:
        screen.take(event)
        shown += re.sub(r"\x1b\[[\d;]*m", "", screen.done())
    for told in ("workspace  /w", "> fix the test", "I will look first.", "$ ls", "a.py", "+y", "denied", "contained"):
        assert shown.count(told) >= 1, told
    assert screen.done() == ""
    assert screen.live(80, 24) == []


def test_what_is_written_is_live_until_it_is_whole() -> None:
    from runner.events import Said

    screen = Screen(lambda: 80, PLAIN)
    screen.take(Said("one **two"))
    assert screen.done() == ""
    assert [plain(row) for row in screen.live(80, 24)] == ["", "one **two"]
    screen.take(Said("**\n\nthree"))
    assert "one" in screen.done()
    assert [plain(row) for row in screen.live(80, 24)] == ["", "three"]
