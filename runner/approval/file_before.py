"""The text of a file before it is overwritten, shown to the user with the question and never to the model."""

from policy.model.action import Action, EditFile, WriteFile
from sandbox.inside.regular_file import read_whole

_MOST = 1 << 20  # bytes; of more nobody reads a diff


def text_before(action: Action) -> str | None:
    """Return the text of the file now, or None if it does not exist, is not plain text, or is larger than 1 MB."""
    if not isinstance(action, WriteFile | EditFile):
        return None
    try:
        return read_whole(action.path, _MOST, follow=True).decode()
    except (OSError, ValueError):  # UnicodeDecodeError is a ValueError
        return None
