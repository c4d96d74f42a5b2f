"""A user with a workspace in front of the full-screen interface."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_program import AGENT
from tests.support.terminal_screen import Screen, ScreenTerminal
from tests.support.tmux import Tmux


class ScreenHarness:
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
        self.windows: list[Screen] = []

    def start(
        self, turns: list[dict[str, object]], *words: str, size: tuple[int, int] = (110, 50), execve: bool = False
    ) -> ScreenTerminal:
        """Start the interface at a new terminal; `execve` as in `PseudoTerminal`."""
        window = ScreenTerminal(self.work, self.environ, *self._command(turns, *words), size=size, execve=execve)
        self.windows.append(window)
        return window

    def start_in_tmux(self, turns: list[dict[str, object]], *words: str, size: tuple[int, int] = (110, 50)) -> Tmux:
        window = Tmux(self.base, self.work, self.environ, *self._command(turns, *words), size=size)
        self.windows.append(window)
        return window

    def _command(self, turns: list[dict[str, object]], *words: str) -> tuple[str, ...]:
        script = self.base / "script.json"
        script.write_text(json.dumps({"turn": turns}))
        return (AGENT, "--model", f"scripted:{script}", *words)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ScreenHarness]:
    harness = ScreenHarness(tmp_path)
    yield harness
    for window in harness.windows:
        window.close()


def bash(command: str, text: str = "") -> dict[str, object]:
    return {"text": text, "calls": [{"name": "bash", "arguments": {"command": command}}]}


def leave(window: Screen) -> str:
    window.type("C-u")
    window.type("C-d")
    return window.until("LEFT 0")
