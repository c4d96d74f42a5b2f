"""Tests of the full-screen interface: a whole conversation with the scripted model, keys in every state, and
the output that remains.
"""

import os
import re
import signal

import pytest

from tests.support.marked_processes import new_nap, processes
from tests.support.screen_harness import ScreenHarness, bash, leave
from tests.support.waiting import until


def test_a_talk_from_the_first_key_to_the_last(harness: ScreenHarness) -> None:
    turns: list[dict[str, object]] = [
        bash("echo one > kept; cat kept", "I write it."),
        {"text": "That is **done**."},
        {"text": "Still here."},
    ]
    window = harness.start(turns, "--mode", "trust-project")
    window.type("write it", "Enter")  # before anything is open
    screen = window.until("done (2 requests)")
    assert "That is done." in screen, "drawn as Markdown, and whole"
    assert screen.count("> write it") == 1
    window.type("and", "M-Enter", "now?", "Enter")
    screen = window.until("Still here.")
    assert "> and\n  now?" in screen
    window.type("C-d")
    screen = window.until("LEFT 0")
    assert re.search(r"to continue: agent --resume [0-9a-f]{8}", screen)
    assert "sandbox full" not in screen.partition("to go on")[2], "the line of status is gone"
    assert (harness.work / "kept").read_text() == "one\n"


def test_the_reasoning_is_shown_in_full_if_the_user_wants_it(harness: ScreenHarness) -> None:
    turns: list[dict[str, object]] = [
        {"thinking": "The first thought.", "text": "One."},
        {"thinking": "The second thought.", "text": "Two."},
        {"thinking": "The third thought.", "text": "Three."},
    ]
    window = harness.start(turns, "--mode", "trust-project")
    window.type("one", "Enter")
    window.until("done (1 request)")
    window.type("M-t")
    window.until("the reasoning of the model is shown from now on")
    window.type("two", "Enter")
    window.until("The second thought.\n\nTwo.")
    window.type("/thinking hide", "Enter")
    window.until("the reasoning of the model is not shown from now on")
    window.type("three", "Enter")
    window.until("Three.")
    screen = leave(window)
    assert "The first thought." not in screen
    assert "The third thought." not in screen


@pytest.mark.threat("T112")
def test_a_question_takes_no_key_that_was_typed_before_it(harness: ScreenHarness) -> None:
    window = harness.start([bash("curl -s http://example.test/"), {"text": "So be it."}])
    window.type("go", "Enter")
    window.until("> go")
    window.type("y", "y", "Enter")  # into the input, or too early
    window.until("f no, and say why")
    window.press("n", "So be it.")
    assert "you declined" in leave(window)


def test_what_is_said_meanwhile_waits_and_can_be_taken_back(harness: ScreenHarness) -> None:
    window = harness.start(
        [bash("while [ ! -e go ]; do sleep 0.1; done; echo over"), {"text": "Seen both."}], "--mode", "trust-project"
    )
    window.type("work", "Enter")
    window.until("running")
    window.type("first", "Enter")
    window.until("waits: first")
    window.type("second", "Enter")
    assert "waits: first" in window.until("waits: second")
    window.type("Escape")
    screen = window.gone("waits: first")
    assert "> first\n\n  second" in blank(screen), "in the input again"
    window.type(", third", "Enter")
    window.until("waits: first")
    (harness.work / "go").touch()
    screen = window.until("Seen both.")
    assert screen.index("second, third") < screen.index("Seen both."), "inside the turn, after the call"
    leave(window)


def test_enter_may_wait_for_the_end_of_the_turn_and_all_go_at_once(harness: ScreenHarness) -> None:
    (harness.base / "own.toml").write_text('[queue]\nenter = "follow-up"\ndelivery = "all"\n')
    turns: list[dict[str, object]] = [
        bash("while [ ! -e go ]; do sleep 0.1; done; echo over"),
        {"text": "The turn is over."},
        {"text": "Seen both."},
    ]
    window = harness.start(turns, "--mode", "trust-project", "--config", str(harness.base / "own.toml"))
    window.type("work", "Enter")
    window.until("running")
    window.type("first", "Enter")
    window.until("waits: first")
    window.type("second", "Enter")
    window.until("waits: second")
    (harness.work / "go").touch()
    screen = window.until("Seen both.")
    assert screen.index("The turn is over.") < screen.index("> first"), "not inside the turn"
    assert "> first\n\n  second" in blank(screen), "both at once"
    leave(window)


