"""`agent apply`: look at a patch and put it into the workspace, whole or not at all."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.gate import CWD, FLAG, JSON
from runner.problems import Exit, Stopped, usage
from runner.stderr import coloured, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.changes.review.apply import Applied
    from runner.changes.review.apply_plan import Plan
    from runner.changes.review.risk_flags import Danger
    from runner.changes.undo.scope import SnapshotScope
    from runner.config import Settings

_LONGEST = 1 << 30  # bytes of a patch


def apply(
    patch: Annotated[str, typer.Argument(metavar="PATCH", help="The file; `-` is standard input.")],
    check: Annotated[
        bool, typer.Option("--check", metavar=FLAG, help="Only say whether it fits, and what it would do.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar=FLAG, help="Do not ask.")] = False,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", metavar=FLAG, help="With --yes: also what comes with a warning."),
    ] = False,
    reverse: Annotated[bool, typer.Option("--reverse", "-R", metavar=FLAG, help="Take the patch back.")] = False,
    json: JSON = False,
    cwd: CWD = None,
) -> int:
    """Show what a patch would change here, ask, and do it: all of it or nothing.

    It takes what `agent ci --patch` and `git diff --binary` write. Nothing outside the workspace is written, nothing in
    Git's own folder, and nothing through a link; no secret is copied or moved to another name. Files that other
    programs run by themselves, names of secrets and links that lead out come with a warning, and --yes alone does not
    apply them. `agent undo` takes it back.

    **Examples**

        agent apply result.patch
        agent apply --check result.patch
        agent apply --yes --json result.patch
        agent apply --reverse result.patch
    """
    from runner.changes.review.apply_plan import plan
    from runner.changes.review.patch_parser import PatchError, read
    from runner.changes.undo.scope import secret_of

    if anyway and not yes:
        raise usage("--anyway goes with --yes", "without it you are asked about all of it", "leave it out")
    if check and yes:
        raise usage("--check applies nothing, so there is nothing to say yes to", "they exclude each other", "give one")
    asked = not (check or yes or json)
    if asked and (patch == "-" or not (os.isatty(0) and os.isatty(2))):
        raise usage("nobody can be asked", "there is no terminal to ask at", "add --yes, or --check to only look")
    if json and not (check or yes):
        raise usage("--json asks nobody", "its output is for a program", "add --yes, or --check to only look")
    data = _read(patch)
    ground, settings = _ground(cwd)
    secret = secret_of(ground)
    try:
        sections = read(data)
        if reverse:
            sections = tuple(section.reversed() for section in reversed(sections))
        planned = plan(ground.workspace, sections, secret)
    except PatchError as error:
        raise Stopped(error.problem, Exit.FAILED) from None
    found = _dangers(ground, planned, secret)
    if not json:
        _show(planned, found, whole=asked or check)
    if planned.problems:
        return _unfit(planned, found, json)
    severe = [danger for danger in found if danger.severe]
    if check:
        return _checked(planned, found, json)
    if yes and severe and not anyway:
        return _held_back(planned, found, severe, json)
    if not planned.items:
        return _nothing(planned, found, json)
    if asked and not _said_yes(ground.workspace):
        say("nothing was applied")
        return Exit.FAILED
    return _apply(ground, settings, planned, found, _Told(patch, data, asked, reverse, json))


class _Told:
    """Arguments of the command, for the record and for the answer."""

    def __init__(self, name: str, data: bytes, asked: bool, reverse: bool, json: bool) -> None:
        self.name, self.data, self.asked, self.reverse, self.json = name, data, asked, reverse, json


def _read(name: str) -> bytes:
    try:
        with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise usage(f"`{name}` cannot be read", (error.strerror or "").lower(), "check the path") from None
    if len(data) > _LONGEST:
        raise usage(f"`{name}` is longer than 1 GB", "that is no patch that somebody looks at", "apply it with git")
    return data


def _ground(cwd: str | None) -> "tuple[SnapshotScope, Settings]":
    from runner.changes.undo.settings import choice_of, scope_of
    from runner.config import load
    from runner.facts.gather import gather
    from runner.gate.gate import folder, refuse_folder
    from runner.secrets.secret import register_environment
    from runner.state import paths

    register_environment(os.environ)
    here = folder(cwd)
    settings = load(here, os.environ, unattended=True)
    refuse_folder(str(here), os.environ, settings.profile)
    facts = gather(str(here), os.environ, settings.profile)
    state = paths.state_dir(os.environ)
    ground = scope_of(facts, settings.profile, choice_of(settings), paths.cache_dir(os.environ), state)
    return ground, settings


def _dangers(ground: "SnapshotScope", planned: "Plan", secret: "Callable[[str], bool]") -> "tuple[Danger, ...]":
    from runner.changes.review.risk_flags import dangers
    from runner.changes.undo.scope import inventory_of

    inventory = inventory_of(ground, ground.terms(()), ground.workspace)
    return dangers(planned.items, secret, inventory.findings)


def _show(planned: "Plan", found: "tuple[Danger, ...]", *, whole: bool) -> None:
    from runner.changes.review.patch_view import danger_lines, diff_lines, stat_lines

    if whole and not planned.problems:
        for line in diff_lines(planned, colour=coloured(sys.stdout)):
            print(line)
        print()
    for line in stat_lines(planned):
        print(line)
    for line in danger_lines(found):
        print(line)
    sys.stdout.flush()


def _unfit(planned: "Plan", found: "tuple[Danger, ...]", json: bool) -> int:
    from policy.model.verdict import Problem

    _print_json(planned, found, json, applied=False, step=None)
    path, why = planned.problems[0]
    more = f"; and {len(planned.problems) - 1} more" if planned.problems[1:] else ""
    problem = Problem(f"the patch does not fit: `{path}`", f"{why}{more}", "nothing was changed; make the patch anew")
    if not json:
        from runner.text.sanitize import visible

        for path, why in planned.problems[1:]:
            say(f"  {visible(path, lines=False)}: {visible(why, lines=False)}")
        raise Stopped(problem, Exit.FAILED)
    return Exit.FAILED


def _checked(planned: "Plan", found: "tuple[Danger, ...]", json: bool) -> int:
    if not json:
        print("it fits; nothing was changed")
    _print_json(planned, found, json, applied=False, step=None)
    return Exit.DONE


def _held_back(planned: "Plan", found: "tuple[Danger, ...]", severe: "list[Danger]", json: bool) -> int:
    from policy.model.verdict import Problem

    _print_json(planned, found, json, applied=False, step=None)
    if json:
        return Exit.FAILED
    first, more = severe[0], f"; and {len(severe) - 1} more" if severe[1:] else ""
    fix = "look at it, then apply it at a terminal, or add --anyway"
    raise Stopped(Problem("nothing was applied", f"`{first.path}`: {first.what}{more}", fix), Exit.FAILED)


def _nothing(planned: "Plan", found: "tuple[Danger, ...]", json: bool) -> int:
    if not json:
        print("every file is as the patch would make it already")
    _print_json(planned, found, json, applied=False, step=None)
    return Exit.DONE


def _said_yes(workspace: str) -> bool:
    from runner.config.trust.prompt import typed_line
    from runner.text.sanitize import visible

    try:
        answer = typed_line(f"apply it to {visible(workspace, lines=False)}? [yes / no] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")


def _apply(
    ground: "SnapshotScope", settings: "Settings", planned: "Plan", found: "tuple[Danger, ...]", told: _Told
) -> int:
    import hashlib
    from time import monotonic

    from runner.audit.log import open_log
    from runner.audit.records import Patching, SessionInfo
    from runner.changes.review.apply import apply
    from runner.changes.review.patch_parser import PatchError
    from runner.changes.undo.errors import UndoError
    from runner.changes.undo.settings import place
    from runner.changes.undo.store import Store
    from runner.state import paths
    from sandbox.backend import Outcome

    digest = hashlib.sha256(told.data).hexdigest()
    with open_log(settings, os.environ) as audit:
        info = SessionInfo("person", ground.workspace, not told.asked, None, ("agent", *sys.argv[1:]))
        session = audit.session(info)
        by = "terminal" if told.asked else "--yes"
        files = tuple((item.path, item.how) for item in planned.items)
        number = audit.applied(session, Patching(told.name, digest, by, told.reverse, ground.workspace, files))
        store, started = Store(place(paths.state_dir(os.environ), ground.workspace)), monotonic()
        try:
            words = f"agent apply {'--reverse ' if told.reverse else ''}{told.name}"
            done = apply(planned, ground, store, words, session, {danger.path for danger in found})
        except (PatchError, UndoError) as error:
            audit.finished(number, Outcome(1, seconds=monotonic() - started, problem=error.problem))
            raise Stopped(error.problem, Exit.FAILED) from None
        finally:
            store.close()
        audit.finished(number, Outcome(0, seconds=monotonic() - started))
    return _done(planned, found, done, told.json)


def _done(planned: "Plan", found: "tuple[Danger, ...]", done: "Applied", json: bool) -> int:
    if not json:
        from runner.changes.review.patch import listed

        most = "; `agent undo` takes it back" if not done.lasting else ""
        print(f"applied{most}")
        if done.lasting:
            print(f"`agent undo` cannot take back {listed(done.lasting)}; `agent apply --reverse` can")
    _print_json(planned, found, json, applied=True, step=done.step)
    return Exit.DONE


def _print_json(planned: "Plan", found: "tuple[Danger, ...]", json: bool, *, applied: bool, step: int | None) -> None:
    if not json:
        return
    from json import dumps

    from runner.changes.review.patch_view import plan_json

    print(dumps({"applied": applied, "step": step, **plan_json(planned, found)}))
