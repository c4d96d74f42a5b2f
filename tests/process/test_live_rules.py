"""Tests of running sessions whose rules change: the next action, also of a process that stays, obeys the new rules."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from policy.model.tier import Mode
from runner.agent.agent import Agent
from runner.approval.approver import Question
from runner.events import Denied, Event, MalformedCall, Notice, QuestionAsked
from runner.messages import ToolCall
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider, Turn
from tests.support.marked_processes import new_nap, processes
from tests.support.session_harness import AGENT, SessionHarness
from tests.support.waiting import until

_DENY = '[[rule]]\nverdict = "deny"\nrun = ["touch"]\nwhy = "nothing new"\n'
_ALLOW = '[[rule]]\nverdict = "allow"\nrun = ["make", "**"]\n'
_NAP = new_nap()
_WAITS = f"sleep {_NAP}"
_SCRIPT = f"""
[[turn]]
calls = [{{ name = "bash", arguments = {{ command = "{_WAITS}" }} }}]
[[turn]]
calls = [{{ name = "bash", arguments = {{ command = "touch late" }} }}]
[[turn]]
text = "Done."
"""


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    harness = SessionHarness(tmp_path)
    (tmp_path / "script.toml").write_text(_SCRIPT)
    return harness


def configuration(harness: SessionHarness) -> Path:
    path = Path(harness.environ["HOME"]) / ".config" / "ringfence" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.threat("T164")
@pytest.mark.parametrize("words", [("run", "--mode", "trust-project"), ("ci",)], ids=["run", "ci"])
def test_a_rule_written_while_a_command_runs_decides_about_the_next(
    words: tuple[str, ...], harness: SessionHarness
) -> None:
    mode = () if words[0] == "run" else ("--mode", "trust-project")
    command = [AGENT, *words, *mode, "--model", harness.model, "go on"]
    with subprocess.Popen(
        command, cwd=harness.work, env=harness.environ, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, text=True
    ) as job:
        waiting = until(lambda: processes(_NAP), of=job)
        configuration(harness).write_text(_DENY)
        for each in waiting:
            os.kill(each, signal.SIGTERM)
        _, told = job.communicate()
    assert not (harness.work / "late").exists(), told
    assert job.returncode == 3, told
    records = [json.loads(line) for line in harness.agent("audit", "--json").stdout.splitlines()]
    assert [each["verdict"] for each in records] == ["deny", "allow"]
    shown = json.loads(harness.agent("audit", "show", "--json", str(records[0]["id"])).stdout.splitlines()[0])
    assert "config.toml:1" in json.dumps(shown)


def bash(command: str) -> Turn:
    return Turn(calls=(ToolCall("", "bash", {"command": command}),))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("RINGFENCE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "home" / ".config" / "ringfence").mkdir(parents=True)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "Makefile").write_text("all:\n\t@echo made\n")
    return tmp_path


def test_an_attended_session_obeys_every_state_of_the_file(home: Path) -> None:
    """The file allows, is broken, and denies, in one session: the action is allowed, asked about, and denied."""
    path = home / "home" / ".config" / "ringfence" / "config.toml"
    events: list[Event] = []
    states = iter((_ALLOW, "[[rule", '[[rule]]\nverdict = "deny"\nrun = ["make"]\nwhy = "no"\n'))
    turns = [turn for _ in range(3) for turn in (bash("make all"), Turn("done"))]

    def no(question: Question) -> bool:
        return False

    async def work() -> list[str]:
        found = []
        model = OpenModel(ScriptedProvider(turns), "m")
        async with Agent(home / "w", model=model, mode=Mode.DEFAULT, approver=no, emit=events.append) as agent:
            for state in states:
                path.write_text(state)
                events.clear()
                async for _ in agent.prompt("go"):
                    pass
                asked = any(isinstance(event, QuestionAsked) for event in events)
                denied = any(isinstance(event, Denied) for event in events)
                found.append("asked" if asked else "denied" if denied else "allowed")
                if state == "[[rule":
                    assert any(isinstance(event, Notice) and "no rule allows" in event.text for event in events)
        return found

    assert asyncio.run(work()) == ["allowed", "asked", "denied"]


def test_later_actions_of_a_process_that_stays_obey_the_new_rules(home: Path) -> None:
    path = home / "home" / ".config" / "ringfence" / "config.toml"
    begin = Turn(calls=(ToolCall("", "bash", {"command": "cat", "background": True}),))
    write = Turn(calls=(ToolCall("", "bash_input", {"id": "p1", "text": "hello\n"}),))
    events: list[Event] = []

    async def work() -> list[bool]:
        found = []
        model = OpenModel(ScriptedProvider([begin, Turn("done"), write, Turn("done"), write, Turn("done")]), "m")
        async with Agent(home / "w", model=model, mode=Mode.TRUST_PROJECT, emit=events.append) as agent:
            for text in ("", "", '[[rule]]\nverdict = "deny"\ntool = ["bash_input"]\nwhy = "no"\n'):
                path.write_text(text)
                events.clear()
                async for _ in agent.prompt("go"):
                    pass
                assert not any(isinstance(event, MalformedCall) for event in events)
                found.append(any(isinstance(event, Denied) for event in events))
        return found

    assert asyncio.run(work()) == [False, False, True]
