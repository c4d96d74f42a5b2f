"""`agent mcp serve`: the tools of this program for other agents."""

from dataclasses import replace
from typing import Annotated

from runner.agent.options import Given, not_known
from runner.agent.startup import run_args
from runner.cli.gate import completing, switch, takes_options, valued
from runner.problems import usage
from runner.sessions.selection import SessionSelection

_WAYS = ("client", "terminal")
ASK = Annotated[
    str | None,
    valued(
        "--ask",
        "client|terminal",
        "Where questions are asked: in the client if it can show them (default), or only by `agent approve` in a "
        "terminal.",
        complete=completing(lambda: _WAYS),
    ),
]
ASK_TIMEOUT = Annotated[
    str | None, valued("--ask-timeout", "TIME", "How long a question waits until it is refused; default 120s.")
]
PORT = Annotated[int | None, valued("--port", "PORT", "With --http: the port; default a free one.")]
TOKEN_FILE = Annotated[
    str | None,
    valued("--token-file", "FILE", "With --http: the file with the token; it is created if it does not exist."),
]


@takes_options("mcp serve")
def serve(
    given: Given,
    ask: ASK = None,
    ask_timeout: ASK_TIMEOUT = None,
    http: Annotated[bool, switch("--http", help="Serve several clients over HTTP at 127.0.0.1.")] = False,
    port: PORT = None,
    token_file: TOKEN_FILE = None,
) -> int:
    """Offer the tools of this program to another agent, by the Model Context Protocol (MCP).

    The tools are bash, read, write, edit, glob, grep, ls, those for background processes, and `why`, which judges a
    command without running it. Every call passes the gate like a call of a model: it is judged, asked about, run in
    the sandbox and recorded. Standard output carries the protocol; start this command from the client's configuration
    (docs/guide/mcp-server.md).

    A question appears in the client if the client can show it; otherwise it waits for `agent approve`. Without an
    answer the call is refused.

    With --http, each request needs the token that is printed at the start: `Authorization: Bearer TOKEN`.

    **Examples**

        agent mcp serve
        agent mcp serve --mode trust-project --cwd ~/project
        agent mcp serve --unattended --max-output 50M
        agent mcp serve --http --port 8931 --token-file ~/.config/ringfence/token
        claude mcp add ringfence -- agent mcp serve --ask terminal
    """
    from runner.config.amounts import parse_seconds
    from runner.frontends.serve.command import ServeArgs, start_server
    from runner.frontends.serve.questions import AskSettings, AskWay

    if ask is not None and ask not in _WAYS:
        why = f"a question is asked at {' or '.join(_WAYS)}"
        raise not_known(f"`--ask {ask}` is not known", why, ask, _WAYS, "write `--ask terminal`")
    if not http and (port is not None or token_file is not None):
        name = "--port" if port is not None else "--token-file"
        raise usage(f"{name} needs --http", "standard input and output have neither port nor token", "add --http")
    if port is not None and not 0 <= port < 65_536:
        raise usage(f"`--port {port}` is not a port", "a port is a number from 1 to 65535", "leave --port out")
    seconds = parse_seconds(ask_timeout, "--ask-timeout") if ask_timeout is not None else AskSettings().seconds
    args = replace(run_args(given), selection=SessionSelection(unkept=True))
    settings = AskSettings(AskWay(ask or "client"), seconds)
    return start_server(ServeArgs(args, settings, (port or 0) if http else None, token_file))
