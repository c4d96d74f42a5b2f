"""Tests of a conversation at the terminal: it continues from turn to turn, and Ctrl-C stops a turn, not the
conversation.
"""

import asyncio
import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from policy.model.tier import Mode
from runner.audit.log import AuditLog
from runner.events import ActionFinished, Event, Prompted, RunEnded, SessionStarted, VerdictReached
from runner.problems import Exit
from runner.providers.scripted import Turn
from tests.support.conversation import ScriptedUser, bash, play_conversation, shown_text
from tests.support.terminal import Terminal


def test_the_talk_goes_on_and_ends_at_the_end_of_input(tmp_path: Path) -> None:
    events: list[Event] = []
    turns = [bash("echo one > kept"), Turn("done"), bash("cat kept"), Turn("done")]
    assert (
        play_conversation(tmp_path, turns, ScriptedUser("write it", "", "read it", EOFError()), events.append)
        == Exit.DONE
    )
    assert isinstance(events[0], SessionStarted)
    ended = [event for event in events if isinstance(event, RunEnded)]
    assert [event.reason for event in ended] == ["done", "done"], "an empty line is no turn"
    finished = [event for event in events if isinstance(event, ActionFinished)]
    assert "one" in finished[-1].text


@pytest.mark.threat("T112")
@pytest.mark.parametrize("first", ["words", "!touch bad", "/quit"])
def test_lines_that_came_at_once_are_one_prompt_and_no_command(tmp_path: Path, first: str) -> None:
    events: list[Event] = []
    lines = f"{first}\n!touch bad\n/quit"
    assert play_conversation(tmp_path, [Turn("read")], ScriptedUser(lines, "!", "/quit"), events.append) == Exit.DONE
    assert [event.text for event in events if isinstance(event, Prompted)] == [lines]
    assert "runs a command of yours" in shown_text(events), "a `!` alone says what it is for"
    assert not (tmp_path / "w" / "bad").exists()


@pytest.mark.threat("T14")
@pytest.mark.parametrize("delay", [0.0, 0.003, 0.01, 0.03, 0.1, 0.5])  # seconds from the verdict to Ctrl-C
def test_ctrl_c_stops_the_turn_and_its_child_and_the_talk_goes_on(delay: float, tmp_path: Path) -> None:
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, VerdictReached) and len([one for one in events if isinstance(one, VerdictReached)]) == 1:
            asyncio.get_running_loop().call_later(delay, os.kill, os.getpid(), signal.SIGINT)

    turns = [bash("python3 -c 'import time; time.sleep(60)'"), bash("echo still here"), Turn("done")]
    before = signal.getsignal(signal.SIGINT)
    assert play_conversation(tmp_path, turns, ScriptedUser("sleep", "go on", "/quit"), emit) == Exit.DONE
    assert signal.getsignal(signal.SIGINT) is before
    assert [event.exit for event in events if isinstance(event, RunEnded)] == [Exit.INTERRUPTED, Exit.DONE]
    assert "still here" in [event for event in events if isinstance(event, ActionFinished)][-1].text
    with AuditLog.open_to_read(tmp_path / "state" / "audit.db") as log:
        assert [row.body["ended_by"] for row in log.rows(kind="finished")] == [None, "cancelled"]


PROMPT = "\x1b[?25h"  # the cursor is back: a prompt waits
_ASKS_THEN_SLEEPS = """
[[turn]]
calls = [{ name = "bash", arguments = { command = "touch ../elsewhere/asked-for" } }]
[[turn]]
calls = [{ name = "bash", arguments = { command = "python3 -c 'import time; time.sleep(60)'" } }]
[[turn]]
text = "I am still here."
"""


def test_a_question_in_between_leaves_ctrl_c_alone(tmp_path: Path) -> None:
    """On a real terminal, as a whole process: line editing has a SIGINT handler of its own and must not put ours away."""
    for name in ("w", "home", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "script.toml").write_text(_ASKS_THEN_SLEEPS)
    environ = {
        "HOME": str(tmp_path / "home"),
        "PATH": os.environ["PATH"],
        "RINGFENCE_STATE_DIR": str(tmp_path / "state"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "NO_COLOR": "1",
    }
    main = "import sys; from runner.cli.main import main; sys.exit(main())"
    words = [
        sys.executable,
        "-c",
        main,
        "--plain",
        "--mode",
        "trust-project",
        "--model",
        f"scripted:{tmp_path / 'script.toml'}",
    ]
    with closing(Terminal(words, tmp_path / "w", environ)) as terminal:
        terminal.then("/quit to leave")
        terminal.then(PROMPT)
        terminal.type("go\r")
        terminal.then("allow once?")
        terminal.then(PROMPT)
        terminal.type("y\r")
        terminal.then("time.sleep(60)")
        terminal.then("allowed")
        os.kill(terminal.pid, signal.SIGINT)
        terminal.then("stopped (")
        terminal.then(PROMPT)
        terminal.type("again\r")
        terminal.then("I am still here.")
        terminal.then(PROMPT)
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    assert (tmp_path / "elsewhere" / "asked-for").exists(), "an approval opens exactly what was asked for"


def test_ctrl_c_twice_at_the_prompt_leaves(tmp_path: Path) -> None:
    events: list[Event] = []
    person = ScriptedUser(KeyboardInterrupt(), "/help", KeyboardInterrupt(), KeyboardInterrupt())
    assert play_conversation(tmp_path, [], person, events.append) == Exit.INTERRUPTED


def test_a_changed_mode_holds_for_what_follows(tmp_path: Path) -> None:
    events: list[Event] = []
    play_conversation(
        tmp_path, [bash("echo x > made"), Turn("done")], ScriptedUser("/mode plan", "write it", "/quit"), events.append
    )
    assert not (tmp_path / "w" / "made").exists()
    assert [event.cell.mode for event in events if isinstance(event, VerdictReached)] == [Mode.PLAN]