def blank(screen: str) -> str:
    return "\n".join(line.rstrip() for line in screen.split("\n"))


def test_ctrl_c_in_every_state(harness: ScreenHarness) -> None:
    nap = new_nap()
    window = harness.start(
        [bash(f"echo $$ > pid; sleep {nap}"), bash("curl -s http://example.test/"), {"text": "never"}],
        "--mode",
        "trust-project",
    )
    window.until("sandbox full")
    window.type("some words", "C-c")
    assert "some words" not in window.gone("some words"), "the input is emptied"
    window.type("run", "Enter")
    window.until("running")
    window.type("C-c")
    window.until("stopped (")
    window.type("ask", "Enter")
    window.until("f no, and say why")
    window.type("C-c")
    window.until_whole(lambda whole: whole.count("stopped (") == 2)
    assert "f no, and say why" not in window.screen()
    window.type("C-c")
    window.until("press Ctrl+C again")
    window.type("C-c")
    window.until("LEFT 130")
    until(lambda: not processes(nap))  # the helper ends its commands after the runner, in a moment


def test_escape_takes_back_what_waits_and_then_stops(harness: ScreenHarness) -> None:
    """The line of the work in progress says how long it takes, how much was received, and which key ends it."""
    nap = new_nap()
    window = harness.start([bash(f"sleep {nap}", "word " * 40)], "--mode", "trust-project")
    window.until("sandbox full")
    window.type("go", "Enter")
    window.until("running")
    window.until_whole(lambda screen: re.search(r"working [0-9]+ s, ~50 tokens; Esc stops", screen) is not None)
    window.type("and then", "Enter")
    window.until("; Esc withdraws waiting texts")
    window.type("Escape")
    window.gone("waits: and then")
    assert "; Esc stops" in window.until("> and then"), "the work goes on"
    window.type("Escape")
    assert "running" not in window.until("stopped (")
    assert "> and then" in window.screen(), "the input stays"
    leave(window)
    until(lambda: not processes(nap))


def test_a_question_mark_in_an_empty_input_opens_the_help(harness: ScreenHarness) -> None:
    window = harness.start([{"text": "ok"}], size=(80, 24))
    assert "? help" in window.until("sandbox full")
    window.type("what", "?")
    window.until("> what?")
    window.type("C-u", "?")
    window.until("Ctrl+Z")
    assert "\n  Ctrl+Z " in window.until("Permissions and sandbox")
    window.type("/")
    window.until("1 of 39; up and down scroll")
    window.type("Up")
    assert "/quit" in window.until("39 of 39")
    leave(window)


def test_the_output_of_a_stopped_command_stays_and_reaches_the_model(harness: ScreenHarness) -> None:
    lines = f"for n in 1 2 3; do echo line $n; done; sleep {new_nap()}"
    window = harness.start(
        [bash(lines), {"when": "line 3", "text": "I saw it.", "otherwise": {"text": "I saw nothing."}}],
        "--mode",
        "trust-project",
    )
    window.until("sandbox full")
    window.type("go", "Enter")
    window.until("line 3")
    window.type("C-c")
    screen = window.until("stopped (")
    assert all(f"│ line {number}" in screen for number in (1, 2, 3))
    assert "└ stopped, " in screen
    window.type("and now?", "Enter")
    window.until("I saw it.")
    window.type(f"!{lines}", "Enter")
    window.until_whole(lambda screen: screen.count("│ line 3") == 2)
    window.type("C-c")
    screen = window.until("the command was stopped")
    assert screen.count("│ line 3") == 2, "the same for a command of the user"
    leave(window)


def test_a_denial_names_the_key_and_the_command_that_lift_it(harness: ScreenHarness) -> None:
    """The model is told more, such as how the program can be started; the user is at the keys."""
    turns = [bash("python3 x.py"), {"when": "who starts the agent", "text": "I was told how."}, bash("touch a")]
    window = harness.start([*turns, {"text": "It ran."}], "--mode", "plan")
    window.until("sandbox full")
    window.type("go", "Enter")
    screen = window.until("I was told how.")
    assert "instead  Shift+Tab or /mode trust-project allows it" in screen
    assert "who starts the agent" not in screen
    window.type("/mode trust-project", "Enter")
    window.until("the mode is now trust-project")
    window.type("again", "Enter")
    window.until("It ran.")
    leave(window)


