"""Opening of files and folders below a folder without following links.

THREAT T18: others may write to the workspace, and the runner has more rights than a command. Each step therefore opens
one name below a descriptor and follows no link (openat(2), O_NOFOLLOW); the kernel never resolves a whole path.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from sandbox.inside.regular_file import open_regular
from sandbox.workspace.opened_folder import opened_below

DEEPEST = 256  # nested folders: each level has an open descriptor

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: str) -> int:
    """Open the folder at the real path `path`. Raise OSError, also for a link."""
    return os.open(path, _FOLDER)


def open_folder(name: str, above: int) -> int:
    """Open the folder `name` in the open folder `above`. Raise OSError, also for a link."""
    return os.open(name, _FOLDER, dir_fd=above)


def open_file(name: str, above: int) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and status. Raise OSError, also for other kinds."""
    return open_regular(name, follow=False, dir_fd=above)


@contextlib.contextmanager
def opened_root(path: str) -> Iterator[int]:
    """Open the folder at the real path `path` for the duration of the context. Raise OSError, also for a link."""
    handle = open_root(path)
    try:
        yield handle
    finally:
        os.close(handle)


def folder(root: int, path: str) -> contextlib.AbstractContextManager[int]:
    """Open the folder at `path` below `root` (empty: `root` itself) for the duration of a context. Raise OSError if it
    does not exist or a link leads to it.
    """
    return opened_below(root, path.split("/") if path else (), _FOLDER)


def entered(
    name: str, above: int, refused: Callable[[OSError], None], opening: Callable[[str, int], int] = open_folder
) -> int | None:
    """Open the folder `name` for `walk`. Return None if it does not exist or, after `refused(error)`, cannot be opened.

    Raise OSError if this process has too many open files.
    """
    try:
        return opening(name, above)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        refused(error)
        return None


def walk(
    root: str | int,
    read: Callable[[int, str], Iterable[str]],
    enter: Callable[[str, int, str, int], int | None],
    leave: Callable[[int, str], None] = lambda handle, path: None,
    start: str = "",
) -> None:
    """Visit the folder at the real path `root` and the folders below it, with one descriptor for each level.

    `root` may be an open folder, which is closed at the end; `start` is its path below another root.

    `read(handle, path)` returns the names of the folders to enter. `enter(name, above, path, depth)` opens one of them,
    or returns None to leave it out. `leave(handle, path)` is called when all below a folder is done. `path` is relative
    to `root`, after `start`. Raise OSError if `root` cannot be opened, and any error of the three functions.
    """
    top = open_root(root) if isinstance(root, str) else root
    stack: list[tuple[int, str, Iterator[str]]] = [(top, start, iter(()))]
    try:
        stack[0] = (top, start, iter(read(top, start)))
        while stack:
            above, path, waiting = stack[-1]
            name = next(waiting, None)
            if name is None:
                leave(above, path)
                stack.pop()
                os.close(above)
                continue
            inner = f"{path}/{name}" if path else name
            handle = enter(name, above, inner, len(stack))
            if handle is not None:
                stack.append((handle, inner, iter(())))
                stack[-1] = (handle, inner, iter(read(handle, inner)))
    finally:
        for handle, *_ in stack:
            os.close(handle)


def status(root: int, path: str) -> os.stat_result | None:
    """Return the status of the file, folder or link at `path` below `root`, or None if it cannot be read."""
    above, name = split(path)
    try:
        with folder(root, above) as handle:
            return os.stat(name, dir_fd=handle, follow_symlinks=False)
    except OSError:
        return None


def change_mode(above: int, name: str, mode: int) -> bool:
    """Set the mode of a folder or file. Return False for a file with other hard links, which would all be changed.

    SAFETY: open(2), O_PATH | O_NOFOLLOW, and proc(5): the descriptor's own inode is changed, whatever the name refers
    to by then.
    """
    if not hasattr(os, "O_PATH"):  # not Linux
        os.chmod(name, mode, dir_fd=above, follow_symlinks=False)
        return True
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            return False
        os.chmod(f"/proc/self/fd/{handle}", mode)
        return True
    finally:
        os.close(handle)


def write_all(handle: int, data: bytes | bytearray) -> None:
    """Write all of `data`. Raise OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a path below a root."""
    above, _, name = path.rpartition("/")
    return above, name
