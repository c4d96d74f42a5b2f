"""A copy of a workspace that shares nothing with it: what is written to one is never seen in the other.

Contents are shared by reflink where the file system can do that, and copied elsewhere; hard links would let an in-place
write reach the original. No program runs: Git's hooks and filters are files like others.

THREAT T18: the workspace may change while it is copied, and belongs to whoever writes there. Every step goes by one
name, below a descriptor, and follows no link.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import field

from policy.record import dataclass
from policy.verdict import Problem
from runner import reflink
from runner.review import strays
from runner.undo import below

_CHUNK = 1 << 20
_TRIES = 3  # of a file that changes while it is read
_EVERY = 1000  # files between two words of progress
SECRET = "it is a secret"  # noqa: S105  # words for the user
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))

Stamp = tuple[int, int, int, int, int]  # device, inode, size, mtime and ctime in nanoseconds
Progress = Callable[[int, int], None]


class CopyError(Exception):
    """The workspace cannot be copied. `problem` says why; nothing is left behind."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Copy:
    """`path`: the copy, a folder of the same name as the original, in a folder of its own that is ours alone.

    `cloned`: files whose content is shared by reflink. `left_out`: paths of the original that are not in the copy, each
    with why, in words; `torn`: files that changed while they were copied. `stamps`: of each file and link in the
    copy, by its path below it, what the original and what the copy was when it was made; `folders`: the paths of the
    others. `whole`: the last change of the copy by us (nanoseconds, by the clock of its file system).
    """

    original: str
    path: str
    files: int
    bytes: int
    cloned: int
    left_out: tuple[tuple[str, str], ...]
    torn: tuple[str, ...]
    stamps: dict[str, tuple[Stamp, Stamp]] = field(repr=False)
    folders: frozenset[str] = field(repr=False)
    whole: int

    def remove(self) -> None:
        """Take it away, whatever modes it has by now. What cannot be removed stays; nothing is raised."""
        strays.drop(os.path.dirname(self.path))

    def keep(self) -> None:
        """Leave it for somebody to look at."""
        strays.keep(os.path.dirname(self.path))


def place() -> str:
    """Where copies go unless somebody says otherwise: a folder that may hold much and outlives no machine's patience.

    `/tmp` is memory on many systems, `/var/tmp` is not (file-hierarchy(7)); `TMPDIR` outranks both.
    """
    told = os.environ.get("TMPDIR", "")
    if told.startswith("/"):
        return os.path.realpath(told)
    return "/var/tmp" if os.path.isdir("/var/tmp") else os.path.realpath(tempfile.gettempdir())  # noqa: S108  # a folder of our own is made in it


def copied(
    workspace: str,
    where: str | None = None,
    progress: Progress | None = None,
    secret: Callable[[str], bool] | None = None,
) -> Copy:
    """Copy the folder `workspace`, a real path, to a new folder in `where` (default: `place()`).

    Modes, times, links and holes are kept, and who owns it where we may say so. Left out, and named: sockets, pipes and
    devices, what we may not read, other file systems mounted inside, and paths below it that are `secret`: no command
    would see them anyway. `progress(files, bytes)` is called now and then. Raises CopyError; then nothing is left.
    """
    where = where or place()
    work = _Work(progress, secret)
    try:
        if (os.path.realpath(where) + "/").startswith(workspace.rstrip("/") + "/"):
            raise OSError("it lies in the workspace itself")
        base = strays.folder(where)
    except OSError as error:
        fix = "set TMPDIR to a folder that you may write to"
        raise CopyError(Problem(f"no copy can be made in `{where}`", _words(error), fix)) from None
    path = f"{base}/{os.path.basename(workspace.rstrip('/')) or 'root'}"
    try:
        os.mkdir(path, 0o700)
        work.folder(workspace, path)
    except OSError as error:
        strays.drop(base)
        fix = (
            "make room there, or set TMPDIR to a folder on another disk" if error.errno in _FULL else "check the folder"
        )
        why = f"after {work.files:,} files and {work.bytes:,} bytes: {_words(error)}"
        raise CopyError(Problem(f"`{workspace}` cannot be copied to `{base}`", why, fix)) from None
    except BaseException:
        strays.drop(base)
        raise
    return Copy(
        workspace,
        path,
        work.files,
        work.bytes,
        work.cloned,
        tuple(work.left_out),
        tuple(work.torn),
        work.stamps,
        frozenset(work.folders),
        max((made[4] for _, made in work.stamps.values()), default=0),
    )


