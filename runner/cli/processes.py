"""`agent processes` and `agent ports`: the background processes of open sessions, from another terminal."""

import os
from typing import Annotated

import typer

from policy.model.verdict import Problem
from runner.cli.gate import JSON, argument, option_before, valued
from runner.engine.control_server import ask_session, is_host_port, is_port, sessions_with_processes
from runner.engine.port_forwards import LOOPBACK
from runner.engine.process_view import PortRow, ProcessRow, port_words, process_words
from runner.problems import Exit, Stopped, usage
from runner.state.paths import state_dir
from runner.text.json_line import json_line
from runner.text.sanitize import visible

processes_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")
ports_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")


def _ids(incomplete: str) -> list[str]:
    """Return the names of the processes for completion."""
    return [row.id for _, row in _rows() if row.id.startswith(incomplete)]


ID = Annotated[str, argument("ID", "The name of the process, such as p1.", complete=_ids)]
SESSION = Annotated[
    str | None, valued("--session", "SESSION", "The session, or the beginning of its ID, if several have processes.")
]
LINES = Annotated[int, valued("--lines", "N", "The number of lines from the end.", short="-n", least=1)]


@processes_app.callback()
def processes(context: typer.Context, json: JSON = False) -> int:
    """List, read and stop the background processes of your open sessions.

    A model starts such a process with its tool `bash`, and you do with `!COMMAND &` in a conversation, or with
    `agent exec --background`. It keeps the exact rights that were approved, and ends with its session.

    **Examples**

        agent processes
        agent processes output p1 -n 20
        agent processes stop p1
    """
    if context.invoked_subcommand is None:
        return listing(json=json)
    if json:
        raise option_before(f"processes {context.invoked_subcommand}")
    return Exit.DONE


@processes_app.command("list")
def listing(session: SESSION = None, json: JSON = False) -> int:
    """List the background processes of your open sessions.

    The list has the processes that have ended, too, as long as their session is open.

    **Examples**

        agent processes list
        agent processes list --json | jq -r 'select(.running) | .command'
    """
    rows = _rows(session)
    for name, row in rows:
        print(json_line({"session": name, **row.as_json()}) if json else f"{name[:8]}  {_safe(process_words(row))}")
    if not rows and not json:
        print("no open session has a background process")
    return Exit.DONE


@processes_app.command("output")
def output(id: ID, lines: LINES = 1000, session: SESSION = None) -> int:
    """Print the last lines that a process wrote; of a process in a terminal, its screen.

    Secrets that the session knows are masked, and control characters are spelled out.

    **Examples**

        agent processes output p1
        agent processes output p1 -n 20
    """
    where = _session_of(id, session)
    answer = ask_session(state_dir(os.environ), where, {"op": "output", "process": id, "lines": lines})
    found = answer.get("lines")
    for line in found if isinstance(found, list) else ():
        print(_safe(str(line)))
    return Exit.DONE


@processes_app.command("stop")
def stop(id: ID, session: SESSION = None) -> int:
    """Stop a process and everything that it started.

    `all` stops all processes of the session.

    **Examples**

        agent processes stop p1
        agent processes stop all --session 3f2a
    """
    every = id == "all"
    where = _session_of(None if every else id, session)
    answer = ask_session(state_dir(os.environ), where, {"op": "stop", "process": None if every else id})
    found = answer.get("processes")
    for row in found if isinstance(found, list) else ():
        print(_safe(process_words(ProcessRow.of(row))))
    return Exit.DONE


@ports_app.callback()
def ports(context: typer.Context, json: JSON = False) -> int:
    """List the ports on which background processes listen, and open one on this machine.

    The network of a process is its own: no browser reaches its ports. A forward opens one of them at 127.0.0.1 of this
    machine. Only you can open it; it is recorded, and it ends with the process.

    **Examples**

        agent ports
        agent ports forward 3000
        agent ports forward 3000 8080
        agent ports close 8080
    """
    if context.invoked_subcommand is None:
        return port_listing(json=json)
    if json:
        raise option_before(f"ports {context.invoked_subcommand}")
    return Exit.DONE


