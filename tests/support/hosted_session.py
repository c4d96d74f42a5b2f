"""A hosted session that plays a scripted model, as a process of its own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.waiting import until


class HostedProcess:
    """`agent serve session` in the workspace of `harness`, or in `folder`. `turns` is a scripted model as TOML."""

    def __init__(
        self,
        harness: CliHarness,
        turns: str,
        *,
        mode: str = "default",
        folder: Path | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.harness = harness
        self.folder = folder or harness.work
        script = harness.base / f"{self.folder.name}.toml"
        script.write_text(turns, "utf-8")
        self.log = harness.base / f"{self.folder.name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    AGENT,
                    "serve",
                    "session",
                    "--model",
                    f"scripted:{script}",
                    "--mode",
                    mode,
                    "--cwd",
                    str(self.folder),
                ],
                env={**harness.environ, **(environ or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.id = until(self._listed, of=self.process, what=lambda: f"the start: {self.log.read_text()}")

    @property
    def sessions(self) -> Path:
        return self.harness.base / "state" / "resident" / "sessions"

    def _listed(self) -> str:
        """Return the ID of the session of this process, or an empty text before it is listed."""
        for path in self.sessions.glob("*.json") if self.sessions.exists() else ():
            if self._facts(path).get("pid") == self.process.pid:
                return path.stem
        return ""

    def facts(self) -> dict[str, Any]:
        return self._facts(self.sessions / f"{self.id}.json")

    def _facts(self, path: Path) -> dict[str, Any]:
        try:
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError):  # it is being replaced or removed
            return {}

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def workspace(base: Path, name: str) -> Path:
    """A folder in the home of a harness at `base`, with a Git repository."""
    folder = base / "home" / name
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True, env={"PATH": os.environ["PATH"], "HOME": str(base)})
    return folder
