"""The session files: private files `sessions/KEY/ID.jsonl` in the state folder, each written by one process at a
time."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.problems import Exit, option
from runner.sessions.entries import Unsound
from runner.sessions.tree import Tree
from runner.state.json_file import StateError
from runner.state.session_id import ID_RULE, is_session_id
from runner.state.workspace import workspace_key
from runner.text.phrases import os_reason

_NAME = re.compile(r"([0-9a-f]{16})\.jsonl")
_KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,39}-[0-9a-f]{16}")
_POINTER = "latest"
_AGENTS = "agents"
_LONGEST_HEAD = 64 << 10  # bytes of the first line of a file
_TASKS = ".tasks.json"
# SAFETY: open(2). No link is followed, and opening a pipe that another process put there does not wait.
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SessionError(ProblemError):
    """An error for a session that cannot be read, continued or removed. `problem` has the details."""


class JournalError(SessionError):
    """An error for a session that cannot be written. Unwritten lines are kept and written before the next line."""

    exit_code: ClassVar[int] = Exit.FAILED


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session on the disk. `written` is the time of its file's last change, in seconds since 1970."""

    id: str
    key: str
    written: float
    size: int


class SessionStore:
    """The sessions of one workspace. Their folder is created with the first session."""

    def __init__(self, state: Path, key: str, *, of_agents: bool = False) -> None:
        """With `of_agents`, the store has the files of sub-agents, which are in a folder below that of the sessions."""
        self._state = state
        self.key = key
        self.of_agents = of_agents

    @classmethod
    def of(cls, state: Path, workspace: str) -> "SessionStore":
        return cls(state, workspace_key(workspace))

    @classmethod
    def all(cls, state: Path, *, of_agents: bool = False) -> "list[SessionStore]":
        """Return the stores of all workspaces that have a folder in `state`, then, with `of_agents`, those of the
        sub-agents.
        """
        try:
            names = sorted(name for name in os.listdir(state / "sessions") if _KEY.fullmatch(name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        below = [cls(state, name, of_agents=True) for name in names if of_agents]
        return [*(cls(state, name) for name in names), *(each for each in below if each.folder.is_dir())]

    @property
    def folder(self) -> Path:
        return self._state.joinpath("sessions", *self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.key, _AGENTS) if self.of_agents else (self.key,)

    def path(self, id: str) -> Path:
        return self.folder / f"{id}.jsonl"

    def list(self) -> list[StoredSession]:
        """Return the sessions: first the one that was continued last, then the others by the time of their last change.

        Raise SessionError for a folder that cannot be used.
        """
        sessions = []
        try:
            with self._opened() as folder:
                for name in os.listdir(folder):
                    if match := _NAME.fullmatch(name):
                        with contextlib.suppress(FileNotFoundError):  # removed since the folder was listed
                            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
                            if stat.S_ISREG(seen.st_mode):
                                sessions.append(StoredSession(match[1], self.key, seen.st_mtime, seen.st_size))
        except FileNotFoundError:
            pass  # without a folder there are no sessions
        except OSError as error:
            path = error.filename or "the folder of the sessions"
            raise _unusable(f"`{path}`", _reason(error), "inspect it, then remove it") from None
        latest = self._latest()
        # A clock that was set back changes the order of the other sessions, never the session of `--continue`.
        return sorted(sessions, key=lambda each: (each.id == latest, each.written, each.id), reverse=True)

    def open(self, id: str) -> "SessionFile":
        """Open a session for writing, locked until closed. Raise SessionError, also if another process uses the
        session.
        """
        path = self.path(id)
        with _problems(path), self._opened() as folder, _opening(id, 0, folder) as handle:
            _checked(handle, path)
            _lock(handle, id)
            if not os.fstat(handle).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory")
        return SessionFile(handle, path)

    @contextlib.contextmanager
    def reading(self, id: str) -> Iterator[BinaryIO]:
        """Open a session's file for reading, also while another process writes it. Raise SessionError."""
        path = self.path(id)
        with _problems(path), self._opened() as folder:
            handle = os.open(f"{id}.jsonl", os.O_RDONLY | _SAFE, dir_fd=folder)
            with open(handle, "rb") as file:
                _checked(handle, path)
                yield file

    def create(self, id: str) -> "SessionFile":
        """Create a new, empty session, locked. Raise JournalError, or SessionError for a folder that cannot be used."""
        path = self.path(id)
        new = os.O_CREAT | os.O_EXCL
        with _problems(path, JournalError), self._opened(make=True) as folder, _opening(id, new, folder) as handle:
            _lock(handle, id)
            os.fsync(folder)
        return SessionFile(handle, path)

    def remove(self, id: str) -> None:
        """Delete the session. Raise SessionError, also if a process uses it."""
        with self.open(id), _problems(self.path(id)):
            self.unlink(id)

    def unlink(self, id: str) -> None:
        """Delete the files of a session, even if a process uses it. Raise OSError or SessionError."""
        with self._opened() as folder:
            os.unlink(f"{id}.jsonl", dir_fd=folder)
            for name in (f"{id}{_TASKS}", f"{id}{_TASKS}.lock"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def tasks_path(self, id: str) -> Path:
        """Return the path of the task list of a session."""
        return self.folder / f"{id}{_TASKS}"

    def prepare(self) -> None:
        """Create the folder of the sessions, and check it. Raise StateError."""
        try:
            with self._opened(make=True):
                pass
        except OSError as error:
            problem = Problem(f"`{self.folder}` cannot be used", os_reason(error), "check who owns the folder")
            raise StateError(problem) from None
        except SessionError as error:
            raise StateError(error.problem) from None

    def note_latest(self, id: str) -> None:
        """Make this session the one that `--continue` takes. Raise OSError or SessionError.

        A sub-agent's conversation is never continued.
        """
        if self.of_agents:
            return
        with self._opened() as folder:
            if self._latest() == id:
                return
            name = f".{_POINTER}-{os.urandom(8).hex()}"
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=folder)
            try:
                os.write(handle, f"{id}\n".encode())
                os.rename(name, _POINTER, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(name, dir_fd=folder)
                raise
            finally:
                os.close(handle)

    def _latest(self) -> str | None:
        """Return the content of the pointer file, or None. `list` only compares it with names of existing sessions."""
        try:
            with self._opened() as folder:
                handle = os.open(_POINTER, os.O_RDONLY | _SAFE, dir_fd=folder)
                with open(handle, "rb") as file:
                    return file.read(64).decode("ascii", "replace").strip()
        except OSError:
            return None  # the pointer file does not exist: the times of the files decide

    @contextlib.contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """Open the folder of the sessions. Raise OSError, also for a link, or SessionError if others may write to the
        folder or to `sessions`.
        """
        handle = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        path = self._state
        try:
            for name in ("sessions", *self._names):
                path /= name
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=handle)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=handle)
                os.close(handle)
                handle = inner
                _checked(handle, path)
            yield handle
        finally:
            os.close(handle)


class SessionFile:
    """The file of one session, open for appending and locked, so that no other process writes it."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle = handle
        self.path = path
        self.size = os.fstat(handle).st_size

    def append(self, line: bytes, *, durable: bool) -> None:
        """Write one line at once; with `durable`, the line is on the disk when this returns. Raise OSError; then
        nothing of the line stays.

        SAFETY: write(2) on a full disk writes a part, which ftruncate(2) removes. If the process is killed in between,
        the part is a last line without newline, which every reader drops. fsync(2) may be the first call to report a
        full disk or quota; the line is then removed, too, since the caller writes it again.
        """
        if not os.fstat(self._handle).st_nlink:
            raise OSError(errno.ENOENT, "another process removed the session file, so new messages would be lost")
        done = os.write(self._handle, line)
        if done < len(line):
            os.ftruncate(self._handle, self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if durable:
            try:
                os.fdatasync(self._handle)
            except OSError:
                os.ftruncate(self._handle, self.size)
                raise
        self.size += len(line)

    def cut(self, size: int) -> None:
        """Truncate the file to `size` bytes, which removes an incomplete line. Raise OSError."""
        os.ftruncate(self._handle, size)
        self.size = size

    def reader(self) -> BinaryIO:
        """Return the file opened for reading from its beginning. Closing the result does not close this object."""
        return open(os.dup(self._handle), "rb")

    def close(self) -> None:
        """Close the file and release its lock."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> "SessionFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def choose(stores: list[SessionStore], words: str) -> tuple[SessionStore, str]:
    """Return the only session whose ID begins with `words`. Raise SessionError."""
    if not is_session_id(words):
        raise SessionError(Problem(f"`{words[:40]}` is not a session ID", ID_RULE, "see `agent sessions list`"))
    matches = [(store, each.id) for store in stores for each in store.list() if each.id.startswith(words)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        why = f"among them {', '.join(id for _, id in matches[:5])}"
        raise SessionError(Problem(f"`{words}` matches {len(matches)} sessions", why, "write more of the ID"))
    fix = "see `agent sessions list --all`"
    raise SessionError(Problem(f"there is no session `{words}`", "no ID begins with it", fix))


def _checked(handle: int, path: Path) -> None:
    """Raise SessionError for a file or folder that others could have written. Make it private if others may read it."""
    seen = os.fstat(handle)
    folder = stat.S_ISDIR(seen.st_mode)
    if not folder and not stat.S_ISREG(seen.st_mode):
        raise _unusable(f"`{path}`", "it is not a regular file", "inspect it, then remove it")
    if seen.st_uid != os.geteuid():
        raise _unusable(f"`{path}`", f"it belongs to another user (uid {seen.st_uid})", "remove it or change its owner")
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        fix = f"check its content, then run `chmod {'700' if folder else '600'} {path}`"
        raise _unusable(f"`{path}`", "other users may write to it, so its content cannot be trusted", fix)
    if stat.S_IMODE(seen.st_mode) & 0o077:
        os.fchmod(handle, 0o700 if folder else 0o600)


@contextlib.contextmanager
def _opening(id: str, flags: int, folder: int) -> Iterator[int]:
    """Open a session's file for appending. The file stays open, unless the context raises an exception."""
    handle = os.open(f"{id}.jsonl", os.O_RDWR | os.O_APPEND | _SAFE | flags, 0o600, dir_fd=folder)
    try:
        yield handle
    except BaseException:
        os.close(handle)
        raise


def _lock(handle: int, id: str) -> None:
    """Lock the file or raise SessionError.

    SAFETY: flock(2). The lock belongs to the open file and ends with the process, however the process ends, so that it
    never becomes stale.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(handle)
        who = f"process {holder} uses it" if holder else "another process uses it"
        fix = f"end that process, or continue a copy of the session: `{option('--fork', id[:8], command='agent')}`"
        raise SessionError(Problem(f"the session {id[:8]} is in use", who, fix)) from None


def _holder(handle: int) -> int | None:
    """Return the process that holds the lock, or None if the kernel does not report one (proc_locks(5))."""
    seen = os.fstat(handle)
    place = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            for row in file:
                words = row.split()
                if len(words) > 5 and words[1] == "FLOCK" and words[5] == place and int(words[4]) > 0:
                    return int(words[4])
    except (OSError, ValueError):
        return None
    return None


@contextlib.contextmanager
def _problems(path: Path, kind: type[SessionError] = SessionError) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        fix = "see `agent sessions list`"
        raise kind(Problem(f"there is no session `{path.stem}`", "it was removed, or was never stored", fix)) from None
    except OSError as error:
        if kind is JournalError:
            raise kind(written_problem(error, path)) from None
        if error.errno in _OF_WRITING:  # the caller prints in this context, and only writing has these errors
            raise
        fix = "inspect it, then remove it"
        raise kind(Problem(f"the session `{path}` cannot be read", _reason(error), fix)) from None


_OF_WRITING = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def written_problem(error: OSError, path: Path) -> Problem:
    """Return the problem of a session that could not be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    first, unstored = "make room" if full else "check the file", option("--no-session")
    fix = f"{first}, or start with `{unstored}`, which stores no session"
    return Problem("the session could not be written, so the run was stopped", f"`{path}`: {_reason(error)}", fix)


def _unusable(what: str, why: str, fix: str) -> SessionError:
    return SessionError(Problem(f"{what} cannot be used for sessions", why, fix))


def _reason(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a symbolic link or a file is in the way"
    return os_reason(error)


def _remove_agents(store: SessionStore, runs: set[str]) -> None:
    """Delete the files of the sub-agents of these runs. Raise SessionError, also if a process uses one."""
    for each in store.list():
        with store.reading(each.id) as file:
            head = file.readline(_LONGEST_HEAD)
        if any(f'"main":"{run}"'.encode() in head for run in runs):
            store.remove(each.id)


def remove_session(state: Path, store: SessionStore, id: str) -> None:
    """Delete the file and the outputs of the session's own runs. Raise SessionError, also if a process uses the
    session.
    """
    with store.reading(id) as file:
        try:
            tree = Tree(file)
            names = [str(entry.body["audit"]) for _, entry in tree.entries(range(len(tree)), ("run",))]
            # The first own run has the session's name. Runs before it are a fork's copy of another session's. Each
            # name has 16 hex digits, so it names no other path.
            runs = list(dict.fromkeys(names[names.index(id) :])) if id in names else [id]
        except Unsound:  # damaged: its first run, which has the name of the session, is what is known
            runs = [id]
    store.remove(id)
    if not store.of_agents:
        _remove_agents(SessionStore(state, store.key, of_agents=True), {id, *runs})
    for name in runs:
        outputs = state / "outputs" / name
        if outputs.is_dir() and not outputs.is_symlink():
            shutil.rmtree(outputs)  # SAFETY: openat(2), unlinkat(2): it follows no link inside
