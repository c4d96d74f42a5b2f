"""Ways to what lies below a folder that are never led elsewhere.

THREAT T18: the workspace belongs to whoever writes there, and we have more rights than a command. So every step goes by
one name, below a descriptor, and follows no link (openat(2), O_NOFOLLOW); the kernel is never given a whole path.
"""

import contextlib
import os
from collections.abc import Iterator

from sandbox.inside.regular_file import open_regular

DEEPEST = 256  # folders below each other: one descriptor each

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: str) -> int:
    """The folder at `path`, which is real: a link there is refused. Raises OSError."""
    return os.open(path, _FOLDER)


def open_folder(name: str, above: int) -> int:
    """One folder in another. Raises OSError, also for a link."""
    return os.open(name, _FOLDER, dir_fd=above)


def open_file(name: str, above: int) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and state. Raises OSError, also for a link."""
    return open_regular(name, follow=False, dir_fd=above)


@contextlib.contextmanager
def folder(root: int, path: str) -> Iterator[int]:
    """The folder at `path` below `root` (empty: `root` itself). Raises OSError when it is not there, or led to."""
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


def split(path: str) -> tuple[str, str]:
    """The folder and the name of a path below a root."""
    above, _, name = path.rpartition("/")
    return above, name
