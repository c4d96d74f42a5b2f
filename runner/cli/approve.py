"""`agent approve`: the answers to questions of sessions that have no terminal of their own."""

import os
import shutil
import sys
from typing import Annotated

from policy.model.verdict import Problem
from runner.cli.gate import JSON, argument, switch
from runner.engine.control_server import ControlRefused, ask_session, sessions_with_processes
from runner.problems import Exit, Stopped, usage
from runner.state.paths import state_dir
from runner.text.json_line import json_line
from runner.text.sanitize import visible


def _ids(incomplete: str) -> list[str]:
    """Return the names of the open questions for completion."""
    return [str(row["id"]) for row in _rows() if str(row["id"]).startswith(incomplete)]


ID = Annotated[str | None, argument("ID", "The name of the question; without it, the only one.", complete=_ids)]


def approve(
    id: ID = None,
    yes: Annotated[bool, switch("--yes", help="Allow the action once. Needs ID.")] = False,
    no: Annotated[bool, switch("--no", help="Refuse the action. Needs ID.")] = False,
    listed: Annotated[bool, switch("--list", help="List the open questions and answer none.")] = False,
    json: JSON = False,
) -> int:
    """Answer a question of `agent mcp serve`, whose client shows no questions.

    The whole question is shown, as in a conversation at a plain terminal, and the answer counts for exactly this action
    and once. Without a terminal, nothing is answered unless --yes or --no names the question. While a question waits,
    its call waits as well; without an answer it is refused after --ask-timeout.

    **Examples**

        agent approve
        agent approve --list
        agent approve 3f2a91c0.q4
        agent approve 3f2a91c0.q4 --no
        agent approve --list --json | jq -r .id
    """
    if yes and no:
        raise usage("--yes and --no exclude each other", "a question has one answer", "leave one of them out")
    if (yes or no) and (id is None or listed):
        raise usage("the answer names no question", "--yes and --no answer exactly one", "write its ID before them")
    if (yes or no) and id is not None:
        return _answer(id, "yes" if yes else "no")
    if listed or json:
        return _list([row for row in _rows() if id in (None, row["id"])], id, json=json)
    if not (os.isatty(0) and os.isatty(1)):
        why = "standard input or output is no terminal"
        raise usage("the question cannot be shown", why, "add --list, or answer with `agent approve ID --yes` or --no")
    return _ask(id or _only())


def _list(rows: list[dict[str, object]], id: str | None, *, json: bool) -> int:
    for row in rows:
        line = f"{row['id']}  {row['tier']}  {row['line']}  ({row['client']}, {row['seconds_left']} s left)"
        print(json_line(row) if json else visible(line, lines=False))
    if not rows and id is not None:
        raise _not_open(id)
    if not rows and not json:
        print("no question is open")
    return Exit.DONE


def _ask(id: str) -> int:
    """Show the question, and answer it with the line that the user types."""
    import termios

    width = shutil.get_terminal_size().columns
    found = _request(id, {"op": "question", "id": id, "width": width})
    print(visible(f"{found.get('client')} asks:", lines=False))
    print(visible(str(found.get("text"))))
    while True:
        termios.tcflush(0, termios.TCIFLUSH)  # nothing that was typed before the question answers it
        try:
            said = input("allow once? [y/N]: ").strip().lower()
        except EOFError:
            said = "n"
        if said in ("y", "yes"):
            return _answer(id, "yes")
        if said in ("", "n", "no"):
            return _answer(id, "no")
        print("answer y or n")


def _answer(id: str, said: str) -> int:
    _request(id, {"op": "answer", "id": id, "answer": said})
    print("allowed once" if said == "yes" else "refused")
    return Exit.DONE


def _only() -> str:
    """Return the name of the only open question. Raise Stopped if there is none, or more than one."""
    rows = _rows()
    if not rows:
        problem = Problem("no question is open", "no session of this user waits for an answer", "")
        raise Stopped(problem, Exit.FAILED)
    if len(rows) > 1:
        _list(rows, None, json=False)
        sys.stdout.flush()
        raise usage(f"{len(rows)} questions are open", "one answer counts for one question", "write its ID")
    return str(rows[0]["id"])


def _rows() -> list[dict[str, object]]:
    """Return the open questions of all sessions. A session that does not answer has none."""
    found: list[dict[str, object]] = []
    state = state_dir(os.environ)
    for session in sessions_with_processes(state):
        try:
            listed = ask_session(state, session, {"op": "questions"}).get("questions")
        except ControlRefused:  # it has just ended, or is of a version without such questions
            continue
        found += [{"session": session, **row} for row in listed] if isinstance(listed, list) else []
    return found


def _request(id: str, request: dict[str, object]) -> dict[str, object]:
    """Send a request about the question `id` to its session, and return the answer. Raise Stopped or ControlRefused."""
    state = state_dir(os.environ)
    for session in sessions_with_processes(state):
        if id.startswith(f"{session[:8]}."):
            return ask_session(state, session, request)
    raise _not_open(id)


def _not_open(id: str) -> Stopped:
    why = "it was answered, its time is over, or its session has ended"
    return Stopped(Problem(f"there is no open question `{id}`", why, "see `agent approve --list`"), Exit.FAILED)
