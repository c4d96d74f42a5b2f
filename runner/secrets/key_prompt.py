"""A key from a person or a pipe: never echoed, and never an argument, which every program of the machine can read."""

import os

from runner.problems import usage
from runner.secrets.secret import LONGEST, Secret, usable

_LINE = "pipe in one line, the key"


def typed_key(provider: str) -> Secret:
    """What a person types at the terminal, which shows nothing of it. What was typed before the question is dropped."""
    import getpass
    import warnings

    found: Secret | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # else it would go on, and show what is typed
        try:
            found = usable(getpass.getpass(f"API key for {provider} (it is not shown): "))
        except EOFError:
            pass
        except getpass.GetPassWarning:
            why, fix = "this terminal would show it", "pipe the key into standard input"
            raise usage("the key cannot be typed here", why, fix) from None
    if found is None:
        raise usage("no key was taken", "what was typed is empty, or is no key", "try again with the key alone")
    return found


def piped_key(*, whole: bool = False) -> Secret:
    """The first line of standard input; with `whole` nothing may follow it. Raises a usage error.

    Without `whole` nothing behind the line is read, so whoever writes it may keep the pipe open.
    """
    try:
        found = _first_line()
        more = whole and os.read(0, 1) != b""
    except OSError as error:
        why = f"standard input cannot be read: {(error.strerror or 'the system refused it').lower()}"
        raise usage("no key was taken", why, _LINE) from None
    if isinstance(found, str):
        raise usage("no key was taken", found, _LINE)
    if more:
        raise usage("no key was taken", "standard input holds more than one line", _LINE)
    return found


def _first_line() -> Secret | str:
    """The key in it, or why there is none. Byte by byte: what follows may be meant for somebody else."""
    line = bytearray()
    while len(line) <= LONGEST and (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    if not line.strip():
        return "standard input is empty, or begins with an empty line"
    return usable(line.decode("ascii", "replace")) or "its first line has blanks or other characters, or is too long"
