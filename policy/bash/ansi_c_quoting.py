"""ANSI-C quoting `$'..'`: one table of escapes. Escapes that depend on the locale or on the version of bash are
refused.
"""

import re

from policy.bash.scanner import Cursor

# fmt: off
_SINGLE = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}
# fmt: on

_ESCAPE = re.compile(
    r"\\(?:(?P<single>[abeEfnrtv\\'\"?])|(?P<octal>[0-7]{1,3})|c(?P<control>[A-Za-z])"
    r"|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<short>[0-9A-Fa-f]{1,4})|U(?P<long>[0-9A-Fa-f]{1,8}))"
)


def ansi_c_quoted(reader: Cursor) -> str:
    """Step over the `$'..'` at the cursor, and return its text."""
    text, start = reader.text, reader.pos
    reader.pos += 2
    pieces: list[str] = []
    while (char := reader.char()) != "'":
        at = reader.pos
        if not char:
            raise reader.refusal("a single quote that is never closed", start)
        if char != "\\":
            pieces.append(char)
            reader.pos += 1
            continue
        found = _ESCAPE.match(text, at, reader.end)
        decoded = _decoded(found) if found else None
        if found is None or decoded is None or text.startswith("{", found.end(), reader.end):
            raise reader.refusal("an escape in `$'..'` that is not the same everywhere", at, at + 2)
        pieces.append(decoded)
        reader.pos = found.end()
    reader.pos += 1
    return "".join(pieces)


def _decoded(found: re.Match[str]) -> str | None:
    """Return the character that an escape stands for, or None if that depends on the locale or the version of bash."""
    kind, digits = found.lastgroup, found[found.lastgroup or 0]
    if kind == "single":
        return _SINGLE[digits]
    code = ord(digits.upper()) & 0x1F if kind == "control" else int(digits, 8 if kind == "octal" else 16)
    # NUL cuts the word short, 1 and 127 are bash's own marks inside words, and beyond ASCII the locale decides.
    return chr(code) if 1 < code < 127 else None
