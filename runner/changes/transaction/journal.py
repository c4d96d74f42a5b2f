"""The journal of one application: every step with the identities of the entries before and after it.

The journal is complete and on the disk before the first step. Whether a step is done is read from the identities (the
inode number of the new entry is at the path, or not), so that nothing is written between the steps.
"""

import json
import os
from enum import StrEnum
from pathlib import Path

from policy.model.frozen import dataclass
from runner.changes.file_state import Stamp
from runner.changes.safe_open import write_all

_NAME, _BACK = "journal", "rollback"


class StepKind(StrEnum):
    """The kind of a step."""

    UNLOCK = "unlock"  # give this user write access to a folder of the workspace, so that its entries can be renamed
    CREATE = "create"
    REPLACE = "replace"
    REMOVE = "remove"
    MODE = "mode"  # set the mode of a folder


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """One step of an application.

    Attributes:
        kind: The kind.
        path: The entry, relative to the workspace.
        new: Device and inode of the new entry, which lies in the source; empty if there is none.
        old: The stamp of the entry of the workspace; empty if there is none.
        mode: The permission bits to set; of REMOVE the number of the place for the old entry.
        old_mode: The permission bits before.
    """

    kind: StepKind
    path: str
    new: tuple[int, ...] = ()
    old: Stamp | tuple[()] = ()
    mode: int = 0
    old_mode: int = 0


@dataclass(frozen=True, slots=True)
class StepJournal:
    """The journal of one application.

    Attributes:
        workspace: The folder that is changed, as a real path.
        source: The folder with the new entries, on the same mounted file system.
        removed: The folder that receives removed entries, beside `source`.
        began: The time of the file system when the command began, in nanoseconds.
        steps: The steps in their order.
    """

    workspace: str
    source: str
    removed: str
    began: int
    steps: tuple[ApplyStep, ...]


def write(folder: Path, journal: StepJournal) -> None:
    """Write the journal to the folder of the transaction, and return when it is on the disk. Raise OSError."""
    steps = [(str(step.kind), step.path, step.new, step.old, step.mode, step.old_mode) for step in journal.steps]
    text = json.dumps([journal.workspace, journal.source, journal.removed, journal.began, steps])
    draft = folder / f".{_NAME}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(handle, text.encode("ascii"))
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(draft, folder / _NAME)
    _sync(folder)


def read(folder: Path) -> StepJournal | None:
    """Return the journal of a transaction that was not finished, or None if there is none. Raise OSError."""
    try:
        text = (folder / _NAME).read_bytes()
    except FileNotFoundError:
        return None
    workspace, source, removed, began, rows = json.loads(text)
    steps = (
        ApplyStep(StepKind(kind), path, tuple(new), tuple(old), mode, old_mode)
        for kind, path, new, old, mode, old_mode in rows
    )
    return StepJournal(workspace, source, removed, began, tuple(steps))


def finish(folder: Path) -> None:
    """Delete the journal: from now on nothing is left to do. Raise OSError."""
    (folder / _NAME).unlink(missing_ok=True)


def mark_rollback(folder: Path) -> None:
    """Note on the disk that the steps are taken back, not completed. Raise OSError."""
    os.close(os.open(folder / _BACK, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    _sync(folder)


def rolls_back(folder: Path) -> bool:
    """Return True after `mark_rollback`."""
    return (folder / _BACK).exists()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
