"""Application of a plan: every step is one rename or one change of a mode, and can be repeated or taken back.

THREAT T304: no step follows a link, and none overwrites what another program made or changed: a new entry is renamed
without replacement, and an old one is exchanged or moved away and checked afterwards. If it is not the expected one, it
is moved back.

THREAT T305: a killed runner leaves a prefix of the steps. Every step is repeatable, so the next runner completes them,
or takes them back if they were being taken back.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from policy.model.verdict import Problem, ProblemError
from runner.changes import safe_open
from runner.changes.file_state import Stamp, stamp
from runner.changes.transaction import journal
from runner.changes.transaction.journal import ApplyStep, StepJournal, StepKind
from runner.changes.transaction.plan import CHANGED, GONE, INNER, MADE, Conflict, FolderCursor, changed_below
from runner.text.phrases import os_reason
from sandbox.inside.renames import exchange, rename_new

LATE = "another program wrote to its previous version while it was being replaced"
Reached = Callable[[], None]  # called before and after each change of the disk; tests kill the process there


class ApplyError(ProblemError):
    """An error of an application whose steps were taken back. `problem` has the details."""


def run(folder: Path, steps: StepJournal, reached: Reached = lambda: None) -> tuple[Conflict, ...]:
    """Write the journal to the folder of the transaction, perform its steps, and delete the journal.

    Return the conflicts that were found meanwhile; these changes were not applied. Raise ApplyError after a failure:
    then the steps were taken back.
    """
    reached()
    try:
        journal.write(folder, steps)
    except OSError as error:
        raise _failed(steps, error, ()) from None
    reached()
    return complete(folder, steps, reached)


def complete(folder: Path, steps: StepJournal, reached: Reached = lambda: None) -> tuple[Conflict, ...]:
    """Perform the steps of a journal that are not done yet, or take back the steps that are done if that had begun.

    Return and raise as `run`.
    """
    try:
        if journal.rolls_back(folder):
            raise InterruptedError(0, "it was interrupted")
        conflicts = _perform(steps, reached)
    except OSError as error:
        reached()
        journal.mark_rollback(folder)
        left = _take_back(steps, reached)
        journal.finish(folder)
        raise _failed(steps, error, left) from None
    reached()
    journal.finish(folder)
    reached()
    return conflicts


def _failed(steps: StepJournal, error: OSError, left: tuple[str, ...]) -> ApplyError:
    what = f"the changes of the command were not applied to `{steps.workspace}`"
    if left:
        what = f"the changes of the command were applied to `{steps.workspace}` in part"
        return ApplyError(
            Problem(what, f"{os_reason(error)}; not taken back: {', '.join(left[:5])}", "check these files")
        )
    return ApplyError(Problem(what, os_reason(error) or str(error), "no file was changed; try again"))


def _perform(steps: StepJournal, reached: Reached) -> tuple[Conflict, ...]:
    conflicts = dict[str, str]()
    with _Places(steps) as places:
        for step in steps.steps:
            reached()
            if why := places.perform(step):
                conflicts.setdefault(step.path, why)
        for step in steps.steps:
            if step.path not in conflicts and (why := places.late(step)):
                conflicts[step.path] = why
    return tuple(Conflict(path, why) for path, why in conflicts.items())


def _take_back(steps: StepJournal, reached: Reached) -> tuple[str, ...]:
    """Take back all steps that are done, and return the paths for which that failed."""
    left = []
    with _Places(steps) as places:
        for step in reversed(steps.steps):
            reached()
            try:
                done = places.take_back(step)
            except OSError:
                done = False
            if not done:
                left.append(step.path)
    return tuple(left)


class _Places:
    """The folders of one application: of the workspace, with the new entries, and with the removed ones."""

    def __init__(self, steps: StepJournal) -> None:
        self._began = steps.began
        self._lower = FolderCursor(steps.workspace)
        self._upper = FolderCursor(steps.source, steps.workspace)
        self._removed = FolderCursor(steps.removed, steps.workspace)

    def __enter__(self) -> "_Places":
        return self

    def __exit__(self, *_: object) -> None:
        self._lower.close()
        self._upper.close()
        self._removed.close()

    def perform(self, step: ApplyStep) -> str:
        """Perform a step unless it is done, and return the reason if it conflicts. Raise OSError."""
        match step.kind:
            case StepKind.CREATE:
                return self._create(step)
            case StepKind.REPLACE:
                return self._replace(step)
            case StepKind.REMOVE:
                return self._remove(step)
            case StepKind.UNLOCK | StepKind.MODE:
                return self._set_mode(step.path, step.mode)

    def _create(self, step: ApplyStep) -> str:
        try:
            now = self._lower.status(step.path)
            above, name = self._lower.above(step.path)
        except OSError as error:
            return _gone(error)
        if now is not None:
            return "" if _identity(now) == step.new else MADE
        source, _ = self._upper.above(step.path)
        try:
            rename_new(name, source, name, above)
        except FileExistsError:
            return MADE
        return ""

    def _replace(self, step: ApplyStep) -> str:
        try:
            now = self._lower.status(step.path)
            above, name = self._lower.above(step.path)
        except OSError as error:
            return _gone(error)
        if now is None:
            return CHANGED
        source, _ = self._upper.above(step.path)
        if _identity(now) != step.new:
            if not _is(now, step.old):
                return CHANGED
            exchange(name, source, name, above)
        if not (why := self._differs(source, name, step.old)):
            return ""
        exchange(name, source, name, above)  # the entry of the other program is back at its place
        return why

    def _remove(self, step: ApplyStep) -> str:
        place = str(step.mode)
        if _status(self._removed.at(""), place) is None:
            try:
                now = self._lower.status(step.path)
                above, name = self._lower.above(step.path)
            except OSError:
                return ""  # its folder was removed as well
            if now is None:
                return ""
            if not _is(now, step.old):
                return CHANGED
            rename_new(name, above, place, self._removed.at(""))
        if not (why := self._differs(self._removed.at(""), place, step.old)):
            return ""
        above, name = self._lower.above(step.path)
        rename_new(place, self._removed.at(""), name, above)
        return why

    def _differs(self, above: int, name: str, old: Stamp | tuple[()]) -> str:
        """Return the reason if the entry that was moved out of the workspace is not the expected one."""
        status = _status(above, name)
        if status is None or stamp(status)[:4] != old[:4]:  # renaming changed the ctime
            return CHANGED
        if stat.S_ISDIR(status.st_mode):
            try:
                handle = safe_open.open_folder(name, above)
            except PermissionError:
                return ""
            try:
                inner = changed_below(handle, self._began)
            finally:
                os.close(handle)
            return INNER.format(inner) if inner else ""
        return ""

    def late(self, step: ApplyStep) -> str:
        """Return the reason if another program wrote to the previous version of a file after it was replaced."""
        if step.kind is StepKind.REPLACE:
            above, name = self._upper.above(step.path)
        elif step.kind is StepKind.REMOVE:
            above, name = self._removed.at(""), str(step.mode)
        else:
            return ""
        status = _status(above, name)
        moved = status is not None and stamp(status)[:2] == step.old[:2]
        return LATE if moved and status is not None and stamp(status)[:4] != step.old[:4] else ""

    def _set_mode(self, path: str, mode: int) -> str:
        self._lower.forget()
        if not path:
            os.fchmod(self._lower.at(""), mode)
            return ""
        try:
            above, name = self._lower.above(path)
            status = os.stat(name, dir_fd=above, follow_symlinks=False)
        except OSError as error:
            return _gone(error)
        if not stat.S_ISDIR(status.st_mode):
            return GONE
        if stat.S_IMODE(status.st_mode) != mode:
            safe_open.change_mode(above, name, mode)
        return ""

    def take_back(self, step: ApplyStep) -> bool:
        """Take a step back if it is done. Return False if another program changed the entry since. Raise OSError."""
        if step.kind in (StepKind.UNLOCK, StepKind.MODE):
            return not self._set_mode(step.path, step.old_mode)
        now = self._lower.status(step.path)
        above, name = self._lower.above(step.path)
        if step.kind is StepKind.REMOVE:
            place = str(step.mode)
            if _status(self._removed.at(""), place) is not None:
                rename_new(place, self._removed.at(""), name, above)
            return True
        source, _ = self._upper.above(step.path)
        if step.kind is StepKind.CREATE:
            if now is not None and _identity(now) == step.new:
                rename_new(name, above, name, source)
            return True
        displaced = _status(source, name)
        if displaced is not None and stamp(displaced)[:2] == step.old[:2]:
            if now is None or _identity(now) != step.new:
                return False
            exchange(name, source, name, above)
        return True


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is(status: os.stat_result, old: Stamp | tuple[()]) -> bool:
    """Return True if this is the expected entry, unchanged. The ctime of a folder, and of a file with other names, may
    be that of an earlier step.
    """
    exact = not stat.S_ISDIR(status.st_mode) and status.st_nlink == 1
    return stamp(status)[: 5 if exact else 4] == old[: 5 if exact else 4]


def _status(above: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _gone(error: OSError) -> str:
    """Return the reason of a conflict for an error of opening a folder of the workspace. Raise other errors."""
    if isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ELOOP:
        return GONE
    raise error
