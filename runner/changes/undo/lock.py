"""Locks on the snapshots of a workspace: one scan at a time, and a shared lock for running actions.

The locks use flock(2), so they end with their process. The error of the undo store is defined here as well, so that
catching it does not load SQLite.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from policy.model.deadline import deadline
from policy.model.verdict import Problem, ProblemError

PATIENCE = deadline(15.0)  # seconds to wait until another `agent` in this workspace has finished its scan


class UndoError(ProblemError):
    """An error for stored files that cannot be used, or for an undo that is not possible. `problem` has the details."""


def unusable(folder: Path, why: str, fix: str = "check who owns it and whether the disk is full") -> UndoError:
    """Return the error for a store in `folder` that cannot be used."""
    return UndoError(Problem(f"the stored files in `{folder}` cannot be used", why or "the system refused it", fix))


class Turns:
    """The locks of this process on `folder`. The constructor raises OSError if the lock files cannot be opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = opened(folder / "lock")
        self._active = opened(folder / "active")

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._active)

    def was_removed(self) -> bool:
        """Return True if the folder was removed since it was opened: then new steps would be lost."""
        try:
            return os.stat(self.folder / "lock").st_ino != os.fstat(self._lock).st_ino
        except OSError:
            return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for scans and restores. Raise UndoError if another process keeps it for too long."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    why = f"another `agent` has been reading the files of this workspace for {PATIENCE:g} s"
                    raise unusable(self.folder, why, "wait for it, or end it") from None
                time.sleep(0.02)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def join(self) -> None:
        """Mark an action as running until `leave` or the end of the process."""
        fcntl.flock(self._active, fcntl.LOCK_SH)

    def alone(self) -> bool:
        """Return True if no action runs. The answer holds while the caller holds the lock of `locked`."""
        try:
            fcntl.flock(self._active, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._active, fcntl.LOCK_UN)
        return True

    def refuse_running(self, what: str) -> None:
        """Raise UndoError with the message `what` if an action runs."""
        if not self.alone():
            why = "an action of an agent is running in this workspace, and changes files right now"
            raise UndoError(Problem(what, why, "wait until it is done, or stop it with Ctrl-C"))

    def leave(self) -> None:
        """End the mark of `join`."""
        fcntl.flock(self._active, fcntl.LOCK_UN)


def opened(path: Path) -> int:
    """Open a private file, creating it if it is missing. A link is not followed."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
