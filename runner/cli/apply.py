"""`agent apply`: show a patch and apply it to the workspace, completely or not at all."""

import os
import sys
from hashlib import sha256
from time import monotonic, time
from typing import TYPE_CHECKING, Annotated

from policy.model.verdict import Problem
from runner.audit.log import open_log
from runner.audit.records import Patching, SessionInfo, ran_changes
from runner.changes.file_state import Change
from runner.cli.gate import CWD, JSON, argument, switch
from runner.cli.undo import snapshot_scope
from runner.problems import Exit, Stopped, usage
from runner.state import paths
from runner.stderr import coloured, say
from runner.text.json_line import json_line
from runner.text.phrases import os_reason
from runner.text.sanitize import visible
from sandbox.backend import Outcome

if TYPE_CHECKING:
    from runner.changes.review.apply import Applied
    from runner.changes.review.apply_plan import PatchPlan
    from runner.changes.review.risk_flags import Danger
    from runner.changes.undo.scope import SnapshotScope
    from runner.config import Settings

_LONGEST = 1 << 30  # bytes of a patch


def apply(
    patch: Annotated[str, argument("PATCH", "The patch file; `-` is standard input.")],
    check: Annotated[bool, switch("--check", help="Only show the changes, and whether the patch fits.")] = False,
    yes: Annotated[bool, switch("--yes", "-y", help="Apply without a question.")] = False,
    anyway: Annotated[bool, switch("--anyway", help="With --yes: apply changes with a warning too.")] = False,
    reverse: Annotated[bool, switch("--reverse", "-R", help="Remove the changes of the patch.")] = False,
    json: JSON = False,
    cwd: CWD = None,
) -> int:
    """Show the changes of a patch, ask, and apply either all of them or none.

    PATCH is a file of `agent ci --patch` or `git diff --binary`. Files outside of the workspace, in Git's own folder
    or behind a link are never written, and no secret is copied or moved to another name. Auto-run files, names of
    secrets and links out of the workspace have a warning; --yes alone does not apply them. `agent undo` reverses it.

    **Examples**

        agent apply result.patch
        agent apply --check result.patch
        agent apply --yes --json result.patch
        agent apply --reverse result.patch
    """
    from runner.changes.review.apply_plan import plan
    from runner.changes.review.patch import listed
    from runner.changes.review.patch_parser import PatchError, read
    from runner.changes.review.patch_view import plan_json
    from runner.changes.review.risk_flags import dangers as dangers_of
    from runner.changes.undo.scope import inventory_of, secret_of

    if anyway and not yes:
        raise usage("--anyway needs --yes", "without --yes you are asked about all changes", "omit --anyway")
    if check and yes:
        raise usage("--check and --yes exclude each other", "--check applies nothing", "omit one of them")
    asked = not (check or yes or json)
    data = _read(patch) if patch != "-" else None  # a wrong path is the first mistake to report
    empty = data is not None and not data.strip()  # nothing to ask about
    if asked and not empty and (patch == "-" or not (os.isatty(0) and os.isatty(2))):
        raise usage("no user can be asked", "there is no terminal", "add --yes, or --check to apply nothing")
    if json and not (check or yes):
        raise usage("--json cannot ask", "its output is for a program", "add --yes, or --check to apply nothing")
    data = _read(patch) if data is None else data
    ground, settings = snapshot_scope(cwd, refuses=True)
    secret = secret_of(ground)
    try:
        sections = read(data)
        if reverse:
            sections = tuple(section.reversed() for section in reversed(sections))
        planned = plan(ground.workspace, sections, secret)
    except PatchError as error:
        raise Stopped(error.problem, Exit.FAILED) from None
    dangers = dangers_of(planned.items, secret, inventory_of(ground, ground.terms(()), ground.workspace).findings)

    def report(text: str = "", *, applied: bool = False, step: int | None = None) -> int:
        if json:
            print(json_line({"applied": applied, "step": step, **plan_json(planned, dangers)}))
        elif text:
            print(text)
        return Exit.DONE

    def refuse(problem: Problem) -> int:
        """Report a patch that is not applied. Without `--json`, raise the problem."""
        report()
        if not json:
            raise Stopped(problem, Exit.FAILED)
        return Exit.FAILED

    if not json and sections:
        _show(planned, dangers, whole=asked or check)
        for path, why in planned.problems[1:]:
            say(f"  {visible(path, lines=False)}: {visible(why, lines=False)}")
    if planned.problems:
        path, why = planned.problems[0]
        more = f"; and {len(planned.problems) - 1} more" if planned.problems[1:] else ""
        fix = "nothing was changed; make the patch again from the current files"
        return refuse(Problem(f"the patch does not fit: `{path}`", f"{why}{more}", fix))
    severe = [danger for danger in dangers if danger.severe]
    if not sections:
        return report("the patch is empty; nothing was changed")
    if check:
        return report("the patch fits; nothing was changed")
    if yes and severe and not anyway:
        first, more = severe[0], f"; and {len(severe) - 1} more" if severe[1:] else ""
        fix = "check these changes, then apply the patch at a terminal, or add --anyway"
        return refuse(Problem("nothing was applied", f"`{first.path}`: {first.what}{more}", fix))
    if not planned.items:
        return report("nothing to do: every file already has the changes of the patch")
    if asked and not _said_yes(ground.workspace):
        say("nothing was applied")
        return Exit.FAILED

    files = tuple((item.path, item.how) for item in planned.items)
    by = "terminal" if asked else "--yes"
    patching = Patching(patch, sha256(data).hexdigest(), by, reverse, ground.workspace, files)
    done = _apply(ground, settings, planned, dangers, patching, unattended=not asked)
    text = "applied; `agent undo` reverses it"
    if done.lasting:
        text = f"applied\n`agent undo` cannot restore {listed(done.lasting)}; `agent apply --reverse` can"
    return report(text, applied=True, step=done.step)


