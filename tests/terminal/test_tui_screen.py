"""Tests of the screen: the lines that enter the scrollback, and the live part below them."""

import os
import re
from pathlib import Path

import pytest

from policy.model.action import EditFile, ReadFile, RunScript
from policy.model.tier import Ruling, Tier
from runner import events
from runner.event_values import PastRow
from runner.frontends.terminal.probe import is_light
from runner.frontends.tui.rows import Fragments, ansi, cells, measure, plain
from runner.frontends.tui.screen import Screen, text_rows
from runner.frontends.tui.theme import DARK, LIGHT, PLAIN, Theme, theme_for
from runner.messages import Usage
from runner.text.sanitize import visible
from tests.support import terminal_screen
from tests.support.cards import card_of
from tests.support.places import TESTS
from tests.support.screen_story import STORY, finished, judged
from tests.support.terminal_screen import ScreenTerminal
from tests.support.tmux import Tmux

SGR = re.compile(r"\x1b\[([\d;]*)m")
GOLDEN = TESTS / "golden" / "screen"
ENDED = events.RunEnded(0, "done", 1, Usage(0, 0), ())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def screen(columns: int = 80, theme: Theme = PLAIN, *, encoding: str = "utf-8", clock: Clock | None = None) -> Screen:
    return Screen(lambda: columns, theme, encoding=encoding, now=clock or Clock())


def up(shown: Screen) -> str:
    """Return the lines that enter the scrollback, without colours."""
    return SGR.sub("", shown.done())


def begin(shown: Screen, call: str, script: str = "make") -> None:
    shown.take(events.ToolProposed(call, "bash", RunScript(script, "/w")))
    shown.take(judged(call, Tier.EXECUTE, Ruling.ALLOW, "runs code"))


def live(shown: Screen, columns: int = 80, rows: int = 24) -> list[str]:
    return [plain(row) for row in shown.live(measure(columns), rows)]


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"UPDATE_GOLDEN=1 writes {name} anew"


@pytest.mark.parametrize("theme", [DARK, LIGHT, PLAIN], ids=lambda theme: theme.name)
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_the_screen_is_golden(columns: int, rows: int, theme: Theme) -> None:
    """Colours as `{36}...{}`. What is live stands behind `~` whenever it became another."""
    clock = Clock()
    shown = screen(columns, theme, clock=clock)
    text, before = "", []
    for event in STORY:
        shown.take(event)
        clock.now += 1.25
        text += shown.done()
        now: list[Fragments] = shown.live(measure(columns), rows)
        if now != before and not isinstance(event, events.ModelText):
            text += "".join(f"~ {line}\n" for line in ansi(now).splitlines())
        before = now
    golden(f"{columns}x{rows}-{theme.name}.txt", SGR.sub(lambda found: "{" + found[1].removesuffix("0") + "}", text))


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (30, 10)])
def test_a_terminal_shows_just_these_rows(columns: int, rows: int, tmp_path: Path) -> None:
    """No row is broken by the terminal, so that both agree where the cursor is; nothing drives it."""
    shown = screen(columns, DARK)
    for event in STORY:
        shown.take(event)
    out = shown.done()
    (tmp_path / "out").write_text(out, "utf-8")
    environ, size = {**os.environ, "LC_ALL": "C.UTF-8"}, (columns, rows)
    window: terminal_screen.Screen
    if size == (80, 24):
        window = Tmux(tmp_path, tmp_path, environ, "cat", "out", size=size)
    else:
        window = ScreenTerminal(tmp_path, environ, "cat", "out", size=size)
    try:
        seen = window.until("LEFT 0").split("LEFT 0")[0].rstrip("\n").split("\n")
        assert window.driven() == []
    finally:
        window.close()
    assert seen == [line.rstrip() for line in SGR.sub("", out).rstrip("\n").split("\n")]


def test_no_row_takes_the_last_column() -> None:
    for columns in (20, 21, 33, 80, 200):
        shown = screen(columns)
        for event in STORY:
            shown.take(event)
            assert all(cells(line) <= measure(columns) for line in live(shown, columns))
        assert all(cells(line) <= measure(columns) for line in up(shown).split("\n"))


