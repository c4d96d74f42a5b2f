"""`agent undo`: restore files as they were before the last actions, including files that a command changed."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from policy.model.verdict import Problem
from runner.cli.gate import CWD, JSON, argument, print_notices, switch
from runner.config import Settings, load
from runner.problems import Exit, Stopped, usage
from runner.secrets.secret import register_environment
from runner.state import paths
from runner.state.paths import state_dir
from runner.stderr import say
from runner.text.json_line import json_line

if TYPE_CHECKING:
    from runner.changes.undo.scope import SnapshotScope
    from runner.changes.undo.store import Store

_SWITCH = "--list, --clear, --dry-run and --diff exclude each other"


def undo(
    count: Annotated[int | None, argument("N", "The number of actions to undo (default: 1).")] = None,
    show: Annotated[bool, switch("--list", help="List the actions that can be undone, newest first.")] = False,
    dry: Annotated[bool, switch("--dry-run", help="Only list what would be changed.")] = False,
    diff: Annotated[bool, switch("--diff", help="Only show the changes as a diff.")] = False,
    redo: Annotated[bool, switch("--redo", help="Reverse the last undo.")] = False,
    force: Annotated[bool, switch("--force", help="Overwrite files even if they changed later.")] = False,
    auto_run: Annotated[
        bool, switch("--auto-run", help="Restore auto-run files too: hooks, editor tasks and so on.")
    ] = False,
    clear: Annotated[bool, switch("--clear", help="Delete all data for undo of this workspace.")] = False,
    json: JSON = False,
    cwd: CWD = None,
) -> int:
    """Restore files to their state before the last action of a model, or the last N actions.

    Changes by commands of the model are undone too: contents, modes and times, folders and links, and Git's refs and
    index. A file that another program changed later is not restored but listed, and the exit code is 1. --redo reverses
    an undo.

    Not restored: secrets, folders that tools make again (node_modules, .venv, target ...), Git's objects, and files
    that are too large. `--list` names them.

    **Examples**

        agent undo --list
        agent undo
        agent undo 3 --diff
        agent undo --redo
    """
    others = count is not None or redo or diff or dry or force or auto_run
    if clear and (show or others):
        raise usage("--clear deletes the stored data, and undoes nothing", _SWITCH, "omit the other options")
    if show and others:
        raise usage("--list shows the stored actions, and undoes nothing", _SWITCH, "omit the other options")
    if count is not None and count < 1:
        raise usage(f"{count} actions cannot be undone", "N must be 1 or more", "write agent undo 1")
    if redo and count is not None:
        raise usage("--redo reverses only the last undo", "N is a number of actions", "omit N")
    from runner.changes.undo.scope import place
    from runner.changes.undo.store import Store, convert_failures

    ground, settings = snapshot_scope(cwd)
    kept = place(state_dir(os.environ), ground.workspace)
    exists = (kept / "steps.db").exists()
    if clear:
        return _clear(kept if exists else None, json)
    if not exists:
        return _nothing(json, show)
    from runner.audit.log import open_log
    from runner.audit.records import SessionInfo
    from runner.audit.undo_record import UndoRecord
    from runner.changes.undo.lock import UndoError
    from runner.changes.undo.plan import Allowed
    from runner.changes.undo.revert import RevertRequest, recovered, revert
    from runner.changes.undo.text import diff_text, revert_json, revert_text

    store = Store(kept)
    try:
        if show:
            recovered(store, ground)
            print_notices(store.notices)
            return _list(store, json)
        wish = RevertRequest(
            count or 1,
            redo=redo,
            dry=dry or diff,
            allowed=Allowed(force, auto_run),
            record=UndoRecord(
                lambda: open_log(settings, os.environ),
                SessionInfo("person", ground.workspace, not os.isatty(0), None, ("agent", *sys.argv[1:])),
                ground.workspace,
                "terminal" if os.isatty(0) else "command line",
                say,
                redo=redo,
            ),
        )
        try:
            with convert_failures(kept):
                result = revert(store, ground, wish)
        except UndoError as error:  # not a usage error: too little is stored, or an action is running
            raise Stopped(error.problem, Exit.FAILED) from None
        finally:
            print_notices(store.notices)
        if json:
            print(json_line(revert_json(result, dry=wish.dry)))
        else:
            told = revert_text(result, ground.workspace, dry=wish.dry, redo=redo)
            for line in diff_text(store, result.items, ground.workspace) if diff else told:
                print(line)
        return Exit.DONE if result.whole else Exit.FAILED
    finally:
        store.close()


def snapshot_scope(cwd: str | None, *, refuses: bool = False) -> "tuple[SnapshotScope, Settings]":
    """Return the scope of undo for the workspace of `cwd`, and the settings there.

    With `refuses`, raise Stopped for a folder in which every action would be denied. Raise ConfigError or PlaceError.
    """
    from runner.changes.undo.scope import choice_of, scope_of
    from runner.facts.gather import gather
    from runner.gate.gate import folder, refuse_folder

    register_environment(os.environ)  # undo stores the files that it replaces, but never a secret
    here = folder(cwd)
    settings = load(here, os.environ, unattended=True)
    if refuses:
        refuse_folder(str(here), os.environ, settings.profile)
    facts = gather(str(here), os.environ, settings.profile)
    state = paths.state_dir(os.environ)
    return scope_of(facts, settings.profile, choice_of(settings), paths.cache_dir(os.environ), state), settings


def _list(store: "Store", json: bool) -> int:
    from runner.changes.undo.text import steps_json, steps_text

    if json:
        for row in steps_json(store, 1000):
            print(json_line(row))
        return Exit.DONE
    steps = store.steps()
    if not steps:
        print("nothing to undo: no action of a model changed a file here")
    for line in steps_text(store, 1000):
        print(line)
    if steps[1:]:  # `agent undo 12` does not mean "undo number 12"
        print("`agent undo N` undoes the N newest actions; the number at the start of a line is only a name")
    return Exit.DONE


def _clear(kept: Path | None, json: bool) -> int:
    from runner.changes.undo.store import clear

    size = clear(kept) if kept is not None else 0
    if json:
        print(json_line({"bytes": size}))
    else:
        print(f"deleted {size:,} bytes: earlier actions cannot be undone now" if size else "nothing was stored")
    return Exit.DONE


def _nothing(json: bool, show: bool) -> int:
    if not show:
        why = "no action of a model changed a file here"
        raise Stopped(Problem("there is nothing to undo", why, "see `agent undo --help`"), Exit.FAILED)
    if not json:
        print("nothing to undo: no action of a model changed a file here")
    return Exit.DONE
