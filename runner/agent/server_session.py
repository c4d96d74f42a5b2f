"""A session without a model, for commands about tool servers: `agent mcp test`, `call` and `pin`."""

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Approver
from runner.config import Settings
from runner.engine.run_context import RunContext
from runner.events import Emit
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import OfferCheck, SessionServers, ToolShelf
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider


@dataclass(frozen=True, slots=True)
class ServerSession:
    """An open session and its tool servers, which have started or failed."""

    ctx: RunContext
    servers: SessionServers


@contextlib.asynccontextmanager
async def open_server_session(
    cwd: Path,
    settings: Settings,
    environ: Mapping[str, str],
    configs: Sequence[ServerConfig],
    *,
    check: OfferCheck,
    shelf: ToolShelf,
    approver: Approver,
    emit: Emit,
    unattended: bool,
    mode: Mode | None = None,
    least: bool = False,
) -> AsyncIterator[ServerSession]:
    """Open a session in `cwd`, start the servers of `configs`, and yield both. No model is asked.

    With `least`, servers on this machine get no right but to their own installation. The other parameters are those of
    `SessionServers` and `open_session`, which name the errors.
    """
    options = SessionOptions(cwd, unattended, mode, argv=("agent", *sys.argv[1:]))
    model = OpenModel(ScriptedProvider(()), "none")
    servers = SessionServers(configs, environ, check, shelf, network=settings.network, least=least)
    async with open_session(options, settings, environ, model=model, approver=approver, emit=emit) as ctx:
        try:
            servers.begin(ctx)
            await servers.ready()
            yield ServerSession(ctx, servers)
        finally:
            await servers.close()
