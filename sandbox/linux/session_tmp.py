"""A session's own /tmp: one locked folder on the host, removed at the end or, after a kill, by a later session."""

import contextlib
import fcntl
import os
import sys

from sandbox.backend import SandboxUnavailable
from sandbox.inside import safe_rmtree

_PREFIX = "ringfence-tmp-"
DECOYS = "ringfence-decoys-"  # of the folders with the decoys of a canary; no other folder begins like this
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """The folder of a session that commands see as /tmp. `path` contains no link. Files stay between commands; `remove`
    deletes all.
    """

    def __init__(self) -> None:
        self.path, self._lock = held(_PREFIX)
        self._bare: tuple[str, int] | None = None

    @property
    def usual(self) -> bool:
        """Return True if a folder that is made now would be beside this one."""
        return os.path.dirname(self.path) == os.path.realpath(temporary_folder())

    def empty(self) -> dict[str, str]:
        """Return the paths of an empty `file` and an empty `dir` that cannot be opened, to mount over secrets. Commands
        do not see these paths.
        """
        if self._bare is None:
            self._bare = held(_PREFIX)
            os.close(os.open(os.path.join(self._bare[0], "file"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0))
            os.mkdir(os.path.join(self._bare[0], "dir"), 0)
        return {kind: os.path.join(self._bare[0], kind) for kind in ("file", "dir")}

    def make(self, target: str, *, folder: bool) -> None:
        """Create a mount point at `target` (below /tmp). Raises SandboxUnavailable; see `make_point`."""
        make_point(self._lock, "/tmp", target, folder=folder)

    def remove(self) -> None:
        """Remove the folder, and those of killed sessions. Call this after every helper of the session has ended."""
        for path, lock in ((self.path, self._lock), *((self._bare,) if self._bare else ())):
            safe_rmtree.remove(path)
            os.close(lock)
        _sweep(os.path.dirname(self.path))


def temporary_folder() -> str:
    """Return the folder for temporary files, the one that `tempfile` chooses.

    `tempfile` loads `random`, `shutil` and the modules for compressed files, which takes 3 ms. It is only needed if the
    first of its candidates is not usable, or if the process has loaded it anyway.
    """
    if "tempfile" not in sys.modules:
        named = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
        if os.path.isabs(named) and os.path.isdir(named) and os.access(named, os.W_OK | os.X_OK):
            return named
    from tempfile import gettempdir

    return gettempdir()


def _new_folder(prefix: str, where: str) -> str:
    """Return the real path of a new private folder in `where`. Raises OSError."""
    while True:
        path = os.path.join(where, f"{prefix}{os.urandom(6).hex()}")
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        return os.path.realpath(path)


def held(prefix: str, where: str | None = None) -> tuple[str, int]:
    """Return a new folder by its real name, and its lock, which the caller closes.

    It is made in `where`, by default in the folder for temporary files. After a kill, a later session removes it there.
    """
    while True:
        path = _new_folder(prefix, where or temporary_folder())
        # The lock is held until this process ends (flock(2)): an unlocked folder belongs to a killed session. Before
        # the folder is locked, another session that ends may remove it; then the loop makes another folder.
        try:
            lock = os.open(path, FOLDER)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.lstat(path)):
                return path, lock
        except (BlockingIOError, FileNotFoundError):
            pass  # another session has locked the folder to remove it, or has just removed it
        os.close(lock)


def make_point(top: int, root: str, target: str, *, folder: bool) -> None:
    """Create a mount point at `target` below `root`. `top` is the open folder that commands see as `root`.

    Raises SandboxUnavailable if a file of a command blocks the path. THREAT T18: the runner is not confined, so no step
    may follow a link that a command left.
    """
    *parents, last = target.removeprefix(root + "/").split("/")
    handle = os.dup(top)
    try:
        for part in (*parents, last) if folder else parents:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=handle)
            inner = os.open(part, FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        if not folder:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(last, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=handle))
    except OSError as error:
        raise SandboxUnavailable.of(
            f"`{target}` cannot be made visible to the command",
            f"a file that an earlier command left in {root} blocks the path ({(error.strerror or '').lower()})",
            f"start a new session, or name a path outside of {root}",
        ) from None
    finally:
        os.close(handle)


def _sweep(where: str) -> None:
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        folders = [entry.path for entry in entries if entry.name.startswith((_PREFIX, DECOYS))]
        for path in folders:
            # Folders of other users and locked folders of other sessions are skipped.
            with contextlib.suppress(OSError), safe_rmtree.closing(os.open(path, FOLDER)) as handle:
                if os.fstat(handle).st_uid == os.geteuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    safe_rmtree.remove(path)
