"""Being rid of what is kept: of one workspace at a person's wish, of those that are gone by themselves."""

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
    """Forget everything kept in `folder`; answers how many bytes that were. Raises UndoError while an action runs."""
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
    """Note whose snapshots lie in `folder`, when that is new; and remove those of workspaces that are long gone."""
    name = folder / _NAME
    if name.exists():
        return
    name.write_bytes(os.fsencode(workspace))
    for other in folder.parent.iterdir():
        with contextlib.suppress(OSError):  # another process is at it, or it was never signed
            whose = os.fsdecode((other / _NAME).read_bytes())
            if not os.path.isdir(whose) and time.time() - (other / "steps.db").stat().st_mtime > _GONE:
                shutil.rmtree(other)