@ports_app.command("list")
def port_listing(session: SESSION = None, json: JSON = False) -> int:
    """List the ports on which background processes of your open sessions listen, and their forwards.

    Processes with the same rights share a network, and therefore their ports.

    **Examples**

        agent ports list
        agent ports list --json | jq .port
    """
    empty = True
    for name in _sessions(session):
        found = ask_session(state_dir(os.environ), name, {"op": "ports"}).get("ports")
        for each in found if isinstance(found, list) else ():
            empty = False
            row = PortRow(each["port"], tuple(each["processes"]), tuple(each["forwarded"]))
            print(json_line({"session": name, **row.as_json()}) if json else f"{name[:8]}  {port_words(row)}")
    if empty and not json:
        print("no background process listens on a port")
    return Exit.DONE


@ports_app.command("forward")
def forward(
    port: Annotated[int, argument("PORT", "The port on which a process listens.")],
    host_port: Annotated[
        int | None, argument("HOSTPORT", "The port of 127.0.0.1 (default: the same; 0: a free one).")
    ] = None,
    session: SESSION = None,
) -> int:
    """Open a port of a background process at 127.0.0.1 of this machine, until the process or its session ends.

    Every program of this machine can then connect to the process. The forward is recorded in the audit log.

    **Examples**

        agent ports forward 3000
        agent ports forward 3000 8080
        agent ports forward 3000 0
    """
    wanted = port if host_port is None else host_port
    if not (is_port(port) and is_host_port(wanted)):
        raise usage("the port was not forwarded", "a port is a number from 1 to 65535", "see `agent ports list`")
    state = state_dir(os.environ)
    listens = [name for name in _sessions(session) if port in _ports_of(name)]
    where = _only(listens, f"no background process listens on port {port}", "see `agent ports list`")
    answer = ask_session(state, where, {"op": "forward", "port": port, "host_port": wanted})
    print(f"http://{LOOPBACK}:{answer['host_port']} leads to port {answer['port']} of {_safe(str(answer['process']))}")
    return Exit.DONE


@ports_app.command("close")
def close(host_port: Annotated[int, argument("HOSTPORT", "The port of 127.0.0.1.")], session: SESSION = None) -> int:
    """Close a forward.

    Its connections end, too. The process keeps listening.

    **Examples**

        agent ports close 8080
    """
    state = state_dir(os.environ)
    has = [name for name in _sessions(session) if host_port in _forwarded(name)]
    where = _only(has, f"port {host_port} of this machine is not forwarded", "see `agent ports list`")
    ask_session(state, where, {"op": "close", "host_port": host_port})
    print(f"{LOOPBACK}:{host_port} is closed")
    return Exit.DONE


def _sessions(session: str | None) -> list[str]:
    """Return the open sessions with processes, of which the name begins with `session`. Raise a usage error if no name
    does.
    """
    found = sessions_with_processes(state_dir(os.environ))
    if session is None:
        return found
    named = [name for name in found if name.startswith(session)]
    if not named:
        what = f"there is no open session `{session}` with a process"
        raise usage(what, "none has that name", "see `agent processes`")
    return named


def _rows(session: str | None = None) -> list[tuple[str, ProcessRow]]:
    rows = []
    for name in _sessions(session):
        found = ask_session(state_dir(os.environ), name, {"op": "processes"}).get("processes")
        rows += [(name, ProcessRow.of(each)) for each in found] if isinstance(found, list) else []
    return rows


def _session_of(id: str | None, session: str | None) -> str:
    """Return the one session that has the process `id`; with None, the one session with processes."""
    has = {name: None for name, row in _rows(session) if id is None or row.id == id}
    what = "no open session has a background process" if id is None else f"there is no process `{id}`"
    return _only(list(has), what, "see `agent processes`")


def _ports_of(name: str) -> list[int]:
    found = ask_session(state_dir(os.environ), name, {"op": "ports"}).get("ports")
    return [each["port"] for each in found] if isinstance(found, list) else []


def _forwarded(name: str) -> list[int]:
    found = ask_session(state_dir(os.environ), name, {"op": "ports"}).get("ports")
    return [port for each in found for port in each["forwarded"]] if isinstance(found, list) else []


def _only(names: list[str], what: str, fix: str) -> str:
    """Return the only name. Raise Stopped if there is none, or more than one."""
    if not names:
        raise Stopped(Problem(what, "no open session of this user has it", fix), Exit.FAILED)
    if len(names) > 1:
        listed = ", ".join(name[:8] for name in names)
        raise usage("several sessions have it", f"they are {listed}", "name one: `--session SESSION`")
    return names[0]


def _safe(text: str) -> str:
    """Return a text of a process without an effect on the terminal."""
    return visible(text, lines=False)
