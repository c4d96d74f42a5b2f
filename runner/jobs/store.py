"""The files of the scheduled jobs: one folder for each in `jobs` in the state folder, private like all of it.

jobs/ID/job.json    the job and its progress, replaced as a whole under a lock
jobs/ID/lock        locked by the process of a run
jobs/ID/runs/       one summary for each of the last runs
"""

import contextlib
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from policy.model.deadline import deadline
from policy.model.frozen import dataclass, replace
from policy.model.verdict import Problem
from runner.jobs.due_plan import lost_run, reported
from runner.jobs.job import MOST_JOBS, Job, JobProgress, StoredJob, is_job_id, stored_from, stored_json
from runner.jobs.run_summary import RunSummary, lost_summary, summary_from, summary_json
from runner.problems import Stopped, usage
from runner.state.json_file import StateError, StateFile
from runner.text.phrases import nearest, os_reason
from sandbox.inside import safe_rmtree
from sandbox.inside.regular_file import read_whole

FOLDER = "jobs"
FILE = "job.json"
_KEPT = 20  # summaries of one job
_LARGEST = 1 << 20  # bytes of a summary
_VERSION = 1
_PATIENCE = deadline(0.05)  # seconds that another process may hold the lock
_LOOK = 0.01  # seconds between two attempts to get it
# SAFETY: open(2). No link is followed, and a pipe does not block.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A job in a list. `stored` is None if its file cannot be used, and `fault` then says why."""

    id: str
    stored: StoredJob | None
    fault: str = ""


