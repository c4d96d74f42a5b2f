"""Tests that a session in the home folder, in a folder above it or in `/` is refused before it starts."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from runner.agent.agent import Agent
from runner.problems import Exit, Stopped
from tests.support import forked_agent
from tests.support.forked_agent import AGENT

SCRIPT = '[[turn]]\ntext = "MODEL-WAS-ASKED"\n'
# Command lines of the entry points; {model} is a model that answers by MODEL-WAS-ASKED.
ENTRIES = {
    "run": ("run", "--model", "{model}", "hello"),
    "run, events": ("run", "--json", "--model", "{model}", "hello"),
    "a program": ("--json", "--model", "{model}"),
    "unattended": ("run", "--unattended", "--model", "{model}", "hello"),
    "ci": ("ci", "--model", "{model}", "hello"),
    "ci, review": ("ci", "--review", "--patch=p", "--model", "{model}", "hello"),
    "exec": ("exec", "true"),
    "exec, words": ("exec", "--", "true"),
    "batch": ("batch", "{tasks}", "--model", "{model}"),
    "batch check": ("batch", "check", "{tasks}"),
    "apply": ("apply", "--yes", "{tasks}"),
    "apply, look": ("apply", "--check", "{tasks}"),
}


class World:
    """A home folder with a project, below a folder of its own."""

    def __init__(self, top: Path) -> None:
        self.top, self.home, self.project = top, top / "people" / "ann", top / "people" / "ann" / "project"
        self.project.mkdir(parents=True)
        self.state = top / "state"
        self.model, self.tasks = top / "model.toml", top / "tasks.jsonl"
        self.model.write_text(SCRIPT)

    def agent(
        self, words: tuple[str, ...], cwd: Path | str, home: str | None = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `agent`; `home` is HOME, the usual one when empty, and not set when None."""
        self.tasks.write_text(f'{{"prompt": "hello", "workspace": "{cwd}"}}\n')
        environ = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(self.state), **more}
        environ |= {"HOME": home or str(self.home)} if home is not None else {}
        said = [word.format(model=f"scripted:{self.model}", tasks=self.tasks) for word in words]
        return forked_agent.run(
            [AGENT, *said],
            cwd=cwd,
            env=environ,
            input='{"type": "prompt", "text": "hello"}\n' if words[0] == "--json" else "",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def refused(done: subprocess.CompletedProcess[str]) -> None:
    said = done.stdout + done.stderr
    assert done.returncode == Exit.USAGE, said
    assert "cannot be the working folder" in said, said
    assert "--cwd FOLDER" in said, said
    assert "MODEL-WAS-ASKED" not in said, said


@pytest.mark.threat("T03")
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_refuses_the_home_folder(entry: str, world: World) -> None:
    refused(world.agent(ENTRIES[entry], world.home))


@pytest.mark.parametrize("entry", ["run", "ci", "exec", "batch"])
def test_every_entry_point_refuses_the_root_folder(entry: str, world: World) -> None:
    refused(world.agent(ENTRIES[entry], "/"))


@pytest.mark.parametrize("entry", ["run", "exec", "a program", "batch"])
def test_a_project_in_the_home_folder_is_taken(entry: str, world: World) -> None:
    assert "cannot be the working folder" not in world.agent(ENTRIES[entry], world.project).stderr


def test_other_spellings_of_the_home_folder_are_refused_too(world: World) -> None:
    (world.top / "link").symlink_to(world.home)
    (world.top / "above").symlink_to(world.home.parent)
    (world.home / "empty").mkdir()
    (world.home / ".ssh").mkdir()
    run, home = ENTRIES["exec"], str(world.home)
    for cwd, given in (
        (world.home.parent, home),  # a folder above it
        (world.top, home),
        (world.home, f"{home}/"),
        (world.home, f"{home}//."),
        (world.home, f"{home}/project/.."),
        (world.top / "link", home),
        (world.home, str(world.top / "link")),  # HOME itself is a link
        (world.top / "above", home),
        (world.home / ".ssh", home),  # every action would be denied there, too
    ):
        refused(world.agent(run, cwd, given))
    for cwd in (home, f"{home}/", f"{home}/project/..", f"//{home}", f"{home}/empty/../."):
        refused(world.agent(("exec", "--cwd", cwd, "true"), world.project))


def test_a_repository_in_the_home_folder_does_not_make_it_a_project(world: World) -> None:
    (world.home / ".git").mkdir()
    refused(world.agent(ENTRIES["exec"], world.home))


def test_without_home_the_system_says_which_folder_it_is(world: World) -> None:
    import pwd

    real = pwd.getpwuid(os.geteuid()).pw_dir
    if not os.path.isdir(real) or not os.access(real, os.R_OK | os.X_OK):
        pytest.skip("this user has no home folder")
    more = {"XDG_CONFIG_HOME": str(world.top / "config"), "XDG_CACHE_HOME": str(world.top / "cache")}
    for home in (None, "relative"):
        refused(world.agent(ENTRIES["exec"], real, home, **more))


def test_a_program_is_refused_when_it_opens_a_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("XDG_STATE_HOME", str(world.state))

    async def opened(cwd: Path) -> None:
        async with Agent(cwd=cwd, model=f"scripted:{world.model}"):
            pass

    for cwd in (world.home, world.home.parent, Path("/")):
        with pytest.raises(Stopped) as error:
            asyncio.run(opened(cwd))
        assert error.value.code is Exit.USAGE
        assert "`cwd=FOLDER`" in error.value.problem.fix
