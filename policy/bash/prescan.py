"""Conditions for the whole text before it is parsed: size, characters, names that change the grammar, and forms that
other shells read differently: in `sh -c TEXT` the same words may be other commands, files and values.
"""

import re

from policy.bash.ast import Opaque
from policy.model.abstract_word import SourceSpan

MOST_CHARACTERS = 16 * 1024

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

# Setting one of these makes bash read or translate the rest of the script differently. They are looked for as
# plain text, wherever they stand: `export`, `read`, `declare` and `printf -v` can all set them.
_SWITCHING_NAMES = re.compile(r"POSIXLY_CORRECT|BASH_COMPAT|TEXTDOMAIN|histchars|BASH_ALIASES|SHELLOPTS|BASHOPTS")
# Letters and signs that look like blanks to people.
_BLANK_LOOKING = re.compile("[\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]")
_LOCALE_NAMES = re.compile(r"LC_|LANG")


def objection(text: str) -> Opaque | None:
    """Return the reason that `text` cannot be parsed at all, or None. The time does not grow with texts that are too
    long.
    """
    if len(text) > MOST_CHARACTERS:
        return Opaque(f"the script is longer than {MOST_CHARACTERS} characters", SourceSpan(0, MOST_CHARACTERS))
    if found := _CONTROL.search(text):
        return Opaque(f"control character {_code(found[0])}", SourceSpan(*found.span()))
    if text[:1] in ("-", "+"):
        # `bash -c TEXT` would take such a text as options of bash itself.
        return Opaque("a script that starts with `-` or `+` would be taken as options of bash", SourceSpan(0, 1))
    if found := _SWITCHING_NAMES.search(text):
        return Opaque(f"`{found[0]}` changes how bash reads the script", SourceSpan(*found.span()))
    if not text.isascii():
        return _beyond_ascii(text)
    return None


def _beyond_ascii(text: str) -> Opaque | None:
    if not text.replace("\n", " ").replace("\t", " ").isprintable():
        at = next(at for at, char in enumerate(text) if char not in "\n\t" and not char.isprintable())
        return Opaque(f"invisible or unusual blank character {_code(text[at])}", SourceSpan(at, at + 1))
    if found := _BLANK_LOOKING.search(text):
        return Opaque(f"invisible or unusual blank character {_code(found[0])}", SourceSpan(*found.span()))
    if found := _LOCALE_NAMES.search(text):
        # In another character set the same bytes may hide or make a `\` or a backquote on a later line.
        return Opaque(
            f"`{found[0]}` may change how bash decodes the characters of the script", SourceSpan(*found.span())
        )
    return None


def splits_somewhere(text: str) -> bool:
    """Return True if a byte of `text` is a blank for some C library (macOS: 0x85 and 0xa0 in UTF-8 locales)."""
    encoded = text.encode("utf-8")
    return b"\x85" in encoded or b"\xa0" in encoded


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


# `[[ a > b ]]` writes the file `b` in dash, `((a))` runs `a`, and `x+=1` is a command. Looked for as plain text,
# quoted or not: a question too many is better than another language.
_ONLY_BASH = (
    r"(?P<test>\[\[(?=\s)|(?<=\s)\]\])"
    r"|(?P<arithmetic>\(\((?<!\$\(\())"
    r"|(?P<process>[<>]\()"
    r"|(?P<string><<<)"
    r"|(?P<both>&>|>&(?![0-9-])|\|&)"
    r"|(?P<quoting>\$['\"])"
    r"|(?P<append>[A-Za-z0-9_]\+=)"
    r"|(?P<array>=\()"
    r"|(?P<name>(?<![\w-])(?:time|function|select|coproc|declare|typeset|source|let|local|shopt|mapfile|readarray)(?![\w-]))"
    r"|(?P<parameter>\$\{[A-Za-z0-9_@*]+(?:\[|[/^,@]|:[ 0-9]))"
    r"|(?P<braces>(?<!\$)\{(?:[^\s{}\"'\\$]|\\.|\$(?!\{)|\$\{[^{}]{0,99}\}|\"[^\"]{0,99}\"|'[^']{0,99}'){0,99}?(?:,|\.\.))"
    r"|(?P<negated>\[\^)"
    r"|(?P<tilde>~[+-])"
    r"|(?P<counting>\+\+|--(?=[^ ]*\)\)))"
)
_NAMES = {
    "test": "`[[`", "arithmetic": "`((`", "process": "`<(`", "string": "`<<<`", "both": "`&>`", "quoting": "`$'..'`",
    "append": "`+=`", "array": "an array", "parameter": "a `${..}` form", "braces": "`{a,b}`", "negated": "`[^..]`",
    "tilde": "`~+`", "counting": "`++`",
}  # fmt: skip


def objection_elsewhere(text: str) -> str | None:
    """Return the part of `text` that another shell than bash reads differently, as text for the user, or None."""
    found = re.search(_ONLY_BASH, text)  # compiled at the first script for another shell
    return None if found is None else _NAMES.get(found.lastgroup or "", f"`{found[0]}`")
