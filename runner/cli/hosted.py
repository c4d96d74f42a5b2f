"""`agent attach`, `ps`, `logs`, `stop` and `detach`: sessions that outlive their terminal."""

import os
import time
from typing import Annotated

from runner.agent.options import Given
from runner.cli.gate import JSON, argument, switch, takes_options
from runner.problems import Exit, usage
from runner.text.json_line import json_line


def _ids(incomplete: str) -> list[str]:
    """Return the IDs of the running sessions for completion."""
    from runner.frontends.hosted.address import hosted_sessions

    return [each.id[:8] for each in hosted_sessions(os.environ) if each.id.startswith(incomplete)]


ID = Annotated[str, argument("ID", "The ID of the session, or the beginning of the ID.", complete=_ids)]
OPTIONAL_ID = Annotated[str | None, argument("ID", "The ID of the session, or the beginning of the ID.", complete=_ids)]


@takes_options("attach")
def attach(given: Given, id: OPTIONAL_ID = None) -> int:
    """Open a session that goes on when this terminal is closed, or attach to one.

    Without ID, attach to the only running session of this workspace; if there is none, or with options of a
    conversation, start a new one. With ID, attach to that session; a stored session that does not run is resumed.

    Ctrl-D or `/detach` leaves the session running, Ctrl-C stops the turn, `/quit` ends the session. Several terminals
    can be attached. A question stays open until one of them answers it.

    **Examples**

        agent attach
        agent attach 3f2a
        agent attach --mode trust-project --model openai:qwen3
        agent attach --json 3f2a                     JSON lines both ways, for programs
    """
    from runner.frontends.hosted.commands import attach as attach_to

    return attach_to(id, given, os.environ)


def ps(json: JSON = False) -> int:
    """List the running sessions that outlive their terminal, the last active one first.

    Each line has the ID, the state (working, waiting for an answer, idle), the age, the mode, the model, the number of
    clients, the folder and the first prompt.

    **Examples**

        agent ps
        agent ps --json | jq -r 'select(.state == "question") | .id'
    """
    from runner.frontends.hosted.address import hosted_sessions
    from runner.frontends.hosted.commands import session_row

    found = hosted_sessions(os.environ)
    for each in found:
        print(json_line(each.as_json()) if json else session_row(each, time.time()))
    if not found and not json:
        print("no session runs; start one: agent attach")
    return Exit.DONE


def logs(
    id: ID,
    follow: Annotated[bool, switch("--follow", "-f", help="Go on until the session ends, or Ctrl-C.")] = False,
    json: JSON = False,
) -> int:
    """Print what has happened in a session. A session that does not run is printed from its file.

    With `--json`, each line is one event of a running session (docs/guide/embedding.md). Nothing is answered and no
    prompt is sent from here.

    **Examples**

        agent logs 3f2a
        agent logs 3f2a -f
        agent logs 3f2a --json | jq 'select(.type == "denied")'
    """
    from runner.frontends.hosted.commands import print_log

    return print_log(id, os.environ, follow=follow, json=json)


def stop(
    ids: Annotated[list[str] | None, argument("ID", "IDs, or beginnings of IDs.", complete=_ids)] = None,
    all: Annotated[bool, switch("--all", help="Stop every running session.")] = False,
) -> int:
    """End running sessions with their commands. Each stays stored: `agent attach ID` continues it.

    The session is asked to end; after 20 seconds its process gets SIGTERM, then SIGKILL.

    **Examples**

        agent stop 3f2a
        agent stop --all
    """
    from runner.frontends.hosted.address import find_hosted, hosted_sessions
    from runner.frontends.hosted.commands import stop_session

    if bool(ids) == all:
        why = "IDs and `--all` exclude each other" if ids else "neither an ID nor `--all` was given"
        raise usage("no session is selected", why, "see `agent ps`")
    found = hosted_sessions(os.environ) if all else [find_hosted(os.environ, each) for each in ids or ()]
    for session in dict.fromkeys(found):
        print(f"{session.id[:8]}  {stop_session(session, os.environ)}")
    if not found:
        print("no session runs")
    return Exit.DONE


def detach(id: ID) -> int:
    """Drop every client of a session. The session goes on.

    Its work and its open questions stay as they are, and each client can attach again.

    **Examples**

        agent detach 3f2a
    """
    from runner.frontends.hosted.address import find_hosted
    from runner.frontends.hosted.commands import detach_clients
    from runner.text.phrases import many

    session = find_hosted(os.environ, id)
    print(f"{session.id[:8]}  {many(detach_clients(session, os.environ), 'client')} detached")
    return Exit.DONE
