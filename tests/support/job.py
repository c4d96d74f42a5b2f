"""A job of a pipeline: a workspace, a machine's folders and variables as GitHub's runner makes them, and the command."""

import atexit
import base64
import functools
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.git_template import ENVIRON, Template

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Each is looked for in everything that a run leaves.
CANARIES = {
    "GITHUB_TOKEN": "ghs_CanaryGithub0000000000000000000001",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "eyCanaryOidc00000000000000000000000002",
    "ACTIONS_RUNTIME_TOKEN": "eyCanaryRuntime000000000000000000003",
    "CI_JOB_TOKEN": "glcbt-CanaryJob00000000000000004",
    "NPM_TOKEN": "npm_CanaryRegistry000000000000000005",
    "AWS_SECRET_ACCESS_KEY": "CanaryCloudSecret/0000000000000000000006",
    "DEPLOY_PASSPHRASE": "canary-correct-horse-battery-07",
}
HEADER = base64.b64encode(b"x-access-token:ghs_CanaryCheckout00000000000000008").decode()
FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")


def _one_commit(folder: Path) -> None:
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    (folder / ".gitignore").write_text("build/\n")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=folder, check=True, env=ENVIRON)


@functools.cache
def _repository() -> Template:
    """The repository of all jobs of this process, which is made once."""
    folder = Path(tempfile.mkdtemp(prefix="ringfence-job-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Template(folder / "work", _one_commit)


@dataclass
class Job:
    """One job below `base`. `out`: where the files that are asked for go."""

    base: Path
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.work, self.out, self.temp / "_runner_file_commands", self.base / "home"):
            folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            self.file(name).write_text("")
        _repository().copy(self.work)

    @property
    def work(self) -> Path:
        return self.base / "repo"

    @property
    def out(self) -> Path:
        return self.base / "out"

    @property
    def temp(self) -> Path:
        return self.base / "_temp"

    @property
    def state(self) -> Path:
        return self.base / "state"

    def file(self, name: str) -> Path:
        return self.temp / "_runner_file_commands" / name.lower()

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.base / "home"),
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "RUNNER_TEMP": str(self.temp),
            "RINGFENCE_STATE_DIR": str(self.state),
            **{name: str(self.file(name)) for name in FILES},
            **CANARIES,
            **self.more,
        }

    def script(self, *turns: dict[str, object]) -> str:
        path = self.base / "script.json"
        path.write_text(json.dumps({"turn": list(turns)}))
        return f"scripted:{path}"

    def ci(self, *words: str, stdin: bytes | None = None, cwd: Path | None = None, execve: bool = False) -> "Done":
        """Run `agent ci`, which is forked unless `execve` is asked for, see `forked_agent`."""
        run = subprocess.run if execve else forked_agent.run
        done = run(
            [AGENT, "ci", *words],
            cwd=cwd or self.work,
            env=self.environ,
            stdin=subprocess.DEVNULL if stdin is None else None,
            input=stdin,
            capture_output=True,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode("utf-8", "replace"))

    def left(self) -> dict[Path, bytes]:
        """Everything that a run leaves, but for the workspace."""
        return {
            path: path.read_bytes()
            for top in (self.out, self.state, self.temp)
            for path in top.rglob("*")
            if path.is_file()
        }


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, object]:
        found = json.loads(self.out.splitlines()[-1])
        assert isinstance(found, dict)
        return found


def bash(*commands: str, text: str = "", used: tuple[int, int] = (0, 0)) -> dict[str, object]:
    return {
        "text": text,
        "calls": [{"name": "bash", "arguments": {"command": command}} for command in commands],
        "usage": {"input": used[0], "output": used[1]},
    }


def say(text: str, used: tuple[int, int] = (0, 0)) -> dict[str, object]:
    return {"text": text, "usage": {"input": used[0], "output": used[1]}}


def commands(log: str) -> list[str]:
    """The workflow commands that GitHub's runner finds in a log, in its own order of looking: `::` at the beginning of
    a line whatever blanks stand before it, else `##[` anywhere; none while they are stopped.

    SOURCE: github.com/actions/runner, ActionCommand.cs and ActionCommandManager.cs.
    """
    found: list[str] = []
    stopped = ""
    for line in log.splitlines():
        text = line.lstrip()
        name = ""
        if text.startswith("::") and "::" in text[2:]:
            name = text[2:].partition("::")[0].partition(" ")[0]
        elif "##[" in line:
            name = line.partition("##[")[2].partition("]")[0].partition(" ")[0]
        if not name:
            continue
        if stopped:
            stopped = "" if name == stopped else stopped
        elif name == "stop-commands":
            stopped = text.rpartition("::")[2]
        else:
            found.append(line)
    assert not stopped or os.environ.get("ABORTED"), "commands that follow in the step work again"
    return found
