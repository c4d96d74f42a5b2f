"""`agent undo`: bring back the files as they were before the last actions, also those that a command changed."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.gate import CWD, FLAG, JSON
from runner.problems import Exit, Stopped, usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.changes.undo.revert import RevertRequest, Taken
    from runner.changes.undo.scope import SnapshotScope
    from runner.changes.undo.store import Store

_SWITCH = "--list, --clear, --dry-run and --diff each say what to show instead"


def undo(
    count: Annotated[int | None, typer.Argument(metavar="N", help="How many actions to take back; 1.")] = None,
    show: Annotated[bool, typer.Option("--list", metavar=FLAG, help="List what was kept, newest first.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", metavar=FLAG, help="Only say what would be done.")] = False,
    diff: Annotated[bool, typer.Option("--diff", metavar=FLAG, help="Show it as a diff, and do nothing.")] = False,
    redo: Annotated[bool, typer.Option("--redo", metavar=FLAG, help="Take back the last undo instead.")] = False,
    force: Annotated[
        bool, typer.Option("--force", metavar=FLAG, help="Also overwrite files that changed since.")
    ] = False,
    auto_run: Annotated[
        bool,
        typer.Option("--auto-run", metavar=FLAG, help="Also hooks, editor tasks and the like, which programs run."),
    ] = False,
    clear: Annotated[bool, typer.Option("--clear", metavar=FLAG, help="Forget all that is kept here.")] = False,
    json: JSON = False,
    cwd: CWD = None,
) -> int:
    """Bring files back as they were before the last action of a model, or the last N.

    What its commands changed comes back too: contents, modes and times, folders and links, and Git's refs and index. A
    file that something else changed since is left alone and named, and the exit code is 1. --redo takes back an undo.

    Not kept: secrets, folders that tools make again (node_modules, .venv, target ...), Git's objects, and what is too
    big; `--list` names it.

    **Examples**

        agent undo --list
        agent undo
        agent undo 3 --diff
        agent undo --redo
    """
    if clear and (show or count is not None or redo or diff or dry or force or auto_run):
        raise usage("--clear forgets what was kept, and takes nothing back", _SWITCH, "leave the other words out")
    if show and (count is not None or redo or diff or dry or force or auto_run):
        raise usage("--list shows what was kept, and takes nothing back", _SWITCH, "leave the other words out")
    if count is not None and count < 1:
        raise usage(f"{count} actions cannot be taken back", "it is a number from 1 on", "write agent undo 1")
    if redo and count is not None:
        raise usage("--redo takes back the last undo, which is one", "N counts actions", "leave N out")
    ground, store = _open(cwd)
    if clear:
        return _clear(store, json)
    if store is None:
        return _nothing(json, show)
    from runner.changes.undo.errors import UndoError
    from runner.changes.undo.plan import Allowed
    from runner.changes.undo.revert import RevertRequest, recovered, take_back

    try:
        for notice in store.notices:
            _print_notice(notice)
        if show:
            recovered(store, ground)
            return _list(store, json)
        wish = RevertRequest(count or 1, redo=redo, dry=dry or diff, allowed=Allowed(force, auto_run))
        try:
            taken = take_back(store, ground, wish)
        except UndoError as error:  # nothing is kept, or too little, or an action runs: no mistake in the command
            raise Stopped(error.problem, Exit.FAILED) from None
        from runner.changes.undo.text import taken_json

        if json:
            from json import dumps

            print(dumps(taken_json(taken, dry=wish.dry)))
        else:
            lines = _told(store, taken, ground.workspace, wish, diff)
            for line in lines:
                print(line)
        return Exit.DONE if taken.whole else Exit.FAILED
    finally:
        store.close()


def _told(store: "Store", taken: "Taken", workspace: str, wish: "RevertRequest", diff: bool) -> "Iterator[str]":
    from runner.changes.undo.text import diff_text, taken_text

    if diff:
        return diff_text(store, taken.items, workspace)
    return taken_text(taken, workspace, dry=wish.dry, redo=wish.redo)


def _open(cwd: str | None) -> "tuple[SnapshotScope, Store | None]":
    from runner.changes.undo.settings import choice_of, place, scope_of
    from runner.changes.undo.store import Store
    from runner.config import load
    from runner.facts.gather import gather
    from runner.gate.gate import folder
    from runner.secrets.secret import register_environment
    from runner.state import paths

    register_environment(os.environ)  # taking back keeps what it replaces, and no copy of a secret is made
    here = folder(cwd)
    settings = load(here, os.environ, unattended=True)
    facts = gather(str(here), os.environ, settings.profile)
    state = paths.state_dir(os.environ)
    ground = scope_of(facts, settings.profile, choice_of(settings), paths.cache_dir(os.environ), state)
    kept = place(state, facts.workspace)
    return ground, Store(kept) if (kept / "steps.db").exists() else None


def _list(store: "Store", json: bool) -> int:
    from runner.changes.undo.text import steps_json, steps_text

    if json:
        from json import dumps

        print(dumps(steps_json(store, 1000)))
        return Exit.DONE
    lines = list(steps_text(store, 1000))
    if all(line.startswith("not kept") for line in lines):
        lines.insert(0, "no action of a model changed a file here")
    for line in lines or ["nothing was kept yet: no action of a model changed a file here"]:
        print(line)
    if store.steps()[1:]:  # `agent undo 12` is not "take back number 12"
        print("agent undo N goes N actions back, counted from the newest; the number in front is only a name")
    return Exit.DONE


def _clear(store: "Store | None", json: bool) -> int:
    from runner.changes.undo.purge import clear

    size = 0
    if store is not None:
        store.close()
        size = clear(store.folder)
    if json:
        print(f'{{"bytes": {size}}}')
    else:
        print(f"forgot {size:,} bytes: what was done here before cannot be taken back" if size else "nothing was kept")
    return Exit.DONE


def _nothing(json: bool, show: bool) -> int:
    if not show:
        from policy.model.verdict import Problem

        why = "no action of a model changed a file here"
        raise Stopped(Problem("there is nothing to take back", why, "see `agent undo --help`"), Exit.FAILED)
    print("[]" if json else "nothing was kept yet: no action of a model changed a file here")
    return Exit.DONE


def _print_notice(text: str) -> None:
    from runner.stderr import say

    say(f"notice: {text}")