class _Work:
    """What was done so far."""

    def __init__(self, progress: Progress | None, secret: Callable[[str], bool] | None) -> None:
        self._secret = secret
        self._progress = progress
        self._reflinks = True  # until the file system says otherwise
        self._device = 0
        self._root = os.geteuid() == 0
        self.files = self.bytes = self.cloned = 0
        self.left_out: list[tuple[str, str]] = []
        self.torn: list[str] = []
        self.stamps: dict[str, tuple[Stamp, Stamp]] = {}
        self.folders: list[str] = []

    def folder(self, source: str, target: str) -> None:
        """All of `source` into the empty folder `target`. Raises OSError when either cannot be used at all."""
        stack: list[tuple[int, int, str, Iterator[str]]] = []
        try:
            above = below.open_root(source)
            stack.append((above, below.open_root(target), "", iter(())))
            self._device = os.fstat(above).st_dev
            stack[-1] = (*stack[-1][:3], iter(self._entries(above, stack[-1][1], "")))
            while stack:
                above, into, path, waiting = stack[-1]
                name = next(waiting, None)
                if name is None:
                    stack.pop()
                    self._finish(above, into, path)
                    continue
                inner = f"{path}/{name}" if path else name
                opened = self._entered(name, above, into, inner, len(stack))
                if opened is not None:
                    stack.append((*opened, inner, iter(())))
                    stack[-1] = (*stack[-1][:3], iter(self._entries(*opened, inner)))
        finally:
            for above, into, *_ in stack:
                os.close(above)
                os.close(into)

    def _entered(self, name: str, above: int, into: int, path: str, depth: int) -> tuple[int, int] | None:
        """Both folders, open, when this one is to be copied; None when it is left out, which is noted."""
        try:
            inner = below.open_folder(name, above)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            if error.errno != errno.ENOENT:
                self.left_out.append((path, _words(error)))
            return None
        why = ""
        if os.fstat(inner).st_dev != self._device:
            why = "another file system is mounted there"
        elif depth > below.DEEPEST:
            why = "it lies too deep"
        try:
            os.mkdir(name, 0o700, dir_fd=into)
            if why:
                self.left_out.append((path, why))
                os.close(inner)
                return None
            return inner, below.open_folder(name, into)
        except BaseException:
            os.close(inner)
            raise

    def _entries(self, above: int, into: int, path: str) -> list[str]:
        """Copy what is in one folder, but for the folders in it: their names are answered."""
        folders: list[str] = []
        try:
            names = os.listdir(above)
        except OSError as error:
            self.left_out.append((path or ".", _words(error)))
            return folders
        for name in names:
            inner = f"{path}/{name}" if path else name
            try:
                with _reading():
                    status = os.stat(name, dir_fd=above, follow_symlinks=False)
                if self._secret is not None and self._secret(inner):
                    self.left_out.append((inner, SECRET))
                elif stat.S_ISDIR(status.st_mode):
                    folders.append(name)
                elif stat.S_ISREG(status.st_mode):
                    self._file(name, above, into, inner)
                elif stat.S_ISLNK(status.st_mode):
                    self._link(name, above, into, inner, status)
                else:
                    self.left_out.append((inner, _strange(status.st_mode)))
            except _Unread as error:
                if not isinstance(error.error, FileNotFoundError):  # it went meanwhile
                    self.left_out.append((inner, _words(error.error)))
        return folders

    def _link(self, name: str, above: int, into: int, path: str, status: os.stat_result) -> None:
        with _reading():
            target = os.readlink(name, dir_fd=above)
        os.symlink(target, name, dir_fd=into)
        self._owned(status, name, into)
        os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=into, follow_symlinks=False)
        self.stamps[path] = stamp(status), stamp(os.stat(name, dir_fd=into, follow_symlinks=False))

    def _file(self, name: str, above: int, into: int, path: str) -> None:
        with _reading():
            source, status = below.open_file(name, above)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(name, flags, 0o600, dir_fd=into)
            try:
                for _ in range(_TRIES):
                    size, whole = self._content(source, target, status)
                    before, status = status, os.fstat(source)
                    if whole and stamp(before) == stamp(status):
                        break
                else:
                    self.torn.append(path)
                if self._root:
                    os.fchown(target, status.st_uid, status.st_gid)
                os.fchmod(target, status.st_mode & 0o777)  # never setuid
                os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
                self.stamps[path] = stamp(status), stamp(os.fstat(target))
            finally:
                os.close(target)
        finally:
            os.close(source)
        self.files += 1
        self.bytes += size
        if self._progress is not None and self.files % _EVERY == 0:
            self._progress(self.files, self.bytes)

    def _content(self, source: int, target: int, status: os.stat_result) -> tuple[int, bool]:
        """Make `target` what `source` is; answers the bytes, and whether these are as many as there should be."""
        size = status.st_size
        os.ftruncate(target, 0)
        if size and self._reflinks:
            self._reflinks = reflink.shared(source, target)
            if self._reflinks:
                self.cloned += 1
                return os.fstat(target).st_size, True
        at = 0
        # It may grow while we read, for ever: no more than was there is taken.
        for start, end in _parts(source, size, status.st_blocks * 512 < size):
            at = start
            os.lseek(source, start, os.SEEK_SET)
            os.lseek(target, start, os.SEEK_SET)
            while at < end:
                with _reading():
                    data = os.read(source, min(_CHUNK, end - at))
                if not data:
                    break
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(target, rest) :]
                at += len(data)
        os.ftruncate(target, size)
        return size, os.fstat(source).st_size == size

    def _finish(self, above: int, into: int, path: str) -> None:
        """Mode, owner and times, after everything in it is there. Closes both."""
        try:
            status = os.fstat(above)
            if self._root:
                os.fchown(into, status.st_uid, status.st_gid)
            os.fchmod(into, status.st_mode & 0o777)
            os.utime(into, ns=(status.st_atime_ns, status.st_mtime_ns))
            self.folders.append(path)
        finally:
            os.close(above)
            os.close(into)

    def _owned(self, status: os.stat_result, name: str, into: int) -> None:
        if self._root:
            os.chown(name, status.st_uid, status.st_gid, dir_fd=into, follow_symlinks=False)


class _Unread(Exception):
    """The original refused it; what the copy refuses is an OSError and ends everything."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise _Unread(error) from None


def stamp(status: os.stat_result) -> Stamp:
    """Equal while nobody changed it: ctime is the kernel's alone."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _parts(source: int, size: int, holes: bool) -> Iterator[tuple[int, int]]:
    """Where there is something in a file (lseek(2), SEEK_DATA): of one without holes, all of it."""
    if not holes or not hasattr(os, "SEEK_DATA"):
        if size:
            yield 0, size
        return
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
            end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise _Unread(error) from None
        if start < end:
            yield start, end


def _strange(mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return "it is a socket"
    return "it is a pipe" if stat.S_ISFIFO(mode) else "it is a device"


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
