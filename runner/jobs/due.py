"""The jobs to start now, for the resident process, which asks every few seconds.

Without a job, one call costs one stat and imports nothing. With jobs, a call reads only the files that have changed.
"""

import os
import time
from pathlib import Path

_FOLDER = "jobs"
_AGAIN = 60.0  # seconds until a job is returned again, if its process has not handled its time
_SET_BACK = 60.0  # seconds that the clock may go back before the schedules are computed again
_ZONE = "/etc/localtime"

_Stamp = tuple[object, ...]


class JobWatch:
    """The jobs that are due, for one state folder. The schedules of unchanged files are not computed again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, float | None]] = {}  # id: stamps, and the time of the next start
        self._returned: dict[str, float] = {}
        self._latest = 0.0  # the clock at the latest call

    def at(self, state_folder: str | Path, now: float) -> list[str]:
        """Return the ids of the jobs whose process is to be started at the time `now`.

        The process decides again under a lock, so a job may be returned once too often, but never runs twice. A job
        whose file cannot be used is not returned; `agent jobs list` reports it.
        """
        folder = os.path.join(state_folder, _FOLDER)
        try:
            names = os.listdir(folder)
        except OSError:
            self._known.clear()
            return []
        if now < self._latest - _SET_BACK:
            self._known.clear()
        self._latest = now
        zone = _stamp(_ZONE)
        found = []
        for id in sorted(names):
            path = os.path.join(folder, id, "job.json")
            stamp = _stamp(path)
            if stamp is None or len(id) != 9 or id[:1] != "j":
                continue
            known = self._known.get(id)
            if known is None or known[0] != (stamp, zone) or (known[1] is not None and known[1] <= now):
                at = self._next(Path(state_folder), id, now)
                self._known[id] = known = ((stamp, zone), at)
            if known[1] is not None and known[1] <= now and self._may_return(id) and self._is_free(state_folder, id):
                self._returned[id] = time.monotonic()
                found.append(id)
        for gone in self._known.keys() - set(names):
            self._known.pop(gone, None)
            self._returned.pop(gone, None)
        return found

    def waits(self) -> bool:
        """Return True if the latest call found a job that starts at some time."""
        return any(at is not None for _, at in self._known.values())

    def _next(self, state: Path, id: str, now: float) -> float | None:
        """Return the time at which the job's process is to be started, or None if there is none."""
        from runner.jobs.due_plan import needs_handling, next_due  # only with a job
        from runner.jobs.store import JobStore
        from runner.problems import Stopped
        from runner.state.json_file import StateError

        try:
            stored, _ = JobStore(state).read(id)
            if stored is None or stored.progress.paused or stored.progress.ended:
                return None
            if needs_handling(stored, now):
                return now
            at = next_due(stored)
            return at if at is None else float(at)
        except (StateError, Stopped):
            return None  # `agent jobs list` reports it

    def _may_return(self, id: str) -> bool:
        before = self._returned.get(id)
        return before is None or time.monotonic() - before >= _AGAIN

    def _is_free(self, state_folder: str | Path, id: str) -> bool:
        """Return False while a run of the job is in progress."""
        import fcntl

        try:
            handle = os.open(
                os.path.join(state_folder, _FOLDER, id, "lock"), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_watched = JobWatch()


def due_jobs(state_folder: str | Path, now: float) -> list[str]:
    """Return the ids of the jobs to start at the time `now`, in seconds since 1970.

    Each is started as `agent jobs run ID --scheduled`.
    """
    return _watched.at(state_folder, now)


def jobs_wait() -> bool:
    """Return True if there was a job with a time to start when `due_jobs` was called last."""
    return _watched.waits()