def test_what_is_written_is_live_until_it_is_whole() -> None:
    shown = screen()
    shown.take(events.ModelText("one **two"))
    assert shown.done() == ""
    assert live(shown) == ["", "one **two"]
    shown.take(events.ModelText("**\n\nthree"))
    assert up(shown) == "\none two\n"
    assert live(shown) == ["", "three"]
    shown.take(ENDED)
    assert up(shown) == "\nthree\n\ndone (1 request)\n"
    assert live(shown) == []


def test_what_is_live_is_a_third_at_most() -> None:
    shown = screen()
    shown.take(events.ModelText("- words and words " * 80))
    assert len(live(shown)) == 8
    shown.take(ENDED)
    for number in range(20):
        begin(shown, f"1.{number}")
        assert len(live(shown)) <= 8
        assert len(live(shown, rows=10)) <= 3
    assert live(shown)[-1].startswith("and 1")


def test_a_running_command_shows_its_time_and_its_last_lines() -> None:
    clock = Clock()
    shown = screen(clock=clock)
    begin(shown, "1.1", "make -j2")
    shown.take(events.CommandOutput("1.1", 1, "".join(f"line {number}\n" for number in range(50))))
    shown.take(events.CommandOutput("1.1", 2, "10 %\r20 %\r30 %"))
    clock.now += 65
    assert live(shown) == [
        "",
        " execute   $ make -j2",
        " │ line 47",
        " │ line 48",
        " │ line 49",
        " │ 30 %",
        " └ running, 1 min 5 s, 50 lines",
    ]


def test_what_a_person_says_to_a_plan_stays_on_the_screen() -> None:
    """A plan has no card that could hold it."""
    shown = screen()
    shown.take(events.QuestionAnswered("1.1", False, "smaller\x1b[2K steps"))
    assert "you declined: smaller␛[2K steps" in up(shown)


def test_the_time_starts_with_the_yes() -> None:
    clock = Clock()
    shown = screen(clock=clock)
    shown.take(events.ToolProposed("1.1", "bash", RunScript("make", "/w")))
    shown.take(judged("1.1", Tier.EXECUTE, Ruling.ASK, "runs code"))
    shown.take(events.QuestionAsked("1.1", "may it?"))
    assert live(shown) == []
    clock.now += 100
    shown.take(events.QuestionAnswered("1.1", True, None))
    assert live(shown)[-1] == " └ running, 0 s"


def test_what_is_folded_can_be_shown() -> None:
    shown = screen()
    assert not shown.expand()
    begin(shown, "1.1")
    shown.take(finished("1.1", "".join(f"line {number}\n" for number in range(50))))
    first = up(shown)
    assert "… 40 more lines" in first
    assert "line 25" not in first
    assert shown.expand()
    assert all(f"line {number}\n" in up_again for up_again in [up(shown)] for number in range(50))
    assert not shown.expand()


def test_a_long_change_is_folded_and_numbered() -> None:
    shown = screen()
    shown.take(events.ToolProposed("1.1", "edit", EditFile("/w/a.py", "x", "y")))
    shown.take(judged("1.1", Tier.WRITE, Ruling.ALLOW, "changes a file"))
    shown.take(finished("1.1", "edited a.py\n@@ -1,0 +1,2000 @@\n" + "".join(f"+line {n}\n" for n in range(1, 2001))))
    text = up(shown)
    assert " │     1 +line 1\n" in text
    assert " │  2000 +line 2000\n" in text
    assert "… 1882 more lines" in text
    assert shown.expand()
    assert " │  1000 +line 1000\n" in up(shown)


def test_reads_beside_each_other_take_a_row_each() -> None:
    shown = screen()
    for number in range(3):
        shown.take(events.ToolProposed(f"1.{number}", "read", ReadFile(f"/w/{number}.py")))
        shown.take(judged(f"1.{number}", Tier.READ, Ruling.ALLOW, "reads"))
    for number in range(3):
        shown.take(finished(f"1.{number}", "a\nb"))
    assert up(shown).split("\n") == [
        "",
        *(f" read   read w/{number}.py  ok, 12 ms, 2 lines" for number in range(3)),
        "",
    ]


