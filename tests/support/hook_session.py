"""A session with hooks inside this process: a scripted model, the real sandbox, real programs as hooks."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policy.model.tier import Mode
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.engine.run_context import RunContext
from runner.events import Denied, Event, Notice
from runner.hooks.configured import find_hooks
from runner.loop import Ending, run
from runner.messages import Message, TextBlock, ToolMessage, UserMessage
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider, Turn
from tests.support.server_session import environ as environment


@dataclass
class HookedRun:
    """The result of one prompt of a session with hooks."""

    ending: Ending | None = None
    events: list[Event] = field(default_factory=list)
    history: list[Message] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """Return the results of the calls, as the model got them."""
        return [
            "".join(block.text for block in result.content if isinstance(block, TextBlock))
            for message in self.history
            if isinstance(message, ToolMessage)
            for result in message.results
        ]

    @property
    def asked(self) -> list[str]:
        """Return the messages of the user and of the program, as the model got them."""
        return [
            "".join(block.text for block in message.content if isinstance(block, TextBlock))
            for message in self.history
            if isinstance(message, UserMessage)
        ]

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def denied(self) -> list[Denied]:
        return [event for event in self.events if isinstance(event, Denied)]

    def records_of_hooks(self) -> list[dict[str, Any]]:
        """Return the answers of hooks in the decisions about calls."""
        return [each for record in self.records for each in record.get("hooks", ())]

    def answers(self, event: str = "") -> list[tuple[str, str]]:
        """Return the decision and the reason of each hook that ran, from the audit log."""
        found = (record["hook"] for record in self.records if record.get("hook"))
        return [(each["answer"], each["reason"]) for each in found if not event or each["event"] == event]


def folders(place: Path, configuration: str = "") -> tuple[Path, dict[str, str]]:
    """Create the folders of a user, with a configuration, and return the workspace and the variables."""
    environ = environment(place)
    work = place / "work"
    for folder in (work, Path(environ["HOME"]), Path(environ["RINGFENCE_CONFIG_DIR"])):
        folder.mkdir(parents=True, exist_ok=True)
    (Path(environ["RINGFENCE_CONFIG_DIR"]) / "config.toml").write_text(configuration)
    return work, environ


def play(
    place: Path,
    configuration: str,
    *turns: Turn,
    mode: Mode = Mode.TRUST_PROJECT,
    approver: Any = None,
    trusted: Any = None,
    prompts: tuple[str, ...] = ("do it",),
    inspect: Callable[[RunContext], None] = lambda ctx: None,
    files: dict[str, str] | None = None,
    agents: Any = (),
) -> HookedRun:
    """Run the prompts in a session whose user has this configuration, and return what came out of it."""
    work, environ = folders(place, configuration)
    for name, text in (files or {}).items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    settings = load(work, environ)
    hooks = find_hooks(settings, str(work), environ["HOME"], trusted)
    got = HookedRun()

    async def session() -> None:
        model = OpenModel(ScriptedProvider(turns), "none")
        options = SessionOptions(work, approver is None, mode, hooks=hooks, agents=agents)
        who = approver if approver is not None else Unattended(got.events.append)
        async with open_session(options, settings, environ, model=model, approver=who, emit=got.events.append) as ctx:
            for prompt in prompts:
                got.ending = await run(prompt, ctx, got.history)
            inspect(ctx)
            await ctx.hooks.settle()  # type: ignore[union-attr]  # a test without hooks has no use for this function
            got.records = [dict(record.body) for record in ctx.audit.rows()][::-1]  # oldest first

    asyncio.run(session())
    return got


def hook(event: str, command: str, **values: object) -> str:
    """Return a `[[hook]]` entry as TOML."""
    lines = {"event": event, "command": command, **values}
    return "[[hook]]\n" + "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in lines.items()) + "\n"


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