def test_one_key_stops_a_command_and_leaves_what_was_written(harness: ScreenHarness) -> None:
    window = harness.start([bash(f"sleep {new_nap()}"), {"text": "never"}], "--mode", "trust-project")
    window.until("sandbox full")
    window.type(f"!sleep {new_nap()}", "Enter")
    window.until("running")
    window.type("C-c")
    screen = window.until("stopped; press Ctrl+C again to leave")
    assert "running" not in screen, "its card has ended"
    window.type("go", "Enter")
    window.until("running")
    window.type("!echo mine", "Enter")
    assert "> !echo mine" in window.until("a run is in progress"), "not lost: it cannot wait"
    window.type("C-u", "and then", "Enter")
    window.until("waits: and then")
    window.type("C-c")
    window.until("stopped (")
    window.until("> and then")
    window.type("C-c")
    window.gone("> and then")
    assert "LEFT" not in window.screen(), "the input was emptied, and nothing was left"
    leave(window)


@pytest.mark.parametrize("how", ["hangup", "killed"])
def test_a_terminal_that_dies_leaves_nothing_behind_but_the_session(harness: ScreenHarness, how: str) -> None:
    nap = new_nap()
    window = harness.start([bash(f"sleep {nap}", "I sleep.")], "--mode", "trust-project", execve=True)
    window.type("sleep", "Enter")
    window.until("running")
    until(lambda: processes(nap))
    if how == "hangup":
        window.close()
        harness.windows.clear()
    else:
        os.kill(window.pid, signal.SIGTERM)
        window.until("LEFT 143")
    until(lambda: not processes(nap))
    window = harness.start([{"text": "I am back."}], "-c")
    screen = window.until("resumed")
    assert "sleep" in screen
    window.type("again", "Enter")
    window.until("I am back.")
    leave(window)


@pytest.mark.threat("T112")
def test_a_paste_of_ten_thousand_lines_is_one_word_until_it_is_sent(harness: ScreenHarness) -> None:
    lines = [f"line {number} of what was pasted" for number in range(10_000)]
    window = harness.start_in_tmux([{"text": "Read it."}])
    window.until("sandbox full")
    window.type("see ")
    window.paste("\n".join(lines) + "\x03\x04")
    window.until("[pasted 10000 lines #1]")
    window.type(" and this")
    window.until("and this")
    window.type("Enter")
    window.until("Read it.")
    leave(window)
    kept = next(path for path in (harness.state / "sessions").rglob("*.jsonl")).read_text()
    assert f"{lines[9_998]}\\n{lines[9_999]}" in kept
    assert "see line 0 of" in kept


def test_who_leaves_the_list_of_sessions_begins_none(harness: ScreenHarness) -> None:
    window = harness.start([{"text": "Once."}])
    window.type("go", "Enter")
    window.until("done (1 request)")
    leave(window)
    kept = list((harness.state / "sessions").rglob("*.jsonl"))
    for key in ("Escape", "C-c"):
        window = harness.start([{"text": "Never."}], "--resume")
        window.until("resume which session?")
        window.type(key)
        window.until("LEFT 0")
    assert list((harness.state / "sessions").rglob("*.jsonl")) == kept


def test_the_last_answer_goes_into_the_clipboard_and_drives_nothing(harness: ScreenHarness) -> None:
    harness.environ |= {"LC_ALL": "C"}
    window = harness.start([{"text": "Take \x1b[31mthis\x1b[201~:\n\n\tcode"}])
    screen = window.until("sandbox full")
    assert "default - script.json - " in screen, "a terminal without UTF-8 gets marks that it has"
    window.type("go", "Enter")
    window.until("done (1 request)")
    window.type("/copy", "Enter")
    window.until("sent to the clipboard")
    assert window.clipboard[-1] == "Take ␛[31mthis␛[201~:\n\n\tcode"
    leave(window)


