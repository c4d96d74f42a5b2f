"""One transaction: the layer of a command, the judgement of its changes, and their application or removal."""

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.changes import safe_open
from runner.changes.copy_tree import Copying
from runner.changes.transaction import apply, journal, place
from runner.changes.transaction.apply import LATE, ApplyError
from runner.changes.transaction.attributes import strip
from runner.changes.transaction.journal import StepJournal, StepKind
from runner.changes.transaction.judge import HeldEntry, HeldReason, Judged
from runner.changes.transaction.plan import Conflict, plan
from runner.text.phrases import os_reason
from sandbox.inside import safe_rmtree
from sandbox.workspace.layer import LayerChange, LayerKind

if TYPE_CHECKING:
    from policy.model.verdict import Terms
    from sandbox.backend import Backend

_STAGED = ".ringfence-apply-"  # prefix of the folder in the workspace with copies from another file system
_STEP = 100_000_000  # nanoseconds by which a clock must be set back to count; the clocks are read one after the other
_LONGEST_NAME = 200  # bytes of a name, so that a number fits before it
_WHERE = "the changes of the command are in {}"


@dataclass(frozen=True, slots=True)
class NotApplied:
    """A change that did not reach the workspace.

    Attributes:
        path: Relative to the workspace.
        why: The reason in words.
        kept: The absolute path of the version of the command; empty if there is none.
        held: The judgement; None for a conflict with another program.
    """

    path: str
    why: str
    kept: str = ""
    held: HeldEntry | None = None


@dataclass(frozen=True, slots=True)
class Transferred:
    """The result of an application.

    Attributes:
        applied: The changes that are in the workspace now.
        left: The changes that are not.
        deleted: The number of deleted files, as far as they were counted (`Judged.deleted`).
    """

    applied: tuple[LayerChange, ...]
    left: tuple[NotApplied, ...]
    deleted: int = 0