def _read(name: str) -> bytes:
    try:
        with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise usage(f"`{name}` cannot be read", os_reason(error), "check the path") from None
    if len(data) > _LONGEST:
        raise usage(f"`{name}` is longer than 1 GiB", "a patch of this size cannot be reviewed", "apply it with git")
    return data


def _show(planned: "PatchPlan", dangers: "tuple[Danger, ...]", *, whole: bool) -> None:
    from runner.changes.review.patch_view import danger_lines, diff_lines, stat_lines

    if whole and not planned.problems:
        for line in diff_lines(planned, colour=coloured(sys.stdout)):
            print(line)
        print()
    for line in (*stat_lines(planned), *danger_lines(dangers)):
        print(line)
    sys.stdout.flush()


def _said_yes(workspace: str) -> bool:
    from runner.config.trust.prompt import typed_line

    try:
        answer = typed_line(f"apply the patch to {visible(workspace, lines=False)}? [yes / no] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")


def _apply(
    ground: "SnapshotScope",
    settings: "Settings",
    planned: "PatchPlan",
    dangers: "tuple[Danger, ...]",
    patching: "Patching",
    *,
    unattended: bool,
) -> "Applied":

    from runner.changes.review.apply import apply
    from runner.changes.review.patch_parser import PatchError
    from runner.changes.undo.lock import UndoError
    from runner.changes.undo.scope import place
    from runner.changes.undo.store import Store, convert_failures

    with open_log(settings, os.environ) as audit:
        session = audit.session(SessionInfo("person", ground.workspace, unattended, None, ("agent", *sys.argv[1:])))
        number = audit.applied(session, patching)
        store, started = Store(place(paths.state_dir(os.environ), ground.workspace)), monotonic()
        began, changes = time(), list[Change]()
        try:
            words = f"agent apply {'--reverse ' if patching.reverse else ''}{patching.name}"
            with convert_failures(store.folder):
                done = apply(planned, ground, store, words, session, {danger.path for danger in dangers})
                changes = store.changes(done.step) if done.step is not None else []
        except (PatchError, UndoError) as error:
            audit.finished(number, Outcome(1, seconds=monotonic() - started, problem=error.problem))
            raise Stopped(error.problem, Exit.FAILED) from None
        finally:
            store.close()
        audit.finished(number, Outcome(0, seconds=monotonic() - started), ran_changes(began, changes))
    return done
