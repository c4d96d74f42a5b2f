"""A session with tool servers inside this process: real sandbox, real processes, no model."""

import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from policy.model.action import CallServerTool, ReadServerResource
from policy.model.profile import Layer
from policy.model.tier import Mode
from policy.model.tool_arguments import canonical
from policy.model.verdict import Allow
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.engine.judge import evaluate_action
from runner.engine.run_context import RunContext
from runner.events import Notice
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import ApprovedOffer, SessionServers
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from sandbox.backend import Outcome

HOSTILE = Path(__file__).with_name("hostile_server.py")


def environ(place: Path) -> dict[str, str]:
    """Return the variables of a user with a secret, whose home and folders lie in `place`."""
    return {
        "HOME": str(place / "home"),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "RINGFENCE_STATE_DIR": str(place / "state"),
        "RINGFENCE_CONFIG_DIR": str(place / "config"),
        "RINGFENCE_CACHE_DIR": str(place / "cache"),
        "TOKEN_OF_THE_USER": "walnut",
    }


class Shelf:
    """A shelf that remembers the names of the tools of each server."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}

    def put(self, server: ServerConfig, offer: object, tools: Any) -> None:
        self.names[server.name] = [each.name for each in tools]


def all_approved(config: ServerConfig, offer: Any) -> ApprovedOffer:
    return ApprovedOffer(offer.tools)


def hostile(name: str, *words: str, **values: Any) -> ServerConfig:
    """Return the settings of the hostile server with this behaviour."""
    values.setdefault("read", (str(HOSTILE.parent),))
    return ServerConfig(name, Layer.USER, "config.toml:1", sys.executable, ("-u", str(HOSTILE), *words), **values)


class ServerSession:
    """One open session and its notices."""

    def __init__(self, ctx: RunContext, servers: SessionServers, shelf: Shelf, notices: list[str]) -> None:
        self.ctx, self.servers, self.shelf, self.notices = ctx, servers, shelf, notices

    async def call(self, server: str, tool: str, /, **arguments: object) -> Outcome:
        """Call a tool through the gate, and return the outcome."""
        return await self.perform(CallServerTool(server, tool, canonical(arguments)))

    async def perform(self, action: CallServerTool | ReadServerResource, listen: Any = lambda n, b: None) -> Outcome:
        verdict = evaluate_action(action, self.ctx).verdict
        assert isinstance(verdict, Allow), verdict
        return await self.servers.perform(verdict.permit, listen)

    def row(self, name: str) -> Any:
        return next(row for row in self.servers.rows() if row.name == name)


@contextlib.asynccontextmanager
async def server_session(
    work: Path,
    environ: dict[str, str],
    *configs: ServerConfig,
    mode: Mode = Mode.DANGEROUSLY,
    check: Callable[..., ApprovedOffer] = all_approved,
    elicit: Any = None,
    wait: bool = True,
) -> AsyncIterator[ServerSession]:
    """Open a session in the folder `work`, in which the mode allows calls of servers."""
    notices: list[str] = []
    shelf = Shelf()

    def emit(event: object) -> None:
        if isinstance(event, Notice):
            notices.append(event.text)

    approver: Any = Unattended(emit)
    if elicit is not None:
        approver.ask_text = elicit
    servers = SessionServers(configs, environ, check, shelf)
    options = SessionOptions(work, elicit is None, mode)
    model = OpenModel(ScriptedProvider(()), "none")
    async with open_session(options, load(work, environ), environ, model=model, approver=approver, emit=emit) as ctx:
        try:
            servers.begin(ctx)
            if wait:
                await servers.ready()
            yield ServerSession(ctx, servers, shelf, notices)
        finally:
            await servers.close()
