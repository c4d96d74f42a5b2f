"""Who is at the snapshots of a workspace: one look at a time, and actions that run meanwhile. By flock(2), which a
process that dies gives back."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from runner.changes.undo.errors import unusable

PATIENCE = 15.0  # seconds for another `agent` in this workspace to finish its look


class Turns:
    """Our place among all who use `folder`. Raises OSError when its files cannot be opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = opened(folder / "lock")
        self._active = opened(folder / "active")

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._active)

    def cleared(self) -> bool:
        """Whether somebody removed all of it since it was opened: what is noted now would go nowhere."""
        try:
            return os.stat(self.folder / "lock").st_ino != os.fstat(self._lock).st_ino
        except OSError:
            return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else looks or brings back meanwhile. Raises UndoError when somebody else does not come to an end."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    why = f"another `agent` has been looking at the files of this workspace for {PATIENCE:g} s"
                    raise unusable(self.folder, why, "wait for it, or end it") from None
                time.sleep(0.02)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def join(self) -> bool:
        """Say that an action runs from now on, until `leave` or death; answers whether others run as well."""
        try:
            fcntl.flock(self._active, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        fcntl.flock(self._active, fcntl.LOCK_SH)
        return not alone

    def alone(self) -> bool:
        """Whether no action runs. For as long as the lock of `locked` is held."""
        try:
            fcntl.flock(self._active, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._active, fcntl.LOCK_UN)
        return True

    def leave(self) -> None:
        fcntl.flock(self._active, fcntl.LOCK_UN)


def opened(path: Path) -> int:
    """A private file of ours, made when it is missing; never through a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
