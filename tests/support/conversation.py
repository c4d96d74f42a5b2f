"""A conversation at its own terminal, with a scripted model and a typing user."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from policy.model.tier import Mode
from runner.agent.agent import Agent
from runner.agent.open_session import SessionOptions
from runner.agent.startup import SessionStart
from runner.approval.approver import Unattended
from runner.config import load
from runner.engine.context.context import Context
from runner.events import Changed, Display, Event, Notice
from runner.frontends.plain.repl import converse
from runner.messages import ToolCall
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider, Turn
from runner.sessions.open import SessionTarget
from runner.sessions.store import SessionStore


class ScriptedUser:
    """Types the given lines; an exception in their place is raised, a callable is done before the next line."""

    def __init__(self, *lines: str | BaseException | Callable[[], None]) -> None:
        self._lines = list(lines)

    async def __call__(self, prompt: str) -> str:
        line = self._lines.pop(0)
        while callable(line):
            line()
            line = self._lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line


def bash(script: str) -> Turn:
    return Turn(calls=(ToolCall("", "bash", {"command": script}),))


def play_conversation(
    base: Path, turns: list[Turn], person: ScriptedUser, emit: Callable[[Event], None], context: Context | None = None
) -> int:
    workspace, home = base / "w", base / "home"
    workspace.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "RINGFENCE_STATE_DIR": str(base / "state")}
    state = base / "state"
    model = OpenModel(ScriptedProvider(turns), "m")

    def start() -> SessionStart:
        options = SessionOptions(workspace, unattended=False, mode=Mode.TRUST_PROJECT)
        options = replace(
            options, context=context or Context(), beginning=SessionTarget(SessionStore.of(state, str(workspace)))
        )
        return SessionStart(
            options, load(workspace, environ), environ, model, lambda spec: OpenModel(ScriptedProvider([]), spec)
        )

    async def work() -> int:
        async with Agent(approver=Unattended(emit), emit=emit, start=start) as agent:
            return await converse(agent, person)

    return asyncio.run(work())


def shown_text(events: list[Event]) -> str:
    """Return the text that the user sees beside the model's text and calls."""
    seen = []
    for event in events:
        match event:
            case Notice(text) | Display(text):
                seen.append(text)
            case Changed(what, _, now):
                seen.append(f"{what} is now {now}")
            case _:
                pass
    return "\n".join(seen)
