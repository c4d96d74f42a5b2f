"""`agent sessions`: list, show, export and remove stored conversations."""

import os
import re
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.agent.options import not_known
from runner.cli.gate import JSON, argument, completing, option_before, switch, valued
from runner.cli.reading import list_sessions, sessions_here
from runner.problems import Exit, usage
from runner.state.paths import state_dir
from runner.stderr import print_problem

if TYPE_CHECKING:
    pass

sessions_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")

_AGES = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class ExportFormat(StrEnum):
    MARKDOWN = "md"
    HTML = "html"
    LINES = "jsonl"


def _ids(incomplete: str) -> list[str]:
    """Return the ids of the sessions of this workspace for completion."""
    return [each.id[:8] for each in sessions_here(None).list() if each.id.startswith(incomplete)]


ID = Annotated[str, argument("ID", "The ID of the session, or the beginning of the ID.", complete=_ids)]
ALL = Annotated[bool, switch("--all", help="All workspaces, not only this one.")]
EVERY = Annotated[bool, switch("--all", help="All workspaces, and sessions without an answer.")]
CWD = Annotated[str | None, valued("--cwd", "FOLDER", "The workspace of FOLDER (default: of the current folder).")]


@sessions_app.callback()
def sessions(context: typer.Context, json: JSON = False) -> int:
    """List, show, export and remove stored conversations.

    `agent` and `agent run` store each session in a file that only you can read, below
    `~/.local/state/ringfence/sessions`. `agent -c` continues the latest session of the workspace, `agent --resume`
    lets you choose one, `agent --fork ID` continues a copy, and `--no-session` stores no file.

    **Examples**

        agent sessions list
        agent sessions show 3f2a
        agent sessions export 3f2a -o session.html
        agent sessions rm --older-than 30d
    """
    if context.invoked_subcommand is None:
        return listing(json=json)
    if json:
        raise option_before(f"sessions {context.invoked_subcommand}")
    return Exit.DONE


@sessions_app.command("list")
def listing(all: EVERY = False, json: JSON = False, cwd: CWD = None) -> int:
    """List the sessions of this workspace, the last one used first. Times are UTC, of the last activity.

    Sessions in which the model never answered are left out, unless `--all` is given.

    **Examples**

        agent sessions list
        agent sessions list --all --json | jq -r 'select(.turns > 20) | .id'
    """
    return list_sessions(all=all, json=json, cwd=cwd)


@sessions_app.command("show")
def show(id: ID, json: JSON = False) -> int:
    """Print the messages of a session, with the verdict on each call.

    With `--json`, each line is one entry: `session`, `run`, `message`, `typed`, `call` (a verdict), `grant`, `usage`,
    `mode`, `model`, `compaction`, `snapshot`, `notice` or `end`. Each entry names its parent.

    **Examples**

        agent sessions show 3f2a
        agent sessions show 3f2a --json | jq 'select(.verdict == "deny")'
    """
    from runner.sessions.export import as_lines, as_text, reading

    with reading(state_dir(os.environ), id) as session:
        for line in as_lines(session) if json else as_text(session):
            print(line)
    return Exit.DONE


@sessions_app.command("export")
def export(
    id: ID,
    format: Annotated[
        str | None,
        valued(
            "--format",
            "FORMAT",
            "The format: md, html or jsonl (default: by the name of --out, else md).",
            complete=completing(lambda: ExportFormat),
        ),
    ] = None,
    out: Annotated[Path | None, valued("--out", "FILE", "A new file to write (default: stdout).", short="-o")] = None,
) -> int:
    """Export a session to share it. The HTML file contains everything that it needs, and no scripts.

    Secrets that were known during the session are masked. Check the file for other secrets before you publish it.

    **Examples**

        agent sessions export 3f2a -o session.html
        agent sessions export 3f2a > session.md
    """
    from runner.sessions.export import FORMATS, reading, write_new

    writer = FORMATS[_export_format(format, out).value]
    with reading(state_dir(os.environ), id) as session:
        if out is not None:
            write_new(out, writer(session))
            return Exit.DONE
        for line in writer(session):
            print(line)
    return Exit.DONE


_SUFFIXES = {
    ".html": ExportFormat.HTML,
    ".htm": ExportFormat.HTML,
    ".jsonl": ExportFormat.LINES,
    ".json": ExportFormat.LINES,
}


def _export_format(named: str | None, out: Path | None) -> ExportFormat:
    """Return the format of an export: the named one, else the one of the file name. Raise a usage error."""
    formats = f"the formats are {', '.join(ExportFormat)}"
    if named is not None:
        if named not in list(ExportFormat):
            raise not_known(f"there is no format `{named}`", formats, named, ExportFormat, "write `--format md`")
        return ExportFormat(named)
    return _SUFFIXES.get(out.suffix.lower(), ExportFormat.MARKDOWN) if out is not None else ExportFormat.MARKDOWN


@sessions_app.command("rm")
def remove(
    ids: Annotated[list[str] | None, argument("ID", "IDs, or beginnings of IDs.", complete=_ids)] = None,
    older_than: Annotated[str | None, valued("--older-than", "AGE", "Not used for this time: 12h, 30d, 8w.")] = None,
    all: ALL = False,
    cwd: CWD = None,
) -> int:
    """Remove sessions and their stored outputs. A session that is in use is not removed.

    The audit log is not changed: it still contains the decisions.

    **Examples**

        agent sessions rm 3f2a 77b0
        agent sessions rm --older-than 30d --all
    """
    from runner.sessions.store import SessionError, SessionStore, choose, remove_session

    state = state_dir(os.environ)
    if bool(ids) == (older_than is not None):
        why = "IDs and `--older-than` exclude each other" if ids else "neither an ID nor `--older-than` was given"
        raise usage("no session is selected", why, "see `agent sessions list`")
    if ids:
        chosen = list(dict.fromkeys(choose(SessionStore.all(state), words) for words in ids))
    else:
        before = time.time() - _age(older_than or "")
        stores = SessionStore.all(state) if all else [sessions_here(cwd)]
        chosen = [(store, found.id) for store in stores for found in store.list() if found.written < before]
    code = Exit.DONE
    for store, id in chosen:
        try:
            remove_session(state, store, id)
            print(f"removed {id[:8]}")
        except SessionError as error:
            print_problem(error.problem)
            code = Exit.FAILED
    if not chosen:
        print("there was no session to remove")
    return code


def _age(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text.strip())
    if found is None:
        raise usage(f"`{text}` is not an age", "an age is a number with m, h, d or w", "write an age such as 30d")
    return int(found[1]) * _AGES[found[2]]
