"""`agent policy matrix` and `judge`, `agent sessions list` and `agent audit list`: short commands that only read.

They need neither typer nor pydantic, which take most of the time of a command that prints a few lines. `read_command`
parses the usual forms of their command lines. For every other form, such as a help page or a mistake, it returns None,
and typer parses the words again (`runner/cli/app.py`). Its options for the same functions are in `policy.py`,
`sessions.py` and `audit.py`.
"""

import os
import sys

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from typing import Any

    from runner.audit.query import Query
    from runner.sessions.store import SessionStore

LISTED = 50  # decisions


def read_command(words: list[str]) -> int | None:
    """Run the command if it is one of this module in a usual form, and return its exit code; otherwise return None."""
    if "_AGENT_COMPLETE" in os.environ:  # the words are to be completed
        return None
    group, named, rest = words[0], words[1:2], words[2:]
    if named and named[0].startswith("-"):
        named, rest = [], words[1:]
    if group == "policy" and named in ([], ["matrix"]):
        if (found := _values(rest, ("json",))) is not None:
            return print_matrix(json="json" in found)
    elif group == "policy" and named == ["judge"]:
        if (found := _values(rest, ("unattended",), ("mode", "cwd", "config"))) is not None:
            return _judge(**found)
    elif group == "sessions" and named in ([], ["list"]):
        switches, once = (("json", "all"), ("cwd",)) if named else (("json",), ())
        if (found := _values(rest, switches, once)) is not None:
            return list_sessions(all="all" in found, json="json" in found, cwd=found.get("cwd"))
    elif group == "audit" and named in ([], ["list"]):
        return _audit(rest)
    return None


def _values(
    words: list[str], switches: tuple[str, ...], once: tuple[str, ...] = (), many: tuple[str, ...] = ()
) -> "dict[str, Any] | None":
    """Return the values of the options by name, or None unless every word is a known option or its value.

    `once` are options of which one value is used, `many` options that may be repeated. A value that begins with a dash
    may be a mistake, so there is no result for it.
    """
    found: dict[str, Any] = {}
    at = 0
    while at < len(words):
        name, sign, value = words[at].partition("=")
        key = name.removeprefix("--")
        at += 1
        if key == name:
            return None
        if key in switches:
            if sign:
                return None
            found[key] = True
            continue
        if key not in once and key not in many:
            return None
        if not sign:
            if at == len(words) or words[at].startswith("-"):
                return None
            value = words[at]
            at += 1
        before = found.get(key)
        found[key] = value if key in once else [*before, value] if isinstance(before, list) else [value]
    return found


def print_matrix(*, json: bool) -> int:
    """Print the permission matrix and return the exit code."""
    from policy.describe.matrix import rows, table

    if json:
        from runner.text.json_line import json_line

        heading, *tiers = rows()
        print(json_line({row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in tiers}))
    else:
        print(table(), end="")
    return 0


def _judge(
    *, mode: str | None = None, unattended: bool = False, cwd: str | None = None, config: str | None = None
) -> int | None:
    """Judge the scripts of standard input and return the exit code; None if there is no such mode."""
    from policy.model.tier import Mode

    if mode is not None and mode not in (each.value for each in Mode):
        return None
    from runner.frontends.exec.judge import judge_lines

    chosen = None if mode is None else Mode(mode)
    return judge_lines(sys.stdin.buffer, sys.stdout, mode=chosen, unattended=unattended, cwd=cwd, config=config)


def list_sessions(*, all: bool, json: bool, cwd: str | None) -> int:
    """Print the sessions of a workspace, or of all workspaces, and return the exit code."""
    from shutil import get_terminal_size

    from runner.sessions.store import SessionStore
    from runner.sessions.summary import row, summarize_sessions
    from runner.state.paths import state_dir
    from runner.text.phrases import many
    from runner.text.sanitize import one_line

    stores = SessionStore.all(state_dir(os.environ)) if all else [sessions_here(cwd)]
    width = get_terminal_size((110, 24)).columns if sys.stdout.isatty() else 400
    empty, hidden = True, 0
    for store in stores:
        where = None
        for seen in summarize_sessions(store, unanswered=True):
            if not (all or seen.answered):
                hidden += 1
                continue
            empty = False
            if json:
                print(seen.as_json())
                continue
            if all and seen.workspace and where is None:
                where = seen.workspace
                print(one_line(where, 200))
            print(("  " if all else "") + row(seen, width=width))
    if empty and not json:
        print("there are no sessions" if all else "there are no sessions of this workspace")
    if hidden and not json:
        print(f"{many(hidden, 'session')} without an answer: agent sessions list --all")
    return 0


def sessions_here(cwd: str | None) -> "SessionStore":
    """Return the sessions of the workspace around `cwd`, or around the current folder for None."""
    from runner.sessions.store import SessionStore
    from runner.state.paths import state_dir
    from runner.state.workspace import folder, workspace_at

    return SessionStore.of(state_dir(os.environ), workspace_at(str(folder(cwd)), os.environ))


def _audit(words: list[str]) -> int | None:
    """Run `agent audit list` with the options `words` and return its exit code; None for an unusual form."""
    from runner.cli.audit_query import MANY, ONCE, SWITCHES, query_of

    found = _values(words, ("json", *SWITCHES), ("limit", "file", *ONCE), MANY)
    if found is None:
        return None
    json, limit, file = found.pop("json", False), str(found.pop("limit", LISTED)), found.pop("file", None)
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and int(limit) > 0):
        return None
    return list_decisions(
        query_of(**found), json=bool(json), limit=int(limit), file=None if file is None else str(file)
    )


def list_decisions(query: "Query", *, json: bool, limit: int, file: str | None) -> int:
    """Print the decisions that match `query`, newest first, and return the exit code. `file` is another log."""
    from runner.audit.list_view import json_lines, lines
    from runner.audit.log import AuditLog, log_exists
    from runner.cli.audit_query import log_path, terminal_width
    from runner.stderr import coloured

    path = log_path(file)
    if not log_exists(path):
        if not json:
            print("nothing was decided yet")
        return 0
    with AuditLog.open_to_read(path) as log:
        if json:
            shown = json_lines(log, query, limit=limit)
        else:
            shown = lines(log, query, limit=limit, colour=coloured(sys.stdout), width=terminal_width())
        for line in shown:
            print(line)
    return 0
