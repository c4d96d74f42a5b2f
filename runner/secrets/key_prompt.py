"""Input of a key from a terminal or a pipe. A key is never echoed, and never an argument, which other programs can
read.
"""

import os

from runner.problems import usage
from runner.secrets.secret import LONGEST, Secret, usable

_LINE = "pipe in one line, the key"


def typed_key(provider: str) -> Secret:
    """Return the key that the user types at the terminal without echo. Earlier input is discarded."""
    import getpass
    import warnings

    key: Secret | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # else it would go on, and show what is typed
        try:
            key = usable(getpass.getpass(f"API key for {provider} (it is not shown): "))
        except EOFError:
            pass
        except getpass.GetPassWarning:
            why, fix = "this terminal would show it", "pipe the key into standard input"
            raise usage("the key cannot be typed here", why, fix) from None
    if key is None:
        raise usage("no key was taken", "what was typed is empty, or is no key", "try again with the key alone")
    return key


def piped_key(*, whole: bool = False) -> Secret:
    """Return the first line of standard input; with `whole` no other line may follow. Raise a usage error.

    Without `whole`, no input after the line is read, so the writer may keep the pipe open. Single bytes are read,
    because later input may be for another reader.
    """
    line = bytearray()
    try:
        while len(line) <= LONGEST and (byte := os.read(0, 1)) not in (b"", b"\n"):
            line += byte
        more = whole and os.read(0, 1) != b""
    except OSError as error:
        why = f"standard input cannot be read: {(error.strerror or 'the system refused it').lower()}"
        raise usage("no key was taken", why, _LINE) from None
    key = usable(line.decode("ascii", "replace")) if line.strip() else None
    if key is not None and not more:
        return key
    why = "standard input holds more than one line"
    if not line.strip():
        why = "standard input is empty, or begins with an empty line"
    elif key is None:
        why = "its first line has blanks or other characters, or is too long"
    raise usage("no key was taken", why, _LINE)
