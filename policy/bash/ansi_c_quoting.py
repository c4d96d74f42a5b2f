"""ANSI-C quoting `$'..'`: one table of escapes. Escapes that depend on the locale or on the version of bash are
refused.
"""

import re

# fmt: off
_SINGLE = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}
# fmt: on

ESCAPE = re.compile(
    r"\\(?:(?P<single>[abeEfnrtv\\'\"?])"
    r"|(?P<octal>[0-7]{1,3})"
    r"|x(?P<hex>[0-9A-Fa-f]{1,2})"
    r"|u(?P<short>[0-9A-Fa-f]{1,4})"
    r"|U(?P<long>[0-9A-Fa-f]{1,8})"
    r"|c(?P<control>[A-Za-z]))"
)


def decode(found: re.Match[str]) -> str | None:
    """Return the character that an ESCAPE stands for, or None if that depends on the locale or the version of bash."""
    kind, digits = found.lastgroup, found[found.lastgroup or 0]
    match kind:
        case "single":
            return _SINGLE[digits]
        case "octal":
            code = int(digits, 8)
        case "control":
            code = ord(digits.upper()) & 0x1F
        case _:
            code = int(digits, 16)
    # NUL cuts the word short, 1 and 127 are bash's own marks inside words, and beyond ASCII the locale decides.
    return chr(code) if 1 < code < 127 else None
