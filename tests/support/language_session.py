"""A session with language servers inside this process: real sandbox, real servers, no model."""

import contextlib
import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from policy.model.tier import Mode
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, ModelCall
from runner.events import Event, Notice
from runner.loop import handle_call
from runner.messages import ToolCall, joined_text
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from tests.support.server_session import environ as plain_environ

HOSTILE = Path(__file__).with_name("hostile_language_server.py")
TOOLS = str(Path(sys.executable).parent)  # the folder of the real servers


def environ(place: Path) -> dict[str, str]:
    """Return the variables of a user whose PATH has the real servers."""
    found = plain_environ(place)
    return found | {"PATH": f"{TOOLS}:{found['PATH']}"}


class CodeSession:
    """One open session, its events, and calls of its tools as a model makes them."""

    def __init__(self, ctx: RunContext, events: list[Event]) -> None:
        self.ctx, self.events = ctx, events
        self._count = itertools.count(1)

    @property
    def code(self) -> Any:
        return self.ctx.code

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    async def call(self, tool: str, **arguments: object) -> CallResult:
        """Make one call through the whole gate."""
        number = next(self._count)
        return await handle_call(ModelCall(f"k{number}", ToolCall(f"c{number}", tool, arguments)), self.ctx)

    async def text(self, tool: str, **arguments: object) -> str:
        """Make one call, and return its text for the model."""
        return joined_text((await self.call(tool, **arguments)).result.content)

    async def lsp(self, operation: str, **arguments: object) -> str:
        return await self.text("lsp", operation=operation, **arguments)

    def row(self, name: str) -> Any:
        return next(row for row in self.code.rows() if row.name == name)


@contextlib.asynccontextmanager
async def code_session(
    place: Path, config: str, *, mode: Mode = Mode.TRUST_PROJECT, approver: Any = None
) -> AsyncIterator[CodeSession]:
    """Open a session in `place/home/work` with `config` as the user's configuration file."""
    variables = environ(place)
    folder = Path(variables["RINGFENCE_CONFIG_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(config)
    work = place / "home/work"
    events: list[Event] = []
    options = SessionOptions(work, approver is None, mode)
    model = OpenModel(ScriptedProvider(()), "none")
    by: Any = approver or Unattended(events.append)
    async with open_session(
        options, load(work, variables), variables, model=model, approver=by, emit=events.append
    ) as ctx:
        yield CodeSession(ctx, events)


def only(*names: str) -> str:
    """Return a configuration in which only these presets for Python are used."""
    python = ("basedpyright", "pyright", "ty", "pylsp", "ruff")
    return "".join(f"[language.{name}]\nenabled = false\n" for name in python if name not in names)
