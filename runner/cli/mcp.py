"""`agent mcp`: the tool servers of the configuration. The files `runner/cli/mcp_*.py` contain further commands."""

from collections.abc import Iterable
from typing import Annotated

import typer

from runner.cli.gate import CONFIG, CWD, JSON, argument, completing, state_alone
from runner.cli.mcp_serve import serve
from runner.cli.mcp_sign_in import login, logout

HELP = """Configure and try tool servers, which offer tools to the model by the Model Context Protocol (MCP).

A server on this machine runs in a sandbox of its own, without a network and without the workspace until you grant
them. A server that a repository configures runs only if you trust exactly the content of its file. Without a command,
the servers are listed.

**Examples**

    agent mcp
    agent mcp list --json
"""

mcp_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode="markdown")


@completing
def server_names() -> Iterable[str]:
    """Return the names of the configured servers for completion. Never raises."""
    from runner.cli.mcp_settings import known_names

    return known_names()


SERVER = Annotated[str, argument("NAME", "The name of a server.", complete=server_names)]


@mcp_app.command("list")
def listing(json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """List the tool servers of this folder: the name, the state, the file, and the command or address.

    The state is `on`, `off` (`enabled = false`) or `fault`. Values of variables and headers are not shown.

    **Examples**

        agent mcp list
        agent mcp list --json | jq -r 'select(.state == "on") | .name'
    """
    from runner.cli.mcp_settings import run_list

    return run_list(as_json=json, config=config, cwd=cwd)


mcp_app.command("login")(login)
mcp_app.command("logout")(logout)
mcp_app.command("serve")(serve)
state_alone(mcp_app, "mcp", lambda json: listing(json=json))
