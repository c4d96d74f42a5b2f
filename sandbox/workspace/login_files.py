"""A check by content whether a file of settings holds a login."""

import os

from policy.model.secret_names import MOST, holds_login, sometimes
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor


def login_at(path: str) -> bool:
    """Return True if the file at `path` is one of settings and holds a login, or cannot be read."""
    name = path.rpartition("/")[2]
    if not sometimes(name):
        return False
    try:
        handle, _ = open_regular(path, follow=True)
        try:
            return holds_login(name, read_descriptor(handle, MOST + 1))
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError, NotRegularError, ValueError):
        return False
    except OSError:
        return True