class Transaction:
    """A transaction in the private state folder `state`, for a command that may write to `workspace`.

    Attributes:
        layer: The layer that the command gets.
        began: The time of the file system before the command, in nanoseconds.
        opened: The same moment by time.monotonic.
        result: The result of `apply`; None before.
    """

    def __init__(self, state: Path, workspace: str, ahead: "place.MadeAhead | None" = None) -> None:
        """Create the folders of the transaction, or take those that were made `ahead`. Raise OSError."""
        self._aside = state / "aside"
        self.opened, self._clock = time.monotonic(), _offset()
        made = ahead.take() if ahead is not None else place.create(state, workspace)
        self._folder, self.layer, self.began = made
        self._prepared: PreparedSteps | None = None
        self.result: Transferred | None = None

    def apply(self, judged: Judged, steps: "PreparedSteps") -> Transferred:
        """Apply what `prepare` prepared, and keep everything else for the user. The transaction is over afterwards.

        The caller holds the lock of the workspace (`Turns.locked`). Raise ApplyError: then nothing was applied, and the
        layer is kept for the user.
        """
        try:
            done = apply.run(self._folder.path, steps.journal) if steps.journal.steps else ()
        except ApplyError as error:
            where = self._keep_layer()
            found = error.problem
            raise ApplyError(Problem(found.what, found.why, f"{found.fix}; {_WHERE.format(where)}")) from None
        conflicts = (*steps.conflicts, *done)
        left = tuple(self._left(each, steps.journal) for each in conflicts)
        missing = {each.path for each in conflicts}
        applied = tuple(each for each in judged.applied if not _covered(each.path, missing))
        self.discard()
        self.result = Transferred(applied, (*steps.held, *left), judged.deleted)
        return self.result

    def prepare(self, judged: Judged) -> "PreparedSteps":
        """Move the held entries out of the layer, and return the steps for the others.

        Raise ApplyError: then nothing was applied, and the layer is kept for the user.
        """
        try:
            self._prepared = self._prepared or self._steps_of(judged)
        except OSError as error:
            raise self.give_up(os_reason(error)) from None
        return self._prepared

    def give_up(self, why: str) -> ApplyError:
        """Keep the layer for the user, and return the error for changes that were not applied because of `why`."""
        what = f"the changes of the command were not applied to `{self.layer.workspace}`"
        return ApplyError(Problem(what, why, _WHERE.format(self._keep_layer())))

    def _steps_of(self, judged: Judged) -> "PreparedSteps":
        # THREAT T307: a copy of a secret is removed before the folder around it is kept.
        first = sorted(judged.held, key=lambda each: each.reason is not HeldReason.SECRET)
        done = {each.change.path: self._hold(each) for each in first}
        held = tuple(done[each.change.path] for each in judged.held)
        strip(self.layer.upper, judged.applied)
        source, removed = self.layer.upper, str(self._folder.path / place.REMOVED)
        if not _same_mount(self.layer.upper, self.layer.workspace):
            source, removed = self._stage(judged.applied)
        # THREAT T304: after the clock was set back, a change by another program has a time before the command.
        back = self._clock - _offset()
        began = self.began - back if back > _STEP else self.began
        planned = plan(self.layer.workspace, source, judged.applied, began)
        steps = StepJournal(self.layer.workspace, source, removed, began, planned.steps)
        return PreparedSteps(steps, planned.conflicts, held)

    def discard(self) -> None:
        """Remove the layer with everything in it. Never raise OSError."""
        with contextlib.suppress(OSError):
            _remove_staged(self._folder.path)
        self._folder.remove()

    def _keep_layer(self) -> str:
        where = _place_in(self._aside, "changes")
        with contextlib.suppress(OSError):
            os.rename(self.layer.upper, where)
        self.discard()
        return where

    def _hold(self, held: HeldEntry) -> NotApplied:
        change = held.change
        kept = ""
        if held.reason is HeldReason.SECRET:
            # THREAT T307: no copy of a secret is kept, not even in the private state.
            os.unlink(Path(self.layer.upper) / change.path)
        elif change.kind is not None and not (
            change.kind is LayerKind.FOLDER and not change.whole and not change.within
        ):
            kept = _moved_aside(self._aside, Path(self.layer.upper) / change.path)
        return NotApplied(change.path, held.why, kept, held)

    def _left(self, conflict: Conflict, steps: StepJournal) -> NotApplied:
        """Keep the version of the command, or the previous version that another program changed afterwards."""
        return NotApplied(conflict.path, conflict.why, _kept_version(self._aside, conflict, steps))

    def set_aside(self, patch: bytes) -> str:
        """Store the changes as a patch among the files that were set aside, and return its path. Raise OSError."""
        where = _place_in(self._aside, "changes.patch")
        handle = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(patch)
        return where

    def _stage(self, applied: Sequence[LayerChange]) -> tuple[str, str]:
        """Copy the layer to the file system of the workspace, and return the folders of the steps. Raise OSError.

        THREAT T18: another process may write to the workspace, so every folder is opened below its descriptor.
        """
        top = f"{_STAGED}{self._folder.path.name}"
        (self._folder.path / _STAGED).write_bytes(os.fsencode(self.layer.workspace))  # for `complete_abandoned`
        with safe_open.opened_root(self.layer.workspace) as root:
            os.mkdir(top, 0o700, dir_fd=root)
            with safe_open.folder(root, top) as handle:
                os.mkdir(place.UPPER, 0o700, dir_fd=handle)
                os.mkdir(place.REMOVED, 0o700, dir_fd=handle)
                copying = Copying(None)
                copying.folder(self.layer.upper, f"/proc/self/fd/{handle}/{place.UPPER}")
        wanted = {each.path for each in applied if each.kind is not None}
        for path, why in copying.left_out:
            if path in wanted:
                raise OSError(errno.EIO, f"`{path}` cannot be copied: {why}")
        where = f"{self.layer.workspace}/{top}"
        return f"{where}/{place.UPPER}", f"{where}/{place.REMOVED}"


async def why_no_layer(state: Path, terms: "Terms", backend: "Backend") -> str:
    """Return why a command under `terms` cannot run on a layer in the private state folder `state`; empty if it can.

    Raise OSError if there is no place for layers.
    """
    return await backend.layered(terms, str(place.layers_folder(state)))


async def open_transaction(
    state: Path, terms: "Terms", backend: "Backend", ahead: "place.MadeAhead | None" = None
) -> Transaction | str:
    """Return a transaction for a command under `terms`, in the folders `ahead` if there are some, or why the command
    cannot run on a layer. Raise OSError.
    """
    return await why_no_layer(state, terms, backend) or Transaction(state, terms.workspace, ahead)


