"""Copy of one folder into another, name by name. Links are not followed, and files that cannot be copied are recorded.

THREAT T18: the original may change while it is copied, and others may write to it. Each step opens one name below a
descriptor and follows no link.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

from runner.changes import safe_open
from runner.changes.file_state import SECRET, TOO_DEEP, Stamp, stamp
from runner.state import reflink
from runner.text.phrases import os_reason

_CHUNK = 1 << 20
_TRIES = 3  # attempts to copy a file that changes meanwhile


class Copying:
    """The state of a copy in progress. `secret(path)` returns True for a path below the original that is left out.

    Attributes:
        files: The number of copied files.
        bytes: The number of copied bytes.
        left_out: As in `workspace_copy.Copy`, like `torn` and `stamps`.
    """

    def __init__(self, secret: Callable[[str], bool] | None) -> None:
        self._secret = secret
        self._reflinks = True  # until the file system refuses one
        self._device = 0
        self._into: list[int] = []  # the open copies of the folders that are being copied, the innermost last
        self._root = os.geteuid() == 0
        self.files = self.bytes = 0
        self.left_out: list[tuple[str, str]] = []
        self.torn: list[str] = []
        self.stamps: dict[str, tuple[Stamp, Stamp]] = {}

    def folder(self, source: str, target: str) -> None:
        """Copy all of `source` into the empty folder `target`. Raise OSError if either cannot be used at all."""
        self._into = [safe_open.open_root(target)]
        try:
            safe_open.walk(source, self._entries, self._entered, self._finish)
        finally:
            for into in self._into:
                os.close(into)

    def _entered(self, name: str, above: int, path: str, depth: int) -> int | None:
        """Open a folder and its copy. Return None if the folder is left out, which is recorded."""
        inner = safe_open.entered(name, above, lambda error: self.left_out.append((path, os_reason(error))))
        if inner is None:
            return None
        why = TOO_DEEP if depth > safe_open.DEEPEST else ""
        if os.fstat(inner).st_dev != self._device:
            why = "another file system is mounted there"
        try:
            os.mkdir(name, 0o700, dir_fd=self._into[-1])
            if not why:
                self._into.append(safe_open.open_folder(name, self._into[-1]))
                return inner
        except BaseException:
            os.close(inner)
            raise
        self.left_out.append((path, why))
        os.close(inner)
        return None

    def _entries(self, above: int, path: str) -> list[str]:
        """Copy the files and links in one folder, and return the names of the folders in it."""
        folders: list[str] = []
        into = self._into[-1]
        if not path:
            self._device = os.fstat(above).st_dev
        try:
            names = os.listdir(above)
        except OSError as error:
            self.left_out.append((path or ".", os_reason(error)))
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
                    self.left_out.append((inner, _kind_reason(status.st_mode)))
            except _Unread as error:
                if not isinstance(error.error, FileNotFoundError):  # the file was removed meanwhile
                    self.left_out.append((inner, os_reason(error.error)))
        return folders

    def _link(self, name: str, above: int, into: int, path: str, status: os.stat_result) -> None:
        with _reading():
            target = os.readlink(name, dir_fd=above)
        os.symlink(target, name, dir_fd=into)
        if self._root:
            os.chown(name, status.st_uid, status.st_gid, dir_fd=into, follow_symlinks=False)
        os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=into, follow_symlinks=False)
        self.stamps[path] = stamp(status), stamp(os.stat(name, dir_fd=into, follow_symlinks=False))

    def _file(self, name: str, above: int, into: int, path: str) -> None:
        with _reading():
            source, status = safe_open.open_file(name, above)
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

    def _content(self, source: int, target: int, status: os.stat_result) -> tuple[int, bool]:
        """Copy the content of `source` to `target`. Return the number of bytes, and True if it is the expected size."""
        size = status.st_size
        os.ftruncate(target, 0)
        if size and self._reflinks:
            self._reflinks = reflink.shared(source, target)
            if self._reflinks:
                return os.fstat(target).st_size, True
        at = 0
        # The file may grow forever during the copy: at most `size` bytes are copied.
        for start, end in _parts(source, size, status.st_blocks * 512 < size):
            at = start
            os.lseek(source, start, os.SEEK_SET)
            os.lseek(target, start, os.SEEK_SET)
            while at < end:
                with _reading():
                    data = os.read(source, min(_CHUNK, end - at))
                if not data:
                    break
                safe_open.write_all(target, data)
                at += len(data)
        os.ftruncate(target, size)
        return size, os.fstat(source).st_size == size

    def _finish(self, above: int, _: str) -> None:
        """Set mode, owner and times of the copy of a folder after its content is complete, and close the copy."""
        into = self._into.pop()
        try:
            status = os.fstat(above)
            if self._root:
                os.fchown(into, status.st_uid, status.st_gid)
            os.fchmod(into, status.st_mode & 0o777)
            os.utime(into, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(into)


class _Unread(Exception):
    """An error of the original. An error of the copy is an OSError and ends the whole operation."""

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


def _parts(source: int, size: int, holes: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that contain data (lseek(2), SEEK_DATA): the whole file if it has no holes."""
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
            if error.errno == errno.ENXIO:  # the rest of the file is a hole
                return
            raise _Unread(error) from None
        if start < end:
            yield start, end


def _kind_reason(mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return "it is a socket"
    return "it is a pipe" if stat.S_ISFIFO(mode) else "it is a device"
