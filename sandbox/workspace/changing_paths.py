"""Access to paths while a command runs that may replace a part of them by a link.

The program has more rights than a command, so it follows no link that a command made (THREAT T18): a file is changed
through a descriptor of its folder, and the way to that folder is opened name by name.
"""

import contextlib
import errno
import os
from collections.abc import Iterator

_TRIES = 100
_ENTER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def real_path(path: str) -> str:
    """Return `path` with all links resolved, as `os.path.realpath` does. Raises ValueError for a path with a NUL.

    `os.path.realpath` looks at a name and then reads the link there. It raises OSError if another process replaced the
    link meanwhile, so it is called again. Raises OSError if that happens _TRIES times.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            return os.path.realpath(path)
    return os.path.realpath(path)


@contextlib.contextmanager
def opened_folder(path: str) -> Iterator[int]:
    """Open the folder at the absolute `path` for access to the names in it (on Linux by O_PATH, see open(2)).

    Raises OSError if there is no such folder, or if a part of the path is a link.
    """
    handle = os.open("/", _ENTER)
    try:
        for name in path.split("/"):
            if name == "..":
                raise OSError(errno.EINVAL, "not a name of a folder", path)
            if name:
                inner = os.open(name, _ENTER, dir_fd=handle)
                os.close(handle)
                handle = inner
        yield handle
    finally:
        os.close(handle)
