"""The files of a workspace and its copy, their contents, and the deadline of a comparison. Links are not followed
(THREAT T18).
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.secret_paths import folded
from runner.changes import safe_open
from runner.changes.review.patch_format import FILE, LINK, PROGRAM, Side
from runner.text.phrases import os_reason
from sandbox.inside import safe_rmtree
from sandbox.inside.regular_file import read_descriptor

GIT = ".git"
LEAST = deadline(5.0)  # seconds for a comparison if the time of the run is already over
OVERTIME = "the time limit was reached before it was compared"
LARGEST = 100 << 20  # bytes of a file that is put into a patch


class Deadline:
    """A moment that ends a computation. `at` is on the clock of `time.monotonic`, or None for no time limit."""

    __slots__ = ("_at", "asked")

    def __init__(self, at: float | None = None) -> None:
        self._at = at
        self.asked = False

    @classmethod
    def of_run(cls, began: float, seconds: float | None) -> "Deadline":
        """Return the deadline of a comparison after a run that began at `began` and may take `seconds`: the end of its
        time, and at least LEAST seconds from now. `seconds` is None for no limit."""
        return cls(None if seconds is None else max(began + seconds, time.monotonic() + LEAST))

    def ask(self) -> None:
        """Let the computation end now. It is safe to call this from a signal handler."""
        self.asked = True

    def over(self) -> bool:
        """Return True if the computation has to end."""
        return self.asked or (self._at is not None and time.monotonic() >= self._at)


def never() -> bool:
    """Return False. Used as the deadline of a computation that has none."""
    return False


class UnreadableFile(Exception):
    """An error for a content that cannot be read. The text states the reason."""


@dataclass(frozen=True, slots=True)
class TreeScan:
    """The result of a scan, by path below the top.

    Attributes:
        files: The files and links.
        closed: The folders that could not be scanned, with the reason.
        empty: The empty folders.
    """

    files: dict[str, os.stat_result]
    closed: dict[str, str]
    empty: list[str]

    def unseen(self, path: str) -> bool:
        """Return True if `path` may lie in a folder that was not scanned."""
        if not self.closed:
            return False
        if "" in self.closed:
            return True
        parts = path.split("/")
        return any("/".join(parts[:end]) in self.closed for end in range(1, len(parts)))


def like_git(name: str) -> bool:
    """Return True if some system treats this name as the name of Git's own folder.

    Such a name has another case, invisible characters, the form of a short name, or characters at the end that Windows
    removes (git-config(1), `core.protectNTFS`).
    """
    plain = folded(name).partition(":")[0].partition("\\")[0].rstrip(". ")
    return plain in (GIT, "git~1")


def scan_tree(top: str, over: Callable[[], bool] = never) -> TreeScan:
    """Scan everything below `top` except Git's own folders. Raise OSError if `top` itself cannot be read.

    Folders that were not scanned before `over()` became true are in `closed` with the reason OVERTIME.
    """
    result = TreeScan({}, {}, [])

    def enter(name: str, above: int, path: str, depth: int) -> int | None:
        def refused(error: OSError) -> None:
            result.closed[path] = os_reason(error)

        if depth > safe_open.DEEPEST or over():
            result.closed[path] = "it is too deep in folders" if depth > safe_open.DEEPEST else OVERTIME
            return None
        return safe_open.entered(name, above, refused, _opened)

    safe_open.walk(top, lambda handle, path: _listed(handle, path, result, over), enter)
    return result


def _opened(name: str, above: int) -> int:
    """Open a folder. Permissions are restored first if this user owns the folder and they deny access."""
    try:
        return safe_open.open_folder(name, above)
    except PermissionError:
        safe_rmtree.regain(f"/proc/self/fd/{above}/{name}")
        return safe_open.open_folder(name, above)


def _listed(handle: int, path: str, result: TreeScan, over: Callable[[], bool]) -> list[str]:
    """Add the files of one folder to `result`, and return the names of the folders in it."""
    folders: list[str] = []
    count = 0
    for name in os.listdir(handle):
        if over():
            result.closed[path] = OVERTIME
            return []
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            count += 1
            if name == GIT:
                continue
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
            else:
                result.files[f"{path}/{name}" if path else name] = status
    if not count and path:
        result.empty.append(path)
    return folders


def side(top: int, path: str) -> Side | None:
    """Return the file or link at `path` below the open folder `top`, or None if there is none.

    Raise UnreadableFile for a file that cannot be read, and for a pipe, socket or device.
    """
    above, name = safe_open.split(path)
    try:
        with safe_open.folder(top, above) as folder:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return Side(LINK, os.fsencode(os.readlink(name, dir_fd=folder)))
            if stat.S_ISDIR(status.st_mode):
                return None
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile("it is not a file, folder or link")
            handle = _file(name, folder)
            try:
                return Side(PROGRAM if status.st_mode & stat.S_IXUSR else FILE, _read(handle))
            finally:
                os.close(handle)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise UnreadableFile(os_reason(error)) from None


def content(top: int, path: str) -> bytes | None:
    """Return the content of a file, or the target of a link, at `path` below the open folder `top`. Return None if
    there is none, or if it cannot be read.
    """
    try:
        found = side(top, path)
    except UnreadableFile:
        return None
    return found.data if found is not None else None


def _file(name: str, folder: int) -> int:
    try:
        return safe_open.open_file(name, folder)[0]
    except PermissionError:  # perhaps a file of this user without the right to read it
        path = f"/proc/self/fd/{folder}/{name}"
        if os.lstat(path).st_uid != os.geteuid() or not hasattr(os, "O_PATH"):
            raise
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            mode = stat.S_IMODE(os.fstat(handle).st_mode)
            os.chmod(f"/proc/self/fd/{handle}", mode | stat.S_IRUSR)
            try:
                return safe_open.open_file(name, folder)[0]
            finally:
                os.chmod(f"/proc/self/fd/{handle}", mode)
        finally:
            os.close(handle)


def _read(handle: int) -> bytes:
    large = os.fstat(handle).st_size > LARGEST
    data = b"" if large else read_descriptor(handle, LARGEST + 1)
    if large or len(data) > LARGEST:
        raise UnreadableFile(f"it is larger than {LARGEST >> 20} MiB")
    return data
