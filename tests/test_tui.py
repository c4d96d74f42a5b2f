"""A person at the terminal, in tmux: a whole talk with the scripted model, keys in every state, and what is left of it."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tmux import Tmux

AGENT = str(Path(sys.executable).with_name("agent"))


class Desk:
    """A workspace, a home and a state folder, and the model's script."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.work, self.state = base / "w", base / "state"
        for folder in (self.work, base / "home"):
            folder.mkdir()
        self.environ = {
            "HOME": str(base / "home"),
            "PATH": os.environ["PATH"],
            "RINGFENCE_STATE_DIR": str(self.state),
            "LANG": "C.UTF-8",
        }
        self.windows: list[Tmux] = []

    def start(self, turns: list[dict[str, object]], *words: str) -> Tmux:
        script = self.base / "script.json"
        script.write_text(json.dumps({"turn": turns}))
        window = Tmux(self.base, self.work, self.environ, AGENT, "--model", f"scripted:{script}", *words)
        self.windows.append(window)
        return window


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for window in desk.windows:
        window.close()


def bash(command: str, text: str = "") -> dict[str, object]:
    return {"text": text, "calls": [{"name": "bash", "arguments": {"command": command}}]}


def test_a_talk_from_the_first_key_to_the_last(desk: Desk) -> None:
    turns: list[dict[str, object]] = [
        bash("echo one > kept; cat kept", "I write it."),
        {"text": "That is **done**."},
        {"text": "Still here."},
    ]
    window = desk.start(turns, "--mode", "trust-project")
    window.type("write it", "Enter")  # before anything is open
    screen = window.until("done (2 turns)")
    assert "That is done." in screen, "drawn as Markdown, and whole"
    assert screen.count("> write it") == 1
    window.type("and", "M-Enter", "now?", "Enter")
    screen = window.until("Still here.")
    assert "> and\n  now?" in screen
    window.type("C-d")
    screen = window.until("LEFT 0")
    assert re.search(r"to go on: agent --resume [0-9a-f]{8}", screen)
    assert "sandbox FULL" not in screen.partition("to go on")[2], "the line of status is gone"
    assert (desk.work / "kept").read_text() == "one\n"


def leave(window: Tmux) -> str:
    window.type("C-u")
    window.type("C-d")
    return window.until("LEFT 0")


def test_a_question_takes_no_key_that_was_typed_before_it(desk: Desk) -> None:
    window = desk.start([bash("curl -s http://example.test/"), {"text": "So be it."}])
    window.type("go", "Enter", "y", "y", "Enter")  # into the input, or too early
    window.until("f no, and say why")
    window.press("n", "So be it.")
    assert "you said no" in leave(window)
