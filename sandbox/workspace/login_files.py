"""A check by content whether a file of settings holds a login."""

import os
import stat

from policy.model.login_files import MOST, holds_login, sometimes


def login_at(path: str) -> bool:
    """Return True if the file at `path` is one of settings and holds a login, or cannot be read."""
    name = path.rpartition("/")[2]
    if not sometimes(name):
        return False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    with open(handle, "rb") as file:
        try:
            return stat.S_ISREG(os.fstat(handle).st_mode) and holds_login(name, file.read(MOST + 1))
        except OSError:
            return True
