"""Access to a folder while a command runs that may replace a part of its path by a link.

The program has more rights than a command, so it follows no link that a command made (THREAT T18): a file is changed
through a descriptor of its folder, and the way to that folder is opened name by name.
"""

import contextlib
import errno
import os
from collections.abc import Iterator

_ENTER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
