"""A user with a workspace, a state folder and a model server, who starts `agent` and resumes sessions."""

import json
import os
import subprocess
from pathlib import Path

from runner.sessions.store import SessionStore
from tests.support import forked_agent
from tests.support.agent_program import AGENT

SCRIPT = """
[[turn]]
text = "I look."
calls = [{ name = "bash", arguments = { command = "ls" } }]
[[turn]]
text = "There is one file."
"""


class SessionHarness:
    """A workspace, a home and a state folder of their own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.work = base / "work"
        self.state = base / "state"
        (base / "home").mkdir()
        self.work.mkdir()
        (self.work / "one.txt").write_text("1\n")
        (base / "script.toml").write_text(SCRIPT)
        self.model = f"scripted:{base / 'script.toml'}"
        self.environ = {
            "HOME": str(base / "home"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "RINGFENCE_STATE_DIR": str(self.state),
        }

    def agent(self, *words: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return forked_agent.run(
            [AGENT, *words],
            cwd=cwd or self.work,
            env=self.environ | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.agent("run", "--model", self.model, *words)

    def list(self, *words: str) -> list[dict[str, object]]:
        done = self.agent("sessions", "list", "--json", *words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @property
    def store(self) -> SessionStore:
        self.state.mkdir(mode=0o700, exist_ok=True)
        return SessionStore.of(self.state, str(self.work))