def test_what_did_not_end_is_said() -> None:
    shown = screen()
    begin(shown, "1.1")
    shown.take(events.RunEnded(130, "stopped", 1, Usage(0, 0), ()))
    assert " └ stopped" in up(shown)
    assert live(shown) == []


def test_a_question_that_nobody_answered_is_said() -> None:
    shown = screen()
    shown.take(events.ToolProposed("1.1", "bash", RunScript("make", "/w")))
    shown.take(judged("1.1", Tier.EXECUTE, Ruling.ASK, "runs code"))
    shown.take(events.QuestionAsked("1.1", "may it?"))
    shown.take(
        events.QuestionAsked("1.2", "and it?", card_of("curl https://example.org"))
    )  # of a list, which stands before the turn of its call
    shown.take(events.RunEnded(130, "stopped", 1, Usage(0, 0), ()))
    told = "└ stopped before the question was answered: nothing ran\n"
    assert up(shown).startswith(f"\n execute   $ make\n {told}\n network   $ curl https://example.org\n {told}")


def test_a_line_that_was_written_over_is_as_a_terminal_leaves_it() -> None:
    shown = screen()
    begin(shown, "1.1")
    shown.take(finished("1.1", "".join(f"\r{n:3}% of it" for n in range(101)) + "\r\nlong\rab\n"))
    assert " │ 100% of it\n │ abng\n" in up(shown)
    assert shown.expand(), "nothing is lost"
    assert "␍  0% of it␍  1% of it" in up(shown)
    shown.take(events.ToolProposed("1.2", "edit", EditFile("/w/a.py", "x", "y")))
    shown.take(judged("1.2", Tier.WRITE, Ruling.ALLOW, "changes a file"))
    shown.take(finished("1.2", "@@ -1,0 +1,1 @@\n+evil()\r+good()\n"))
    assert "+evil()␍+good()" in up(shown), "of a file every character counts"


def test_a_command_is_shown_above_as_in_its_question() -> None:
    shown = screen()
    shown.take(events.ToolProposed("1.1", "bash", RunScript("ls" + " " * 300 + "; rm -rf src e" + "\u0336" * 9, "/w")))
    shown.take(judged("1.1", Tier.EXECUTE, Ruling.ALLOW, "runs code"))
    shown.take(finished("1.1", "made e" + "\u0336" * 40))
    text = up(shown)
    assert "ls⟨300 blanks⟩; rm -rf src e<U+0336>" in text
    assert f"made e{3 * chr(0x336)}⟨37 marks more⟩" in text


def test_above_an_escalation_stands_what_ran_and_how_it_ended() -> None:
    clock = Clock()
    shown = screen(clock=clock)
    begin(shown, "1.1")
    shown.take(events.CommandOutput("1.1", 1, "".join(f"line {n}\n" for n in range(8)) + "no\x1b[2J\n"))
    clock.now += 2
    shown.take(events.QuestionAsked("1.1", "and this folder?"))
    shown.take(events.QuestionAsked("1.1", "asked again, because the settings changed"))
    rows = [f" │ line {n}" for n in (4, 5, 6, 7)]
    block = ["", " execute   $ make", *rows, " │ no␛[2J", " └ blocked by the sandbox, 2 s, 9 lines", ""]
    assert up(shown) == "\n".join(block)
    assert live(shown) == [], "it does not run any more, and the question has a blank row above it"
    shown.take(events.QuestionAnswered("1.1", True, None))
    shown.take(events.CommandOutput("1.1", 1, "second run\n"))
    assert live(shown)[1:] == [" execute   $ make", " │ second run", " └ running, 0 s"]
    shown.take(finished("1.1", "made"))
    assert " │ for one more right, you approved\n │ made\n" in up(shown)
    begin(shown, "1.2")
    shown.take(events.QuestionAsked("1.2", "and this host?"))
    shown.take(events.RunEnded(130, "stopped", 1, Usage(0, 0), ()))
    assert "nothing ran" not in up(shown)


