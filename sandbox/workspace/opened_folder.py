"""Access to a folder while others may replace a part of its path by a link.

The program has more rights than a command, so it follows no link that a command made (THREAT T18): a file is changed
through a descriptor of its folder, and the way to that folder is opened name by name. On Linux, openat2(2) does this in
one call (`sandbox/inside/syscalls.py`); other systems have no such call.
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator

_ENTER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened_folder(path: str) -> Iterator[int]:
    """Open the folder at the absolute `path` for access to the names in it (on Linux by O_PATH, see open(2)).

    Raises OSError if there is no such folder, or if a part of the path is a link.
    """
    root = os.open("/", _ENTER)
    try:
        with opened_below(root, filter(None, path.split("/")), _ENTER) as handle:
            yield handle
    finally:
        os.close(root)


@contextlib.contextmanager
def opened_below(root: int, names: Iterable[str], flags: int) -> Iterator[int]:
    """Open the folder to which `names` lead from the open folder `root`, each by open(2) with `flags`, which follow no
    link. Raises OSError, also for a name that is empty, `.` or `..`.
    """
    handle = os.dup(root)
    try:
        for name in names:
            if name in ("", ".", ".."):
                raise OSError(errno.EINVAL, "not a file name", name)
            inner = os.open(name, flags, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)