@dataclass(frozen=True, slots=True)
class PreparedSteps:
    """The steps of an application, and what is not part of them.

    Attributes:
        journal: The steps.
        conflicts: The changes that conflict with changes of other programs.
        held: The entries that were held back, moved out of the layer.
    """

    journal: StepJournal
    conflicts: tuple[Conflict, ...]
    held: tuple[NotApplied, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths that change; a path with a `/` at its end stands for everything below it as well."""
        content = {StepKind.CREATE, StepKind.REPLACE, StepKind.REMOVE}
        return tuple(
            f"{each.path}/" if each.kind in content else each.path
            for each in self.journal.steps
            if each.path not in ("", ".") and each.kind is not StepKind.UNLOCK
        )


def complete_abandoned(above: Path) -> tuple[str, ...]:
    """Complete, take back or discard the transactions in the folder `above` whose process was killed. Return reports
    for the user. The caller holds the lock of the workspace.
    """
    reports, aside = [], above.parent.parent / "aside"
    for folder in place.abandoned_in(above):
        try:
            steps = journal.read(folder.path)
        except (OSError, ValueError) as error:
            reports.append(f"the journal in {folder.path} cannot be read: {os_reason(error)}")
            folder.close()
            continue
        if steps is not None:
            try:
                conflicts = apply.complete(folder.path, steps)
                kept = [_kept_version(aside, each, steps) for each in conflicts]
            except (ApplyError, OSError) as error:
                why = error.problem.why if isinstance(error, ApplyError) else os_reason(error)
                reports.append(f"the changes of a command that was interrupted were not applied: {why}")
                if not isinstance(error, ApplyError):
                    folder.close()
                    continue
                conflicts, kept = (), []
                # As of a failure without an interruption, the changes are kept.
                with contextlib.suppress(OSError):
                    reports[-1] += f"; {_WHERE.format(_moved_aside(aside, folder.path / place.UPPER))}"
            else:
                reports.append("the changes of a command that was interrupted are applied now")
            for each, place_of_it in zip(conflicts, kept, strict=True):
                where = f"; the other version is in {place_of_it}" if place_of_it else ""
                reports.append(f"`{each.path}` was not applied: {each.why}{where}")
        _remove_staged(folder.path)
        folder.remove()
    return tuple(reports)


def _remove_staged(folder: Path) -> None:
    """Remove the copies that the transaction at `folder` made in its workspace, if there are any."""
    with contextlib.suppress(FileNotFoundError):
        workspace = os.fsdecode((folder / _STAGED).read_bytes())
        safe_rmtree.remove(f"{workspace}/{_STAGED}{folder.name}")


def _kept_version(aside: Path, conflict: Conflict, steps: StepJournal) -> str:
    """Move what is not in the workspace because of a conflict to the folder `aside`. Return its path there, or an empty
    text if there is nothing.
    """
    step = next((each for each in steps.steps if each.path == conflict.path), None)
    if step is not None and step.kind is StepKind.REMOVE:
        version = Path(steps.removed) / str(step.mode) if conflict.why == LATE else None
    else:
        version = Path(steps.source) / conflict.path
    return _moved_aside(aside, version) if version is not None and _is_content(version) else ""


def _moved_aside(aside: Path, path: Path) -> str:
    """Move an entry to the folder of files that were set aside, and return its path there."""
    where = _place_in(aside, path.name)
    try:
        os.rename(path, where)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(str(path), where)
    _separate(where)
    return where


def _place_in(aside: Path, name: str) -> str:
    aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    short = os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])
    return str(aside / f"{time.time_ns()}-{short}")


def _offset() -> int:
    """Return how far the clock of the system, which anyone with the right can set, is ahead of one that nobody can set.
    In nanoseconds.
    """
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _separate(top: str) -> None:
    """Replace the files at and below `top` that have other names by copies. Raise OSError.

    A command that works on the workspace itself could otherwise change what the user examines, through a name there.
    """
    # SAFETY: walk(top) would follow a link, and the files behind it are not the command's.
    folders = () if os.path.islink(top) else os.walk(top)
    files = [f"{folder}/{name}" for folder, _, names in folders for name in names] or [top]
    for path in files:
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            copy = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}")
            with contextlib.suppress(PermissionError):  # a file that this user may not read
                shutil.copy2(path, copy, follow_symlinks=False)
                os.replace(copy, path)


def _covered(path: str, missing: set[str]) -> bool:
    while path:
        if path in missing:
            return True
        path = path.rpartition("/")[0]
    return False


def _is_content(path: Path) -> bool:
    """Return True if there is an entry, and not the mark of a deletion in a layer (a character device 0/0)."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return not (stat.S_ISCHR(status.st_mode) and status.st_rdev == 0)


def _same_mount(one: str, other: str) -> bool:
    """Return True if renames between the folders are possible (rename(2), EXDEV)."""
    return os.stat(one).st_dev == os.stat(other).st_dev and _mount(one) == _mount(other)


def _mount(path: str) -> str:
    """Return the number of the mount that holds a folder (proc_pid_fdinfo(5)); empty if it is unknown."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as file:
            return next((line.split()[1] for line in file if line.startswith("mnt_id:")), "")
    finally:
        os.close(handle)