def test_a_no_to_one_right_more_is_not_a_no_to_what_ran() -> None:
    shown = screen()
    begin(shown, "1.1")
    shown.take(events.QuestionAsked("1.1", "and this host?"))
    shown.take(events.QuestionAnswered("1.1", False, "not that one"))
    shown.take(finished("1.1", "made"))
    text = up(shown)
    assert " │ allowed  runs code" in text
    assert " │ for one more right, you declined: not that one\n │ made\n" in text


def test_reasoning_is_one_row_unless_it_is_wanted() -> None:
    shown = screen()
    shown.take(events.ModelThinking("I look "))
    shown.take(events.ModelThinking("ahead"))
    assert live(shown) == ["", "thinking: I look ahead"]
    shown.take(events.ModelThinking("I look\nfirst at " + "x" * 500))
    assert len(live(shown)) == 2
    assert live(shown)[1].startswith("thinking: x")
    shown.take(events.ModelText("Done."))
    shown.take(ENDED)
    assert "first" not in up(shown)
    wanted = Screen(lambda: 80, PLAIN, thinking=True)
    wanted.take(events.ModelThinking("I look first."))
    wanted.take(events.ModelText("Done."))
    wanted.take(ENDED)
    assert up(wanted).startswith("\nI look first.\n\nDone.\n")
    wanted.thinking = False
    wanted.take(events.ModelThinking("I look again."))
    assert live(wanted) == ["", "thinking: I look again."]


def test_a_long_prompt_is_folded() -> None:
    shown = screen()
    shown.take(events.Prompted("\n".join(f"line {number}" for number in range(10_000))))
    lines = up(shown).split("\n")
    assert len(lines) == 14
    assert lines[1] == "> line 0"
    assert lines[9] == "  … 9989 more lines"


def test_a_diff_of_two_files_numbers_each_of_its_own() -> None:
    shown = screen()
    files = "--- a\n+++ a\n@@ -1 +1,2 @@\n-x\n+y\n+z\n\\ No newline\n--- b\n+++ b\n@@ -7,0 +8 @@\n+w"
    shown.take(events.Display(files, "diff"))
    lines = [line.strip() for line in up(shown).split("\n") if line.strip()]
    wanted = ["--- a", "+++ a", "@@ -1 +1,2 @@", "1 -x", "1 +y", "2 +z", "\\ No newline", "--- b", "+++ b"]
    assert lines == [*wanted, "@@ -7,0 +8 @@", "8 +w"]


def test_nothing_of_what_is_over_is_kept() -> None:
    """Many turns leave no more behind than one."""
    shown = screen()
    for turn in range(60):
        for event in STORY:
            shown.take(event)
        if turn % 10 == 0:
            assert shown.live(80, 24) == []
            shown.done()
    shown.done()
    held = vars(shown)
    assert not held["_cards"]
    assert not held["_up"]
    assert shown.live(80, 24) == []


@pytest.mark.threat("T105")
def test_every_field_of_every_event_is_safe() -> None:
    evil = "a\x1b[2J\x07\u202eb\r\nc\x9b1m\ud800"
    shown = screen(theme=DARK)
    for event in STORY:
        shown.take(_poisoned(event, evil))
        assert all(visible(line, prose=True) == line for line in live(shown))
        rest = up(shown)
        assert visible(rest, prose=True) == rest
        rest.encode("utf-8")


