"""Opening of files and folders below a folder without following links.

THREAT T18: others may write to the workspace, and the runner has more rights than a command. Each step therefore opens
one name below a descriptor and follows no link (openat(2), O_NOFOLLOW); the kernel never resolves a whole path.
"""

import contextlib
import os
from collections.abc import Iterator

from sandbox.inside.regular_file import open_regular

DEEPEST = 256  # folders below each other: one descriptor each

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: str) -> int:
    """Open the folder at the real path `path`. Raise OSError, also for a link."""
    return os.open(path, _FOLDER)


def open_folder(name: str, above: int) -> int:
    """Open the folder `name` in the open folder `above`. Raise OSError, also for a link."""
    return os.open(name, _FOLDER, dir_fd=above)


def open_file(name: str, above: int) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and status. Raise OSError, also for anything else."""
    return open_regular(name, follow=False, dir_fd=above)


@contextlib.contextmanager
def opened_root(path: str) -> Iterator[int]:
    """Open the folder at the real path `path` for the duration of the context. Raise OSError, also for a link."""
    handle = open_root(path)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def folder(root: int, path: str) -> Iterator[int]:
    """Open the folder at `path` below `root` (empty: `root` itself). Raise OSError if it does not exist or a link leads
    to it.
    """
    handle = os.dup(root)
    try:
        for name in path.split("/") if path else ():
            if name in ("", ".", ".."):
                raise OSError("no name of a file")
            inner = open_folder(name, handle)
            os.close(handle)
            handle = inner
        yield handle
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
