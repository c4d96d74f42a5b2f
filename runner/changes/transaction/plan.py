"""The plan of an application: the step for each change, and the changes that conflict with changes of others.

THREAT T304: an editor or another program may change the workspace while a command works on its layer. An entry whose
ctime, which no process can set back, is not older than the command conflicts: the version in the workspace stays.
"""

import os
import stat
from collections.abc import Iterable, Sequence

from policy.model.frozen import dataclass
from runner.changes import safe_open
from runner.changes.file_state import clock_margin, stamp
from runner.changes.transaction.journal import ApplyStep, StepKind
from sandbox.inside import syscalls
from sandbox.workspace.folder_cache import SHORT_MARGIN
from sandbox.workspace.layer import LayerChange, LayerKind

CHANGED = "another program changed it while the command ran"
INNER = "another program changed `{}` in it while the command ran"
GONE = "another program removed its folder, or replaced it, while the command ran"
MADE = "another program created it while the command ran"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A change of a command that is not applied because of a change of another program.

    Attributes:
        path: Relative to the workspace.
        why: The reason in words.
    """

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """The steps of an application, and the changes that are not applied."""

    steps: tuple[ApplyStep, ...]
    conflicts: tuple[Conflict, ...]


class FolderCursor:
    """The folders below one root, of which the last one stays open: successive paths are mostly neighbours."""

    def __init__(self, root: str, above: str = "") -> None:
        """Open the folder at the path `root`; no link is followed below the folder `above`. Raise OSError."""
        if above and root.startswith(f"{above}/"):
            with safe_open.opened_root(above) as top, safe_open.folder(top, root[len(above) + 1 :]) as handle:
                self._root = os.dup(handle)
        else:
            self._root = safe_open.open_root(root)
        self._last: tuple[str, int] | None = None

    def at(self, path: str) -> int:
        """Return the open folder at `path`, valid until the next call. Raise OSError, also for a link on the way."""
        if not path:
            return self._root
        if self._last is None or self._last[0] != path:
            try:
                # One call of the kernel for the whole path: a command can nest folders two thousand deep.
                handle = syscalls.open_path(path, syscalls.RESOLVE_NO_SYMLINKS, self._root)
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
            self._drop()
            self._last = (path, handle)
        return self._last[1]

    def above(self, path: str) -> tuple[int, str]:
        """Return the open folder that contains `path`, and the name in it. Raise OSError."""
        folder, name = safe_open.split(path)
        return self.at(folder), name

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of the entry at `path`, or None if it does not exist. Raise OSError if its folder does not
        exist, or is a link.
        """
        above, name = self.above(path)
        try:
            return os.stat(name, dir_fd=above, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def forget(self) -> None:
        """Close the folder that was kept open, because its path may now lead elsewhere."""
        self._drop()
        self._last = None

    def close(self) -> None:
        self._drop()
        os.close(self._root)

    def _drop(self) -> None:
        if self._last is not None:
            os.close(self._last[1])


def changed_since(ctime: int, began: int) -> bool:
    """Return True unless an entry with this ctime surely was not changed after `began`. Both are times of the file
    system in nanoseconds, `began` of a clock that ticks every few milliseconds at least.
    """
    margin = clock_margin(ctime)
    return ctime + (0 if margin == SHORT_MARGIN else margin) >= began


def changed_below(top: int, began: int, depth: int = 0) -> str:
    """Return the path of an entry below the open folder `top` that was changed after `began`, or an empty text. A
    folder that cannot be listed, or lies deeper than `safe_open.DEEPEST`, counts as changed.
    """
    try:
        names = os.listdir(top)
    except OSError:
        return "."
    if depth > safe_open.DEEPEST:
        return "."
    for name in names:
        try:
            status = os.stat(name, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            return name
        if changed_since(status.st_ctime_ns, began):
            return name
        if stat.S_ISDIR(status.st_mode):
            try:
                inner = safe_open.open_folder(name, top)
            except PermissionError:
                continue  # this user cannot see what is in it, and neither could the command
            except OSError:
                return name
            try:
                found = changed_below(inner, began, depth + 1)
            finally:
                os.close(inner)
            if found:
                return f"{name}/{found}"
    return ""


def plan(workspace: str, source: str, changes: Iterable[LayerChange], began: int) -> ApplyPlan:
    """Return the plan that applies `changes`, whose new entries lie in `source`. Raise OSError."""
    tops = sorted((each for each in changes if not each.within), key=lambda each: each.path)
    lower, upper = FolderCursor(workspace), FolderCursor(source, workspace)
    try:
        return _Planner(lower, upper, began).plan(tops)
    finally:
        lower.close()
        upper.close()


class _Planner:
    def __init__(self, lower: FolderCursor, upper: FolderCursor, began: int) -> None:
        self._lower, self._upper, self._began = lower, upper, began
        self._conflicts: list[Conflict] = []
        self._unlocked: dict[str, ApplyStep] = {}
        self._modes: dict[str, ApplyStep] = {}
        self._removed = 0

    def plan(self, tops: Sequence[LayerChange]) -> ApplyPlan:
        steps = [step for change in tops if (step := self._step(change)) is not None]
        moved = {step.path for step in steps if step.old}
        for path, step in self._unlocked.items():  # back to the mode before, unless the command set another one
            if path not in moved:
                self._modes.setdefault(path, ApplyStep(StepKind.MODE, path, (), (), step.old_mode, step.mode))
        modes = (self._modes[path] for path in sorted(self._modes, reverse=True))
        return ApplyPlan((*self._unlocked.values(), *steps, *modes), tuple(self._conflicts))

    def _step(self, change: LayerChange) -> ApplyStep | None:
        """Return the step of one change; None if it conflicts, if nothing is left to do, or for a mode."""
        path, old = change.path, None
        try:
            old = self._lower.status(path)
        except OSError:
            if change.kind is not None:
                self._conflict(path, GONE)
            return None
        if change.kind is LayerKind.FOLDER and not change.whole:
            self._mode(change, old)
            return None
        if change.kind is None:
            if old is None or not self._unchanged(path, old):
                return None  # removed by both, or a conflict
            self._unlock(path, old)
            self._removed += 1
            return ApplyStep(StepKind.REMOVE, path, (), stamp(old), self._removed)
        above, name = self._upper.above(path)
        new = os.stat(name, dir_fd=above, follow_symlinks=False)
        if old is not None and not self._unchanged(path, old):
            return None
        self._unlock(path, old)
        if change.kind is LayerKind.FOLDER and os.geteuid() and not new.st_mode & 0o200:
            # rename(2): moving a folder changes its entry `..`, which needs write access to it.
            handle = safe_open.open_folder(name, above)
            try:
                os.fchmod(handle, stat.S_IMODE(new.st_mode) | 0o200)
            finally:
                os.close(handle)
            mode = stat.S_IMODE(new.st_mode)
            self._modes[path] = ApplyStep(StepKind.MODE, path, (), (), mode, mode | 0o200)
        kind, identity = StepKind.CREATE if old is None else StepKind.REPLACE, (new.st_dev, new.st_ino)
        return ApplyStep(kind, path, identity, stamp(old) if old is not None else ())

    def _unchanged(self, path: str, old: os.stat_result) -> bool:
        """Return True if the entry in the workspace, with all below it, is as it was when the command began."""
        why = CHANGED if changed_since(old.st_ctime_ns, self._began) else ""
        if not why and stat.S_ISDIR(old.st_mode):
            above, name = self._lower.above(path)
            try:
                handle = safe_open.open_folder(name, above)
            except PermissionError:
                return True  # this user cannot see what is in it, and neither could the command
            except OSError:
                handle, why = -1, CHANGED
            if handle >= 0:
                try:
                    inner = changed_below(handle, self._began)
                finally:
                    os.close(handle)
                why = INNER.format(inner) if inner else ""
        if why:
            self._conflict(path, why)
        return not why

    def _mode(self, change: LayerChange, old: os.stat_result | None) -> None:
        if old is None or not stat.S_ISDIR(old.st_mode):
            self._conflict(change.path, GONE)
            return
        mode, now = stat.S_IMODE(change.mode), stat.S_IMODE(old.st_mode)
        if mode == now:
            return
        if changed_since(old.st_ctime_ns, self._began):
            self._conflict(change.path, CHANGED)
            return
        self._modes[change.path] = ApplyStep(StepKind.MODE, change.path, (), stamp(old), mode, now)

    def _unlock(self, path: str, old: os.stat_result | None) -> None:
        """Plan write access to the folder of `path`, and to a folder at `path` that is moved away."""
        if not os.geteuid():
            return
        above = safe_open.split(path)[0]
        places = [(above, os.fstat(self._lower.at(above)), 0o300)]
        if old is not None and stat.S_ISDIR(old.st_mode):
            places.append((path, old, 0o200))
        for place, status, needed in places:
            mode = stat.S_IMODE(status.st_mode)
            if mode & needed != needed and status.st_uid == os.geteuid():
                self._unlocked[place] = ApplyStep(StepKind.UNLOCK, place, (), (), mode | needed, mode)

    def _conflict(self, path: str, why: str) -> None:
        self._conflicts.append(Conflict(path, why))
