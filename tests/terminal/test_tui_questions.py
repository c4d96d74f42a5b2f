"""Tests of the questions of the gate at a terminal: every key of the card and its effect."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.frontends.tui.panel import CAREFUL
from tests.support.layers import overlays_work
from tests.support.screen_harness import ScreenHarness, bash, leave


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ScreenHarness]:
    harness = ScreenHarness(tmp_path)
    yield harness
    for window in harness.windows:
        window.close()


@pytest.mark.thorough
def test_every_key_of_a_card(harness: ScreenHarness) -> None:
    long = "touch long.txt\n" + "\n".join(f"echo {n}" for n in range(80)) + "\ntouch tail.txt"
    window = harness.start(
        [
            bash("touch yes.txt", "First."),
            bash("touch no.txt", "Second."),
            bash("touch why.txt", "Third."),
            bash("touch typo.txt", "Fourth."),
            {
                "text": "Fifth.",
                "calls": [{"name": "bash", "arguments": {"command": f"touch {name}"}} for name in ("l1", "l2", "l3")],
            },
            bash(long, "Sixth."),
            {"text": "All of it is over."},
        ]
    )
    window.type("go", "Enter")
    card = window.until("y yes, once")
    assert "$ touch yes.txt" in card
    assert "Creates yes.txt" in card
    assert "mode default asks before changing files" in " ".join(card.split())
    window.press("x", "back to the question")
    window.press("Escape", "y yes, once")
    window.press("y", "Second.")
    window.until("$ touch no.txt")
    window.press("n", "Third.")
    window.until("$ touch why.txt")
    window.press("f", "tell the model why")
    window.type("make it a folder", "Enter")
    window.until("$ touch typo.txt")
    window.press("e", "edit the command")
    window.type("C-u", "touch right.txt", "Enter")
    window.until("that you edited")
    window.press("y", "Fifth.")
    window.until("1 of 3")
    window.press("A", "Sixth.")
    window.until("more rows")
    window.press("y", "not approved yet")
    while "more rows" in (before := window.screen()):
        window.type("NPage")  # one after the other: keys that come at once are a paste
        window.until_screen(lambda screen, before=before: screen != before)
    window.press("y", "All of it is over.")
    window.type("C-d")
    window.until("LEFT 0")
    made = sorted(path.name for path in harness.work.iterdir() if path.is_file())
    assert made == ["l1", "l2", "l3", "long.txt", "right.txt", "tail.txt", "yes.txt"]


def test_stopping_at_a_card_stops_the_turn(harness: ScreenHarness) -> None:
    window = harness.start([bash("touch a.txt"), {"text": "never"}])
    window.type("go", "Enter")
    window.until("y yes, once")
    window.type("C-c")
    window.until("stopped (")
    window.type("C-d")
    window.until("LEFT 0")
    assert not (harness.work / "a.txt").exists()


@pytest.mark.threat("T35")
def test_a_paste_into_a_card_is_no_answer(harness: ScreenHarness) -> None:
    window = harness.start([bash("touch a.txt"), {"text": "So be it."}])
    window.type("go", "Enter")
    window.until("y yes, once")
    window.rest(CAREFUL)  # the card takes keys: the paste alone is what is tried here
    for _ in range(5):
        window.type("yyyyyyyysssspp11y")  # what a terminal without bracketed paste sends
    window.press("n", "So be it.")
    window.type("C-d")
    window.until("LEFT 0")
    assert not (harness.work / "a.txt").exists()


def test_what_the_sandbox_stopped_is_offered_and_runs_again(harness: ScreenHarness) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # /tmp is the sandbox's own
        data = Path(folder) / "data.txt"
        data.write_text("out there\n")
        (harness.work / "read.py").write_text(f"print(open({str(data)!r}).read())\n")
        turns = [
            bash("python3 read.py", "I look."),
            {"text": "Seen."},
            bash("python3 read.py", "Again."),
            {"text": "End."},
        ]
        window = harness.start(turns, "--mode", "trust-project")
        window.type("go", "Enter")
        card = " ".join(window.until("y yes, once").split())
        assert "the action ran and was stopped" in card
        assert "reported by the program itself" in card
        assert "read-outside" in card
        assert f"reads {data} writes" in card
        assert "in this session" not in card, "this once, and nothing is remembered"
        screen = window.press("y", "Seen.")
        assert "out there" in screen
        window.type("go", "Enter")
        window.until("Again.")
        window.until("y yes, once")
        window.press("n", "End.")
        window.type("C-d")
        window.until("LEFT 0")


def edit(path: str, text: str = "") -> dict[str, object]:
    return {"text": text, "calls": [{"name": "write", "arguments": {"path": path, "content": "x\n"}}]}


@pytest.mark.parametrize("key", ["a", "BTab"])
def test_one_key_accepts_all_edits_from_a_card_on(harness: ScreenHarness, key: str) -> None:
    window = harness.start(
        [edit("a.txt", "One."), edit("b.txt", "Two."), edit("c.txt"), {"text": "Over."}], size=(80, 24)
    )
    window.type("go", "Enter")
    card = window.until("all edits in the workspace")
    assert "Creates a.txt" in card
    screen = window.press(key, "Over.")
    assert "mode is now accept-edits" in " ".join(screen.split()) or "accept-edits ·" in screen
    window.type("C-d")
    window.until("LEFT 0")
    assert sorted(path.name for path in harness.work.iterdir()) == ["a.txt", "b.txt", "c.txt"]


def test_an_edited_command_is_asked_about_before_the_other_questions(harness: ScreenHarness) -> None:
    calls = [{"name": "bash", "arguments": {"command": f"touch {name}.txt"}} for name in ("one", "two")]
    window = harness.start([{"text": "", "calls": calls}, {"text": "Over."}])
    window.type("go", "Enter")
    window.until("1 of 2")
    window.press("e", "edit the command")
    window.type("C-u", "touch other.txt", "Enter")
    card = window.until("that you edited")
    assert "1 of 2" in card
    assert "Creates other.txt" in card
    window.press("y", "$ touch two.txt")
    window.press("y", "Over.")
    window.type("C-d")
    window.until("LEFT 0")
    assert sorted(path.name for path in harness.work.iterdir()) == ["other.txt", "two.txt"]


def test_a_command_of_the_user_is_asked_about_with_yes_and_no(harness: ScreenHarness) -> None:
    window = harness.start([{"text": "never"}])
    window.until("? help")
    window.type("!touch mine.txt && ls", "Enter")
    card = window.until("y yes, once")
    assert "y yes, once · n/Enter no · x explain" in card
    assert "in this session" not in card
    window.press("y", "│ mine.txt")
    window.type("C-d")
    window.until("LEFT 0")
    assert (harness.work / "mine.txt").exists()


def test_in_a_list_the_other_edits_need_no_answer(harness: ScreenHarness) -> None:
    calls = [{"name": "write", "arguments": {"path": f"{name}.txt", "content": "x\n"}} for name in ("one", "two")]
    calls.append({"name": "bash", "arguments": {"command": "touch three.txt"}})
    window = harness.start([{"text": "", "calls": calls}, {"text": "Over."}])
    window.type("go", "Enter")
    window.until("1 of 3")
    window.press("a", "3 of 3")
    screen = window.press("n", "Over.")
    assert "you approved" in screen
    assert "for one more right" not in screen
    window.type("C-d")
    window.until("LEFT 0")
    assert sorted(path.name for path in harness.work.iterdir()) == ["one.txt", "two.txt"]


def test_above_an_escalation_stand_the_command_and_its_output(harness: ScreenHarness) -> None:
    folder = tempfile.TemporaryDirectory(dir="/var/tmp")
    made = Path(folder.name) / "made"
    script = f"echo begun; python3 -c \"open('{made}', 'w').close()\""
    window = harness.start([bash(script), {"text": "Over."}], size=(110, 40))
    window.type("go", "Enter")
    window.until("y yes, once")
    window.press("y", "does not exist")
    card = window.until("y yes, once · n/Enter no · f no, and say why · x explain")
    above, _, below = card.partition("blocked by the sandbox")
    assert "│ begun" in above
    assert "running" not in card
    assert below.split("\n")[1].strip() == "", "a blank row"
    assert "write-outside" in below.split("\n")[2]
    window.press("y", "Over.")
    assert made.exists()
    window.type("C-d")
    window.until("LEFT 0")
    folder.cleanup()


@pytest.mark.threat("T313")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_a_command_is_tried_and_a_part_is_kept(harness: ScreenHarness) -> None:
    script = "echo said; echo 1 > one; echo 2 > two; printf '\\033[2J\\033[Hx' > drawn"
    window = harness.start(
        [
            bash(script, "First."),
            bash("echo 3 > three", "Second."),
            bash("echo 4 > four", "Third."),
            {"text": "It ends."},
        ]
    )
    window.type("go", "Enter")
    card = window.until("t try")
    assert "try it first: without network" in card
    assert not (harness.work / "one").exists()
    window.press("t", "y keep everything")
    card = window.until("y keep everything")
    assert "Tried without network: exit code 0, 3 changes wait for your answer" in " ".join(card.split())
    assert "| said" in card
    assert "+␛[2J␛[Hx" in card
    assert [row for row in card.splitlines() if row.strip().startswith("3  write")], card
    assert not (harness.work / "one").exists()
    window.press("c", "the changes to keep")
    window.type("C-u", "2-3", "Enter")
    window.until("$ echo 3 > three")
    shown = window.until("t try")
    assert "approved" in shown
    assert sorted(path.name for path in harness.work.iterdir() if path.is_file()) == ["one", "two"]
    window.press("t", "y keep everything")
    window.press("n", "$ echo 4 > four")
    assert not (harness.work / "three").exists()
    window.until("t try")
    window.press("t", "y keep everything")
    window.press("r", "It ends.")
    assert (harness.work / "four").exists()
    window.type("C-d")
    window.until("LEFT 0")


RULE = """[[rule]]
verdict = "try"
run = ["python3", "do.py", "**"]
why = "look first"
"""


@pytest.mark.threat("T317")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_what_rules_try_is_decided_at_the_end_of_the_turn(harness: ScreenHarness) -> None:
    config = harness.work.parent / "home/.config/ringfence"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(RULE)
    (harness.work / "do.py").write_text("import sys\nprint('said')\nopen(sys.argv[1], 'w').write('1')\n")
    window = harness.start(
        [
            bash("python3 do.py one", "First."),
            bash("python3 do.py two", "Second."),
            {"text": "It ends."},
            bash("python3 do.py three", "Third."),
            {"text": "Also this."},
        ]
    )
    window.type("go", "Enter")
    card = window.until("y keep everything")
    assert "It ends." in card
    assert "2 commands ran without network, 2 changes wait for your answer" in " ".join(card.split())
    assert "command 2: python3 do.py two: exit code 0" in card
    assert "run it as usual" not in card
    assert not (harness.work / "one").exists()
    window.press("c", "the changes to keep")
    window.type("C-u", "2", "Enter")
    window.until("kept 1 of 2 changes")
    assert not (harness.work / "one").exists()
    assert (harness.work / "two").exists()
    window.type("again", "Enter")
    window.until("y keep everything")
    window.press("n", "you declined")
    assert not (harness.work / "three").exists()
    window.type("C-d")
    window.until("LEFT 0")


GATE = "Creates made.txt\ny yes, once · n/Enter no\nallow once?"
ASKED: dict[str, object] = {
    "text": "",
    "calls": [
        {
            "name": "ask_user",
            "arguments": {
                "questions": [{"question": GATE, "title": "gate", "choices": [{"label": "yes"}, {"label": "no"}]}]
            },
        }
    ],
}


@pytest.mark.threat("T251")
@pytest.mark.parametrize("own", [False, True], ids=["a choice", "own words"])
def test_an_answer_to_the_model_answers_nothing_that_the_gate_asks(harness: ScreenHarness, own: bool) -> None:
    window = harness.start([ASKED, bash("touch made.txt"), {"text": "Over."}])
    window.until("? help")
    window.type("go", "Enter")
    screen = window.until("w: own words, Escape: no answer")
    assert "the model asks; an answer allows no action" in screen
    for line in GATE.split("\n"):
        assert f"| {line}" in screen, "its text is behind a bar"
    if own:
        window.press("w", "your answer to the model")
        window.type("yes, once", "Enter")
        window.until("s  this exact command")
    else:
        window.press("1", "s  this exact command")
    assert not (harness.work / "made.txt").exists()
    window.press("n", "Over.")
    assert not (harness.work / "made.txt").exists()
    leave(window)


@pytest.mark.threat("T251")
def test_a_plain_terminal_asks_for_the_model_line_by_line(harness: ScreenHarness) -> None:
    window = harness.start([ASKED, bash("touch made.txt"), {"text": "Over."}], "--plain")
    window.until("/quit to leave")
    window.type("go", "Enter")
    screen = window.until("a number, or your own words (empty: no answer):")
    assert "the model asks; an answer allows no action" in screen
    for line in GATE.split("\n"):
        assert f"| {line}" in screen
    window.type("3", "Enter")
    window.until_whole(lambda screen: "(empty: no answer):" in screen.partition("the choices are 1 to 2")[2])
    window.type("1", "Enter")
    window.until_whole(lambda screen: "allow once? [" in screen.partition("the choices are 1 to 2")[2])
    assert not (harness.work / "made.txt").exists()
    window.type("n", "Enter")
    window.until("Over.")
    assert not (harness.work / "made.txt").exists()
    window.leave()
