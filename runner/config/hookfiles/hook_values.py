"""Checks of the values of a hook, for `[[hook]]` entries and for the files of other clients."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from runner.config.validators import Fault
from runner.text.http_address import is_loopback
from runner.text.sanitize import one_line

_LONGEST_MATCHER = 1000  # characters
_LONGEST = 16_384  # characters of the words of one hook: more than a user would read before an approval


def command_fault(words: Iterable[str]) -> Fault | None:
    """Return why these words cannot be the command or question of a hook; None if they can be."""
    words = tuple(words)
    if any("\0" in each for each in words):
        return "it contains the character NUL", "remove the character"
    if sum(map(len, words)) > _LONGEST:
        return f"it is longer than {_LONGEST:,} characters", "put the commands into a script"
    return None


def hook_url_fault(text: str) -> Fault | None:
    """Return why a text cannot be the address of an HTTP hook; None if it can be."""
    try:
        parts = urlsplit(text)
        login, host, _ = parts.username is not None or parts.password is not None, parts.hostname, parts.port
    except ValueError:
        return "the address is not a URL", 'write it like "https://hooks.example.com/agent"'
    if login:
        return "the address contains a user name or a password", "write the credential as a header with `$VARIABLE`"
    if parts.scheme not in ("https", "http") or not host:
        return "the address does not start with `https://` and a host", 'write it like "https://hooks.example.com/x"'
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in text):
        return "the address contains a blank, a backslash or an unprintable character", "remove the character"
    if parts.scheme == "http" and not is_loopback(host):
        return f"`http://{host}` would carry every event unencrypted", "use `https://`"
    return None


def matcher_fault(matcher: str) -> Fault | None:
    """Return why a text is neither a list of names nor a regular expression; None if it is one."""
    if len(matcher) > _LONGEST_MATCHER:
        return f"the matcher is longer than {_LONGEST_MATCHER:,} characters", "use fewer names"
    if re.fullmatch(r"[A-Za-z0-9_\-,| *]*", matcher):
        return None
    try:
        re.compile(matcher)
    except (re.error, RecursionError, OverflowError):
        shown = one_line(matcher, 80)
        return f"the matcher `{shown}` is not a regular expression", "write names, as in `edit|write`"
    return None
