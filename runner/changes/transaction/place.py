"""The folder of one transaction in the private state: `transactions/KEY OF THE WORKSPACE/ID`.

It contains `upper` and `work` (the layer), `removed` (entries that were moved out of the workspace), and the journal
while changes are applied. The process that made it holds a lock on it until its end, so that another process can tell a
transaction in progress from an abandoned one.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from runner.state.workspace import workspace_key
from sandbox.inside import safe_rmtree
from sandbox.workspace.layer import ChangeLayer, begin

UPPER, WORK, REMOVED = "upper", "work", "removed"
_FOLDER = "transactions"
_TICK = 0.002  # seconds between two looks at the clock of a file system, which ticks every 4 ms or faster


class TransactionFolder:
    """The folder of one transaction, locked by this process. `close` gives the lock up."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    def remove(self) -> None:
        """Remove the folder with all its content, and give the lock up. Never raise OSError."""
        safe_rmtree.remove(str(self.path))
        self.close()
        with contextlib.suppress(OSError):  # other transactions of this workspace are in progress
            self.path.parent.rmdir()

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def layers_folder(state: Path) -> Path:
    """Return the folder with all layers and transactions, made if it is missing. Raise OSError."""
    folder = state / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def folder_of(state: Path, workspace: str) -> Path:
    """Return the folder with the transactions of a workspace, which may not exist."""
    return state / _FOLDER / workspace_key(workspace)


def made_folder_of(state: Path, workspace: str) -> Path:
    """Return the same folder, made if it is missing. Raise OSError."""
    above = folder_of(state, workspace)
    layers_folder(state)
    above.mkdir(mode=0o700, exist_ok=True)
    return above


class MadeAhead:
    """The folders of a transaction that were made before it is known whether the command runs as one.

    Attributes:
        layer: The layer, whose helper can be started.
    """

    def __init__(self, state: Path, workspace: str) -> None:
        """Make the folders. Raise OSError."""
        self._folder, self.layer, self._began = create(state, workspace)
        self._taken = False

    def take(self) -> tuple[TransactionFolder, ChangeLayer, int]:
        """Return what `create` returns, with the present time. The caller removes the folder. Raise OSError."""
        self._taken = True
        removed = self._folder.path / REMOVED
        os.chmod(removed, 0o700)
        return self._folder, self.layer, max(os.stat(removed).st_ctime_ns, self._began)

    def close(self) -> None:
        """Remove the folders unless they were taken."""
        if not self._taken:
            self._folder.remove()


def create(state: Path, workspace: str) -> tuple[TransactionFolder, ChangeLayer, int]:
    """Create a transaction. Return its folder, its layer and the time of the file system at which it begins, in
    nanoseconds: every change of the workspace until now has an older ctime. Raise OSError.
    """
    above = folder_of(state, workspace)
    above.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in range(100):  # `remove` of another process may delete the parent folder
        with contextlib.suppress(FileNotFoundError):
            above.mkdir(mode=0o700, exist_ok=True)
            with _listed(above) as handle:
                # The removal of the last transaction, after its changes were applied, changed this folder.
                before = os.fstat(handle).st_mtime_ns
                path = above / os.urandom(8).hex()
                path.mkdir(mode=0o700)
                locked = TransactionFolder(path, _locked(path))
            break
    else:
        raise FileNotFoundError(str(above))
    for name in (UPPER, WORK, REMOVED):
        (path / name).mkdir(mode=0o700)
    began = os.stat(path / REMOVED).st_ctime_ns
    while began <= before:  # the clock did not tick since then
        time.sleep(_TICK)
        os.chmod(path / REMOVED, 0o700)
        began = os.stat(path / REMOVED).st_ctime_ns
    layer = ChangeLayer(os.path.realpath(workspace), str(path / UPPER), str(path / WORK))
    try:
        begin(layer)
    except BaseException:
        locked.remove()
        raise
    return locked, layer, began


def abandoned(state: Path, workspace: str) -> Iterator[TransactionFolder]:
    """Yield the transactions of the workspace whose process ended before it removed them, each locked."""
    yield from abandoned_in(folder_of(state, workspace))


def abandoned_in(above: Path) -> Iterator[TransactionFolder]:
    """Yield the abandoned transactions in the folder `above`, each locked. The caller closes or removes them."""
    try:
        names = os.listdir(above)
    except OSError:
        return
    for name in names:
        try:
            with _listed(above):
                found = TransactionFolder(above / name, _locked(above / name))
        except OSError:  # in progress, or removed meanwhile
            continue
        yield found


@contextlib.contextmanager
def _listed(above: Path) -> Iterator[int]:
    """Hold the lock under which transactions are made and taken over, for the duration of the context."""
    handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _locked(path: Path) -> int:
    """Open and lock the folder of a transaction. Raise BlockingIOError if another process holds the lock."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle
