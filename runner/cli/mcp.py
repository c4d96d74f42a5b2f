"""`agent mcp`: the tool servers of the configuration. The files `runner/cli/mcp_*.py` contain further commands."""

from collections.abc import Iterable
from typing import Annotated

import typer

from runner.cli.command_table import CODES
from runner.cli.gate import CONFIG, CWD, JSON, argument, completing, state_alone, switch, valued
from runner.cli.mcp_pin import SERVER, mcp_pin
from runner.cli.mcp_serve import serve
from runner.cli.mcp_sign_in import login, logout
from runner.cli.mcp_try import mcp_call, mcp_test, mcp_why

HELP = """Configure and try tool servers, which offer tools to the model by the Model Context Protocol (MCP).

A server on this machine runs in a sandbox of its own, without a network and without the workspace until you grant
them. A server that a repository configures runs only if you trust exactly the content of its file. Without a command,
the servers are listed.

**Examples**

    agent mcp
    agent mcp add files --read . -- mcp-server-filesystem '${workspaceFolder}'
    agent mcp import --dry-run
"""

mcp_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode="markdown")


@completing
def _scopes() -> Iterable[str]:
    return ("user", "project")


@completing
def _transports() -> Iterable[str]:
    return ("http", "sse")


@completing
def _clients() -> Iterable[str]:
    from runner.mcp.importers.sources import CLIENTS

    return CLIENTS


@mcp_app.command("list")
def listing(json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """List the tool servers of this folder: the name, the state, the file, and the command or address.

    The state is `on`, `off` (`enabled = false`), `fault`, or that you do not trust the repository's file. Values of
    variables and headers are not shown.

    **Examples**

        agent mcp list
        agent mcp list --json | jq -r 'select(.state == "on") | .name'
    """
    from runner.cli.mcp_settings import run_list

    return run_list(as_json=json, config=config, cwd=cwd)


@mcp_app.command("show")
def show(name: SERVER, json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """Print the settings of one server in words.

    Paths are absolute. Values of variables and headers are not shown.

    **Examples**

        agent mcp show notes
        agent mcp show notes --json | jq .hosts
    """
    from runner.cli.mcp_settings import run_server_show

    return run_server_show(name, as_json=json, config=config, cwd=cwd)


@mcp_app.command("add")
def add(
    name: Annotated[str, argument("NAME", "The name of the server; its tools are called mcp__NAME__TOOL.")],
    command: Annotated[
        list[str] | None, argument("-- COMMAND", "The program and its arguments, or the address of a remote server.")
    ] = None,
    url: Annotated[str | None, valued("--url", "URL", "The address of a remote server.")] = None,
    transport: Annotated[
        str | None, valued("--transport", "KIND", "`http`, or `sse` for an old remote server.", complete=_transports)
    ] = None,
    env: Annotated[list[str] | None, valued("--env", "NAME=VALUE", "A variable of the program; repeatable.")] = None,
    header: Annotated[
        list[str] | None, valued("--header", "NAME:VALUE", "A header of each request to a remote server.")
    ] = None,
    host: Annotated[list[str] | None, valued("--host", "HOST", "A host that the program may connect to.")] = None,
    read: Annotated[
        list[str] | None, valued("--read", "PATH", "A path that the program may read; `.` is the workspace.")
    ] = None,
    write: Annotated[list[str] | None, valued("--write", "PATH", "A path that the program may change.")] = None,
    scope: Annotated[
        str,
        valued("--scope", "SCOPE", "`user`: your own configuration; `project`: that of the project.", complete=_scopes),
    ] = "user",
    no_probe: Annotated[bool, switch("--no-probe", help="Do not start the server to find out what it needs.")] = False,
    cwd: CWD = None,
) -> int:
    """Write the table [mcp.NAME] of a server into your configuration, and print it.

    A server gets no network and no folder but those that you name. Without a command and an address, a server that is
    there gets more: `agent mcp add notes --host api.example.com`. A value such as '$TOKEN', in single quotes, inserts
    a variable of yours when the server starts; a key in plain text is refused. Comments in the file are kept.

    At a terminal, a new server of yours is then started once without rights, and you are asked about the rights that
    it seems to need.

    **Examples**

        agent mcp add files --read . -- mcp-server-filesystem '${workspaceFolder}'
        agent mcp add notes --env 'TOKEN=$NOTES_TOKEN' --host api.example.com -- notes-server --stdio
        agent mcp add tickets --url https://mcp.example.com/mcp --header 'Authorization: Bearer $TICKETS_TOKEN'
        agent mcp add docs https://docs.example.com/mcp
    """
    from runner.cli.mcp_settings import AddArgs, run_add
    from runner.gate.gate import is_unattended

    args = AddArgs(
        name,
        tuple(command or ()),
        tuple(env or ()),
        tuple(header or ()),
        tuple(host or ()),
        tuple(read or ()),
        tuple(write or ()),
        url,
        transport,
    )
    code = run_add(args, scope=scope, cwd=cwd)
    if args.command and args.url is None and scope == "user" and not no_probe and not is_unattended(False):
        from runner.frontends.servers.probe import probe

        found = probe(name, cwd)
        if found.read or found.write or found.hosts:
            more = AddArgs(name, (), (), (), found.hosts, found.read, found.write, None, None)
            return run_add(more, scope=scope, cwd=cwd)
    return code


@mcp_app.command("remove")
def remove(
    name: SERVER,
    scope: Annotated[str, valued("--scope", "SCOPE", "The file: `user` or `project`.", complete=_scopes)] = "user",
    cwd: CWD = None,
) -> int:
    """Remove the table [mcp.NAME] of a server from your configuration.

    To keep the table and start no server: agent config set mcp.NAME.enabled false

    **Examples**

        agent mcp remove notes
        agent mcp remove notes --scope project
    """
    from runner.cli.mcp_settings import run_remove

    return run_remove(name, scope=scope, cwd=cwd)


@mcp_app.command("import")
def import_(
    source: Annotated[
        str | None,
        argument(
            "CLIENT | FILE", "claude, codex, gemini, cursor, vscode, or a file (default: all).", complete=_clients
        ),
    ] = None,
    dry_run: Annotated[bool, switch("--dry-run", help="Print the tables, and write nothing.")] = False,
    json: JSON = False,
    cwd: CWD = None,
) -> int:
    """Copy the tool servers of another client into your configuration.

    The tables are printed first. On a terminal you are asked before they are written. No approval of the other client
    is taken over, and no key in plain text is copied: its place gets a variable. What cannot be taken over is printed
    for each server.

    **Examples**

        agent mcp import --dry-run
        agent mcp import claude
        agent mcp import .mcp.json
    """
    from runner.cli.mcp_settings import run_import

    return run_import(source, dry_run=dry_run, as_json=json, cwd=cwd)


mcp_app.command("login")(login)
mcp_app.command("logout")(logout)
mcp_app.command("serve")(serve)
state_alone(mcp_app, "mcp", lambda json: listing(json=json))
mcp_app.command("call", epilog=CODES)(mcp_call)
mcp_app.command("pin")(mcp_pin)
mcp_app.command("test")(mcp_test)
mcp_app.command("why")(mcp_why)
