"""The text of a file before it is overwritten, shown to the user with the question and never to the model."""

import os
import stat

from policy.model.action import Action, EditFile, WriteFile

_MOST = 1 << 20  # bytes; of more nobody reads a diff


def text_before(action: Action) -> str | None:
    """Return the text of the file now, or None if it does not exist, is not plain text, or is larger than 1 MB."""
    if not isinstance(action, WriteFile | EditFile):
        return None
    try:
        file = os.open(action.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST:
            return None
        with os.fdopen(file, "rb", closefd=False) as stream:
            data = stream.read(_MOST + 1)
        return data.decode() if len(data) <= _MOST else None
    except (OSError, ValueError):  # UnicodeDecodeError is a ValueError
        return None
    finally:
        os.close(file)
