"""A session inside this process with a scripted model and the real sandbox, which reads and edits documents."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policy.model.tier import Mode
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.engine.run_context import RunContext
from runner.events import Event
from runner.loop import Ending, run
from runner.messages import ImageBlock, Message, TextBlock, ToolCall, ToolMessage, ToolResult
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider, Turn
from tests.support.hook_session import folders


@dataclass
class DocumentRun:
    """The result of the prompts of a session."""

    work: Path
    ending: Ending | None = None
    events: list[Event] = field(default_factory=list)
    history: list[Message] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def results(self) -> list[ToolResult]:
        return [each for message in self.history if isinstance(message, ToolMessage) for each in message.results]

    def text(self, number: int = 0) -> str:
        """Return the text of a result."""
        return "\n".join(block.text for block in self.results[number].content if isinstance(block, TextBlock))

    def images(self, number: int = 0) -> list[ImageBlock]:
        """Return the images of a result."""
        return [block for block in self.results[number].content if isinstance(block, ImageBlock)]


def calls(*named: tuple[str, dict[str, object]]) -> list[Turn]:
    """Return turns of a model with one call each, and a last answer."""
    return [*(Turn(calls=(ToolCall("", name, arguments),)) for name, arguments in named), Turn("done")]


def session(
    place: Path,
    *named: tuple[str, dict[str, object]],
    files: dict[str, bytes] | None = None,
    mode: Mode = Mode.TRUST_PROJECT,
    approver: Any = None,
    backend: str | None = None,
    inspect: Callable[[RunContext], None] = lambda ctx: None,
    configuration: str = "",
    least: str | None = None,
    prompt: str = "do it",
) -> DocumentRun:
    """Run a model that makes these calls in a workspace with `files`."""
    work, environ = folders(place, configuration)
    for name, content in (files or {}).items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    got = DocumentRun(work)

    async def once() -> None:
        settings = load(work, environ)
        model = OpenModel(ScriptedProvider(calls(*named)), "none")
        options = SessionOptions(work, approver is None, mode, backend=backend, least=least)
        who = approver if approver is not None else Unattended(got.events.append)
        async with open_session(options, settings, environ, model=model, approver=who, emit=got.events.append) as ctx:
            got.ending = await run(prompt, ctx, got.history)
            inspect(ctx)
            got.records = [dict(record.body) for record in ctx.audit.rows()][::-1]  # oldest first

    asyncio.run(once())
    return got
