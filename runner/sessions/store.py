"""Where sessions lie: `sessions/KEY/ID.jsonl` below the state folder, private, one process at a time in each file."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.problems import Exit
from runner.state.workspace_key import workspace_key

_NAME = re.compile(r"([0-9a-f]{16})\.jsonl")
_KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,39}-[0-9a-f]{16}")
_POINTER = "latest"
# SAFETY: open(2). No link is followed, and nothing waits: a pipe may have been put in our way.
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SessionError(ProblemError):
    """A session cannot be read, gone on with or removed. `problem` says which, why, and what to do."""


class JournalError(SessionError):
    """A session cannot be written. What was not written is kept, and tried again before the next line."""

    exit_code: ClassVar[int] = Exit.FAILED


@dataclass(frozen=True, slots=True)
class Found:
    """A session on the disk. `written` is when its file was last written, in seconds since 1970."""

    id: str
    key: str
    written: float
    size: int


class Store:
    """The sessions of one workspace. Makes its folder when the first one is written."""

    def __init__(self, state: Path, key: str) -> None:
        self._state = state
        self.key = key

    @classmethod
    def of(cls, state: Path, workspace: str) -> "Store":
        return cls(state, workspace_key(workspace))

    @classmethod
    def all(cls, state: Path) -> "list[Store]":
        """Those of every workspace that has a folder here."""
        return [cls(state, name) for name in sorted(_listing(state / "sessions")) if _KEY.fullmatch(name)]

    @property
    def folder(self) -> Path:
        return self._state / "sessions" / self.key

    def path(self, id: str) -> Path:
        return self.folder / f"{id}.jsonl"

    def list(self) -> list[Found]:
        """What there is: the one that was gone on with last is first, the others by when they were written."""
        found = []
        with _no_folder(), self._opened() as folder:
            for name in os.listdir(folder):
                if match := _NAME.fullmatch(name):
                    with contextlib.suppress(FileNotFoundError):  # removed a moment ago
                        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISREG(seen.st_mode):
                            found.append(Found(match[1], self.key, seen.st_mtime, seen.st_size))
        latest = self._latest()
        # A clock that went back changes the order of the others, never which one `--continue` takes.
        return sorted(found, key=lambda each: (each.id == latest, each.written, each.id), reverse=True)

    def open(self, id: str) -> "SessionFile":
        """The session, to go on with: locked until closed. Raises SessionError, also while another process has it."""
        path = self.path(id)
        with _speaking(path), self._opened() as folder:
            handle = os.open(f"{id}.jsonl", os.O_RDWR | os.O_APPEND | _SAFE, dir_fd=folder)
            try:
                _checked(handle, path)
                _lock(handle, path, id)
                if not os.fstat(handle).st_nlink:
                    raise FileNotFoundError(errno.ENOENT, "no such file or directory")
            except BaseException:
                os.close(handle)
                raise
        return SessionFile(handle, path)

    @contextlib.contextmanager
    def reading(self, id: str) -> Iterator[BinaryIO]:
        """The session's file to look at, also while another process writes it. Raises SessionError."""
        path = self.path(id)
        with _speaking(path), self._opened() as folder:
            handle = os.open(f"{id}.jsonl", os.O_RDONLY | _SAFE, dir_fd=folder)
            with open(handle, "rb") as file:
                _checked(handle, path)
                yield file

    def create(self, id: str) -> "SessionFile":
        """A new, empty session, locked. Raises JournalError."""
        path = self.path(id)
        with _speaking(path, JournalError), self._opened(make=True) as folder:
            new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | _SAFE
            handle = os.open(f"{id}.jsonl", new, 0o600, dir_fd=folder)
            try:
                _lock(handle, path, id)
                os.fsync(folder)
            except BaseException:
                os.close(handle)
                raise
        return SessionFile(handle, path)

    def remove(self, id: str) -> None:
        """Delete the session. Raises SessionError, also while a process has it."""
        with self.open(id), _speaking(self.path(id)):
            self.unlink(id)

    def unlink(self, id: str) -> None:
        """Take away a session that was never begun. Raises OSError."""
        with self._opened() as folder:
            os.unlink(f"{id}.jsonl", dir_fd=folder)

    def note_latest(self, id: str) -> None:
        """From now on `--continue` takes this one. Raises OSError."""
        with self._opened() as folder:
            if self._latest() == id:
                return
            name = f".{_POINTER}-{secrets.token_hex(8)}"
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
        """Only ever one of the names that `list` found: what the file says is not believed further."""
        try:
            with self._opened() as folder:
                handle = os.open(_POINTER, os.O_RDONLY | _SAFE, dir_fd=folder)
                with open(handle, "rb") as file:
                    return file.read(64).decode("ascii", "replace").strip()
        except OSError:
            return None  # nothing was noted, or it was put away: the times of the files decide

    @contextlib.contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """Our folder, by way of folders that nobody else can write to and no link. Raises OSError, SessionError."""
        handle = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        path = self._state
        try:
            for name in ("sessions", self.key):
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
    """One session's file, open for appending and locked: as long as this is open, no other process writes it."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle = handle
        self.path = path
        self.size = os.fstat(handle).st_size

    def append(self, line: bytes, *, durable: bool) -> None:
        """One line in one write; on the disk when this returns, with `durable`. Raises OSError: nothing of it stays.

        SAFETY: write(2) on a full disk writes a part, ftruncate(2) takes it back. Killed in between, the part is a last
        line without newline, which every reader drops. fsync(2) may be the first to tell of a full disk or quota; the
        line is taken back then, too, since whoever is refused writes it again.
        """
        if not os.fstat(self._handle).st_nlink:
            raise OSError(errno.ENOENT, "somebody removed it, so what is said now would be lost")
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
        """Drop what stands behind `size` bytes: a line that was never finished. Raises OSError."""
        os.ftruncate(self._handle, size)
        self.size = size

    def reader(self) -> BinaryIO:
        """The same file, to read it from its beginning. Closing it leaves this open."""
        return open(os.dup(self._handle), "rb")

    def close(self) -> None:
        """Lets the lock go."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> "SessionFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def choose(stores: list[Store], words: str) -> tuple[Store, str]:
    """The one session whose id begins with `words`. Raises SessionError."""
    if not re.fullmatch(r"[0-9a-f]{1,16}", words):
        why = "an id is made of the digits 0-9 and a-f, 16 at most"
        raise SessionError(Problem(f"`{words[:40]}` is no session", why, "see `agent sessions list`"))
    found = [(store, each.id) for store in stores for each in store.list() if each.id.startswith(words)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(id for _, id in found[:5])
        raise SessionError(
            Problem(f"`{words}` begins {len(found)} sessions", f"among them {names}", "write more of it")
        )
    raise SessionError(
        Problem(f"there is no session `{words}`", "none begins with that", "see `agent sessions list --all`")
    )


def _listing(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextlib.contextmanager
def _no_folder() -> Iterator[None]:
    """A folder that was never made holds no sessions. One that cannot be used is an error."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as error:
        path = error.filename or "the folder of the sessions"
        raise _unusable(f"`{path}`", _said(error), "look at what it is, then remove it") from None


def _checked(handle: int, path: Path) -> None:
    """Refuse what somebody else could have written; what others may read becomes private."""
    seen = os.fstat(handle)
    folder = stat.S_ISDIR(seen.st_mode)
    if not folder and not stat.S_ISREG(seen.st_mode):
        raise _unusable(f"`{path}`", "it is not a plain file", "look at what it is, then remove it")
    if seen.st_uid != os.geteuid():
        raise _unusable(f"`{path}`", f"it belongs to another user (uid {seen.st_uid})", "take it over, or remove it")
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        fix = f"look at what it holds, then run `chmod {'700' if folder else '600'} {path}`"
        raise _unusable(f"`{path}`", "others may write to it, so its content cannot be trusted", fix)
    if stat.S_IMODE(seen.st_mode) & 0o077:
        os.fchmod(handle, 0o700 if folder else 0o600)


def _lock(handle: int, path: Path, id: str) -> None:
    """SAFETY: flock(2). It belongs to the open file and is gone with the process, however that ends: never stale."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(handle)
        who = f"process {holder} has it" if holder else "another process has it"
        fix = f"end that one, or go on with a copy of it: `agent --fork {id[:8]}`"
        raise SessionError(Problem(f"the session {id[:8]} is in use", who, fix)) from None


def _holder(handle: int) -> int | None:
    """The process that holds the lock, where the kernel tells it (proc_locks(5)) and we can see it."""
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
def _speaking(path: Path, kind: type[SessionError] = SessionError) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        fix = "see `agent sessions list`"
        raise kind(Problem(f"there is no session `{path.stem}`", "it was removed, or never kept here", fix)) from None
    except OSError as error:
        if kind is JournalError:
            raise kind(written_problem(error, path)) from None
        if error.errno in _OF_WRITING:  # whoever reads it prints it meanwhile; no read fails like that
            raise
        raise kind(_unread(error, path)) from None


_OF_WRITING = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def written_problem(error: OSError, path: Path) -> Problem:
    """Why a session could not be kept."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    fix = f"{'make room' if full else 'look at what is there'}, or start with `--no-session`, which keeps none"
    return Problem("the session could not be kept, so nothing more was done", f"`{path}`: {_said(error)}", fix)


def _unread(error: OSError, path: Path) -> Problem:
    return Problem(f"the session `{path}` cannot be read", _said(error), "look at what it is, then remove it")


def _unusable(what: str, why: str, fix: str) -> SessionError:
    return SessionError(Problem(f"{what} cannot be used for sessions", why, fix))


def _said(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a symbolic link or a file is in the way"
    return (error.strerror or "unknown reason").lower()
