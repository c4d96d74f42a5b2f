"""Removal of stored snapshots: of one workspace on request, and of workspaces that no longer exist."""

import contextlib
import os
import shutil
import time
from pathlib import Path

from policy.model.verdict import Problem
from runner.changes.undo.errors import UndoError
from runner.changes.undo.store import Store

_NAME = "workspace"  # the file that says whose snapshots these are
_GONE = 30 * 86_400.0  # seconds without use; a disk that is not mounted today may be back tomorrow


def clear(folder: Path) -> int:
    """Remove everything stored in `folder` and return its size in bytes. Raise UndoError while an action runs."""
    store = Store(folder)
    try:
        with store.turns.locked():
            if not store.turns.alone():
                why = "an action of an agent is running in this workspace"
                raise UndoError(Problem("nothing was cleared", why, "wait until it is done"))
            size = sum(path.stat().st_size for path in folder.iterdir())
            # The locks stay while we hold them, so that nobody begins with half of it.
            for path in sorted(folder.iterdir(), key=lambda path: path.name in ("lock", "active")):
                path.unlink()
            folder.rmdir()
    finally:
        store.close()
    return size


def sign(folder: Path, workspace: str) -> None:
    """Write the path of the workspace into a new `folder`, and remove the folders of workspaces that no longer
    exist.
    """
    name = folder / _NAME
    if name.exists():
        return
    name.write_bytes(os.fsencode(workspace))
    for other in folder.parent.iterdir():
        with contextlib.suppress(OSError):  # another process is at it, or it was never signed
            whose = os.fsdecode((other / _NAME).read_bytes())
            if not os.path.isdir(whose) and time.time() - (other / "steps.db").stat().st_mtime > _GONE:
                shutil.rmtree(other)
