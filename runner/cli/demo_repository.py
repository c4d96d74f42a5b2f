"""The repository of the demo: a small real project with decoys around it."""

import os
import subprocess
import tempfile
import tomllib
from importlib.resources import files
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.problems import Exit, Stopped
from sandbox.linux.helper_process import starting_process

KEY = "decoy-key-that-nobody-must-read"
TOKEN = "decoy-token-that-nobody-must-read"  # noqa: S105  # a decoy: the demo proves that it stays unread


@dataclass(frozen=True, slots=True)
class Stage:
    """The folders of one demo, below the fresh folder `base`."""

    base: Path

    @property
    def workspace(self) -> Path:
        return self.base / "tidytext"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def elsewhere(self) -> Path:
        """Return a folder beside the project in which nothing may appear."""
        return self.base / "elsewhere"

    @property
    def state(self) -> Path:
        return self.base / "state"

    def environment(self, path: str) -> dict[str, str]:
        """Return the whole environment of the demo: the decoy home, and no variable of the user except `path`."""
        return {
            "HOME": str(self.home),
            "PATH": path,
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(self.base / "config"),
            "XDG_CACHE_HOME": str(self.base / "cache"),
            "RINGFENCE_STATE_DIR": str(self.state),
        }


def fresh_folder() -> Path:
    """Create a private folder and return its path, outside of /tmp if possible, since a command has its own /tmp."""
    usual = "/var/tmp"  # noqa: S108  # mkdtemp below makes a private folder with a random name
    where = usual if os.access(usual, os.W_OK) else None
    return Path(os.path.realpath(tempfile.mkdtemp(prefix="ringfence-demo-", dir=where)))


def lay_out(base: Path, path: str) -> Stage:
    """Write the project and the decoys below `base`, an empty private folder, and make the project a Git repository."""
    stage = Stage(base)
    stage.elsewhere.mkdir(mode=0o700)
    content = tomllib.loads(files(__package__).joinpath("demo_data/repo.toml").read_text("utf-8"))
    for root, texts in ((stage.workspace, content["workspace"]), (stage.home, content["home"])):
        for name, text in texts.items():
            file = root / name
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_text(text.lstrip("\n"), "utf-8")
    for words in (
        ("init", "--quiet", "--initial-branch=main"),
        ("config", "user.name", "Demo"),
        ("config", "user.email", "demo@example.test"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=Make names for titles"),
    ):
        git(stage, path, *words)
    return stage


def git(stage: Stage, path: str, *words: str) -> str:
    """Run Git on the project, not in the sandbox, with the demo's environment. Return its output, or raise Stopped."""
    environment = {**stage.environment(path), "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        with starting_process():
            done = subprocess.run(
                ("git", *words),
                cwd=stage.workspace,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
    except FileNotFoundError:
        problem = Problem("the demo needs git", "it is not on the PATH", "install it: apt install git")
        raise Stopped(problem, Exit.FAILED) from None
    except subprocess.CalledProcessError as error:
        problem = Problem(f"`git {words[0]}` failed in the demo's project", str(error.stderr).strip(), "check git")
        raise Stopped(problem, Exit.FAILED) from None
    return done.stdout