def _poisoned(event: events.Event, evil: str) -> events.Event:
    """Return a copy of the event with `evil` appended to every text, except the identifiers of calls."""
    import dataclasses

    def spoil(value: object, name: str = "") -> object:
        if isinstance(value, str) and name not in ("call", "kind", "type"):
            return value + evil if type(value) is str else value
        if isinstance(value, tuple):
            return tuple(spoil(item) for item in value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {item.name: spoil(getattr(value, item.name), item.name) for item in dataclasses.fields(value)}
            return type(value)(**fields)
        return value

    spoiled = spoil(event)
    assert isinstance(spoiled, type(event))
    return spoiled


def test_a_terminal_without_our_signs_gets_plainer_ones() -> None:
    shown = screen(encoding="ascii")
    for event in STORY:
        shown.take(event)
        assert all(line.isascii() for line in live(shown))
    text = shown.done()
    assert text.isascii()
    assert " ` ok" in SGR.sub("", text)
    assert "\\u65e5" in text


@pytest.mark.parametrize(
    ("environ", "wanted", "expected", "why"),
    [
        ({}, "auto", DARK, "most are"),
        ({"COLORFGBG": "15;0"}, "auto", DARK, "said by the terminal"),
        ({"COLORFGBG": "0;15"}, "auto", LIGHT, "said by the terminal"),
        ({"COLORFGBG": "0;default;7"}, "auto", LIGHT, "also in three parts"),
        ({"COLORFGBG": "0;15"}, "dark", DARK, "a person knows better"),
        ({"NO_COLOR": "1"}, "light", PLAIN, "no-color.org"),
        ({"NO_COLOR": ""}, "light", LIGHT, "set and empty is not set"),
        ({}, "none", PLAIN, "as one likes"),
        ({}, "auto 11;rgb:ffff/fafa/f0f0", LIGHT, "the terminal itself knows best"),
        ({"COLORFGBG": "0;15"}, "auto 11;rgb:28/2a/36", DARK, "also against a variable that a shell has kept"),
        ({}, "dark 11;rgb:ffff/ffff/ffff", DARK, "but not better than a person"),
        ({"COLORFGBG": "0;15"}, "auto 11;rgb:ffff", LIGHT, "no colour, no answer"),
    ],
)
def test_the_theme(environ: dict[str, str], wanted: str, expected: Theme, why: str) -> None:
    setting, _, answer = wanted.partition(" ")
    assert theme_for(environ, setting, light=is_light(answer)) is expected, why


def test_no_colour_is_no_colour() -> None:
    shown = screen(theme=PLAIN)
    for event in STORY:
        shown.take(event)
    codes = {code for found in SGR.findall(shown.done()) for code in found.split(";")}
    assert codes <= {"0", "1", "2", "3", "4", "7", "9"}


@pytest.mark.threat("T105")
@pytest.mark.parametrize("columns", [80, 24])
def test_the_last_exchanges_of_a_session_drive_nothing(columns: int) -> None:
    """They are drawn as they were when they happened: prompts, answers, and a row for each call."""
    evil = "\x1b]0;owned\x07\x1b[31m\u202e " + "漢字" * 30
    recent = (
        PastRow("left out", "2"),
        PastRow("prompt", evil),
        PastRow("call", f"$ {evil}", "denied"),
        PastRow("call", "$ ls", "done"),
        PastRow("answer", f"**fixed** {evil}\n\n- one"),
    )
    shown = screen(columns)
    shown.take(
        events.Resumed("0123456789abcdef", False, "2026", "2026", 3, 4, "f", "l", "s", ("mode was x, is y",), recent)
    )
    text = up(shown)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
    assert all(cells(line) <= measure(columns) for line in text.split("\n"))
    rows = text.split("\n")
    call = next(at for at, row in enumerate(rows) if row.endswith("  denied"))
    assert rows[call].startswith(" $ ␛]0;owned"), "its outcome is visible, however long it is"
    assert rows[call + 1] == " $ ls  done"
    assert "… 2 earlier prompts" in text
    assert "\n• one" in text
    assert text.rindex("resumed ") > text.index("fixed")
    assert "changed    mode was x," in text


# fmt: off
WRAPPED = [
    ("/a [B]  some words here",  20, ["/a [B]  some words", "        here"],      "below the second column"),
    ("    5  some words here on",  17, ["    5  some words", "       here on"],    "behind blanks"),
    ("  some words that are long", 14, ["  some words", "    that are", "    long"],  "below the indentation"),
    ("some words that are",      10, ["some words", "that are"],                  "prose"),
    ("a word that is long  x y",  20, ["a word that is long", "x y"],              "a first column that is too wide"),
]
# fmt: on


@pytest.mark.parametrize(("line", "width", "rows", "why"), WRAPPED, ids=[row[3] for row in WRAPPED])
def test_a_long_line_of_an_answer_hangs(line: str, width: int, rows: list[str], why: str) -> None:
    assert [plain(row).rstrip() for row in text_rows(line, width)] == rows, why