class JobStore:
    """The jobs in the state folder `state`, which `paths.state_dir` has checked. Methods raise StateError."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER

    def ids(self) -> list[str]:
        """Return the ids of the jobs that have a folder."""
        try:
            return sorted(name for name in os.listdir(self._folder) if is_job_id(name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unusable(os_reason(error)) from None

    def entries(self) -> list[JobEntry]:
        """Return all jobs, the oldest first. One that cannot be used is listed with the reason."""
        found = []
        for id in self.ids():
            try:
                stored, notices = self.read(id)
                fault = "" if stored is not None else (notices[0] if notices else "its file is missing or was damaged")
            except StateError as error:
                stored, fault = None, f"{error.problem.what}: {error.problem.why}"
            found.append(JobEntry(id, stored, fault))
        return sorted(found, key=lambda each: (each.stored.job.created if each.stored else 0, each.id))

    def read(self, id: str) -> tuple[StoredJob | None, tuple[str, ...]]:
        """Return a job, or None if it does not exist or its file is damaged, and notices about the file."""
        held = self._file(id).read()
        return held.value, held.notices

    def add(self, job: Job) -> Job:
        """Store a new job and return it with its id. Raise a usage error if there are too many, or its name is
        taken.
        """
        self._prepare()
        with self._locked_folder():
            entries = self.entries()
            if len(entries) >= MOST_JOBS:
                why = f"there may be {MOST_JOBS} jobs"
                raise usage("the job was not stored", why, "remove one: `agent jobs remove ID`")
            if job.name and any(each.stored and each.stored.job.name == job.name for each in entries):
                fix = "choose another name, or remove that job"
                raise usage(f"there is a job `{job.name}` already", "a name is that of one job", fix)
            job = replace(job, id=self._fresh())
            stored = StoredJob(job, JobProgress(float(job.created)))
            self._file(job.id).change(lambda before: (stored, None))
        return job

    def change(self, id: str, edit: Callable[[StoredJob], StoredJob]) -> StoredJob:
        """Replace a job by the result of `edit` and return it. Raise a usage error if it does not exist."""

        def change(before: StoredJob | None) -> tuple[StoredJob | None, StoredJob]:
            if before is None:
                raise _no_job(id, ())
            after = edit(before)
            return after, after

        if not os.path.lexists(self._folder / id / FILE):
            raise _no_job(id, ())
        return self._file(id).change(change)[0]

    def remove(self, id: str) -> None:
        """Remove a job with its summaries. Raise a usage error while it runs."""
        with self.running_lock(id) as held:
            if not held:
                why, fix = "its run would lose its summary", "wait for its end, or end the process"
                raise usage(f"the job {id} is running", why, fix)
            safe_rmtree.remove(str(self._folder / id))
        if os.path.lexists(self._folder / id):
            why, fix = "a file in it cannot be removed", "check who owns it"
            raise StateError(Problem(f"the folder `{self._folder / id}` was not removed", why, fix))

    def find(self, words: str) -> JobEntry:
        """Return the job with this id, beginning of an id, or name. Raise a usage error."""
        entries = self.entries()
        for each in entries:
            if each.id == words or (each.stored is not None and each.stored.job.name == words):
                return each
        begins = [each for each in entries if len(words) >= 3 and each.id.startswith(words)]
        if len(begins) == 1:
            return begins[0]
        if begins:
            why = f"{', '.join(each.id for each in begins)} begin with it"
            raise usage(f"`{words[:60]}` is not one job", why, "write more of the id")
        raise _no_job(words, [name for each in entries for name in (each.id, _name_of(each)) if name])

    @contextlib.contextmanager
    def running_lock(self, id: str) -> Iterator[bool]:
        """Hold the lock of the job's runs, if no other process does, and yield whether it is held.

        INVARIANT: two runs of a job never overlap, because each has this lock.
        """
        path = self._folder / id / "lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
        except (FileNotFoundError, NotADirectoryError):
            raise _no_job(id, ()) from None
        except OSError as error:
            raise self._unusable(f"`{path}` cannot be opened: {os_reason(error)}") from None
        try:
            yield _locked(handle)
        finally:
            os.close(handle)  # also releases the lock, flock(2)

    def is_running(self, id: str) -> bool:
        """Return True if a process has the lock of the job's runs."""
        with self.running_lock(id) as held:
            return not held

    # ---- summaries

    def settle(self, id: str) -> StoredJob | None:
        """Return a job after writing the summary of a run that ended without a result. A running job is returned as
        it is.
        """
        stored, _ = self.read(id)
        if stored is None or stored.progress.running is None:
            return stored
        with self.running_lock(id) as held:
            return self.settle_held(id) if held else stored

    def settle_held(self, id: str) -> StoredJob | None:
        """Do what `settle` does while the caller holds the lock of the job's runs."""
        stored, _ = self.read(id)
        if stored is None or stored.progress.running is None:
            return stored
        lost = lost_summary(stored)
        if not any(each.started == lost.started for each in self.summaries(id)):
            self.write_summary(id, lost)
        return self.change(id, lambda before: _reported(lost_run(before)))

    def write_summary(self, id: str, summary: RunSummary) -> None:
        """Store the summary of a run, and remove those of the oldest runs if there are too many."""
        folder = self._folder / id / "runs"
        name = f"{int(summary.started * 1000):015d}.json"
        fresh = folder / f".{name}.{os.getpid()}.new"
        data = json.dumps(summary_json(summary), indent=1).encode()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
            with open(handle, "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(handle)
            os.rename(fresh, folder / name)
            for old in sorted(each for each in os.listdir(folder) if each.endswith(".json"))[:-_KEPT]:
                os.unlink(folder / old)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise self._unusable(f"a summary was not written: {os_reason(error)}") from None

    def summaries(self, id: str) -> list[RunSummary]:
        """Return the summaries of the last runs, the latest first. Files that no run wrote are left out."""
        folder = self._folder / id / "runs"
        try:
            names = sorted((each for each in os.listdir(folder) if each.endswith(".json")), reverse=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unusable(os_reason(error)) from None
        found = []
        for name in names[:_KEPT]:
            try:
                found.append(summary_from(json.loads(read_whole(str(folder / name), _LARGEST, follow=False))))
            except (OSError, ValueError, TypeError):
                continue  # changed by hand: the record has the same facts
        return found

    # ---- parts

    def _file(self, id: str) -> "StateFile[StoredJob | None]":
        def parse(content: dict[str, object], version: int) -> StoredJob | None:
            stored = stored_from(content, version)
            if stored.job.id != id:
                raise ValueError("it is the file of another job")
            return stored

        def dump(stored: StoredJob | None) -> dict[str, object]:
            assert stored is not None, "a change never stores an empty job"
            return stored_json(stored)

        return StateFile(self._folder / id / FILE, f"the job {id}", _VERSION, lambda: None, parse, dump)

    def _prepare(self) -> None:
        """Create the folder of the jobs, or check the existing one."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            found = os.lstat(self._folder)
        except OSError as error:
            raise self._unusable(os_reason(error)) from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise self._unusable("it is not a folder that only this user may write to")

    def _fresh(self) -> str:
        for _ in range(20):
            id = f"j{secrets.token_hex(4)}"
            try:
                (self._folder / id).mkdir(mode=0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise self._unusable(os_reason(error)) from None
            return id
        raise self._unusable("no free id was found")

    @contextlib.contextmanager
    def _locked_folder(self) -> Iterator[None]:
        try:
            handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
        except OSError as error:
            raise self._unusable(os_reason(error)) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _unusable(self, why: str) -> StateError:
        return StateError(Problem(f"the jobs in `{self._folder}` cannot be used", why, "check who owns the folder"))


def _locked(handle: int) -> bool:
    """Lock the file if no run holds its lock. A process that only looks at the lock holds it for a moment."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK)


def _reported(stored: StoredJob) -> StoredJob:
    return StoredJob(stored.job, reported(stored.progress))


def _name_of(entry: JobEntry) -> str:
    return entry.stored.job.name if entry.stored is not None else ""


def _no_job(words: str, known: "list[str] | tuple[()]") -> Stopped:
    why = "no job has this id or name" if known else "there is no such job"
    return usage(f"there is no job `{words[:60]}`", why, nearest(words, known) or "`agent jobs list` shows them")