@pytest.mark.threat("T112")
def test_what_comes_with_a_paste_or_in_a_heap_is_not_typed(harness: ScreenHarness) -> None:
    window = harness.start([{"text": "Read it."}])
    window.until("sandbox full")
    window.paste("see\x1b[201~\r!touch bad1\r/quit\r\x04")
    window.until("/quit")
    window.type("C-c")
    window.gone("/quit")
    window.type("C-c", "one\r!touch bad2\r/quit\r")  # a terminal that marks no paste
    window.until("bad2")
    window.type("C-c", "!", "Enter")
    window.until("runs a command of yours")
    window.type("C-c", "whole", "Enter")
    screen = window.until("Read it.")
    assert "> whole" in screen
    leave(window)
    assert not list(harness.work.iterdir())


def test_a_window_that_changes_its_size_shows_nothing_twice(harness: ScreenHarness) -> None:
    window = harness.start([{"text": " ".join(f"word{number}" for number in range(200))}], execve=True)
    window.until("sandbox full")
    draft = " ".join(f"typed{number}" for number in range(20))
    window.type(draft)
    window.until("typed19")
    for columns, rows in ((60, 30), (40, 30), (110, 50), (80, 24)):
        window.resize(columns, rows)
        window.type("x")  # drawn for the new size, with this letter
        window.until_screen(lambda screen: "typed19x" in _unbroken(screen))
        whole = window.until("default")
        assert _unbroken(whole).count("typed0") == 1, whole
        assert whole.count("default ·") == 1, whole
        window.type("BSpace")
        window.until_screen(lambda screen: "typed19x" not in _unbroken(screen))
    window.type("Enter")
    window.until("word199")
    whole = window.until("done (1 request)")
    assert _unbroken(whole).count("typed0") == 1, whole
    leave(window)


def _unbroken(screen: str) -> str:
    return "".join(line.strip() for line in screen.split("\n"))


def test_keys_that_help_to_write(harness: ScreenHarness) -> None:
    (harness.work / "src").mkdir()
    (harness.work / "src/alpha.py").touch()
    (harness.work / ".env").touch()
    (harness.work / "my key.pem").touch()
    (harness.base / "editor").write_text("#!/bin/sh\nprintf 'from the editor' >> \"$1\"\n")
    (harness.base / "editor").chmod(0o700)
    harness.environ["EDITOR"] = str(harness.base / "editor")
    window = harness.start([bash("seq 300"), {"text": "Well."}, {"text": "Again."}], "--mode", "trust-project")
    window.until("sandbox full")
    window.type("look at @alp")
    window.until("  @src/alpha.py")
    window.type("Tab", "closely", "Enter")
    screen = window.until("Well.")
    assert "> look at @src/alpha.py closely" in screen
    assert "\n │ 150" not in screen
    window.type("C-o")
    window.until_whole(lambda screen: "│ 150" in screen and screen.count("│ 299") == 2)  # the folded output, whole
    window.type("@")
    window.until("  @src/")
    assert not {"  @.env", "key.pem"} & set(re.findall(r"  @\.env|key\.pem", window.screen()))
    window.type("C-u", "/mod")
    window.until("set how much is allowed without a question")
    window.type("Tab", "acc", "Enter")
    window.until("the mode is now accept-edits")
    window.type("BTab", "BTab")
    window.until_screen(lambda screen: "\nplan ·" in screen)
    window.type("/cost")
    window.until("  /cost  show tokens and cost")
    window.type("Enter")
    screen = window.until("received ")
    assert "the mode is now plan" in screen
    assert "the mode is now trust-project" not in screen, "only where the walk through the modes ended"
    window.gone(
        "  /cost  show tokens and cost"
    )  # what was proposed goes with what was typed: Enter must not send it again
    window.type("C-r", "closely")
    window.until("? closely")
    window.type("Enter")
    window.until_screen(lambda screen: "> look at @src/alpha.py closely" in screen)
    window.type("C-c", "C-g")
    window.until("from the editor")
    window.type("C-c", "!echo mine", "Enter")
    window.until("│ mine")
    leave(window)
    window = harness.start([{"text": "Again."}])
    window.until("sandbox full")
    window.type("Up", "Up", "Up")
    window.until_screen(lambda screen: "/mode accept-edits" in screen.partition("sandbox    full")[2])
    leave(window)
    history = harness.state / "history"
    assert history.stat().st_mode & 0o777 == 0o600
