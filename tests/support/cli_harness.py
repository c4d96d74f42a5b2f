"""A user with a home and a workspace who starts `agent`."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import forked_agent
from tests.support.forked_agent import AGENT
from tests.support.places import ROOT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class CliHarness:
    """A workspace with a Git repository, a home with a key, a state folder: nothing of the user's.

    Attributes:
        base: the folder of all of them.
        execve: True if each command is started as a user's shell does it: for tests of the start-up, signals, terminals
            and /proc. By default it is forked from a process that has imported the product, see `forked_agent`.
    """

    base: Path
    execve: bool = False

    @property
    def work(self) -> Path:
        return self.base / "work"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.base / "home"),
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "RINGFENCE_STATE_DIR": str(self.base / "state"),
            "XDG_CONFIG_HOME": str(self.base / "config"),
            "XDG_CACHE_HOME": str(self.base / "cache"),
        }

    def agent(
        self,
        *words: str,
        stdin: bytes | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        execve: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command; without `stdin` its input is /dev/null. `execve` is about this command only."""
        run = subprocess.run if execve or self.execve else forked_agent.run
        done = run(
            [AGENT, *words],
            cwd=cwd or self.work,
            env={**self.environ, **(env or {})},
            stdin=subprocess.DEVNULL if stdin is None else None,
            input=stdin,
            capture_output=True,
        )
        said = done.stderr.decode("utf-8", "replace")
        assert f'File "{ROOT}' not in said, said  # no traceback of ours; a command may print its own
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode("utf-8", "replace"), said)

    def audit(self, *words: str) -> list[dict[str, object]]:
        shown = self.agent("audit", "--json", *words)
        assert shown.returncode == 0, shown.stderr
        return [json.loads(line) for line in shown.stdout.splitlines()]
