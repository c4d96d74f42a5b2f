"""Differences between bash and other shells: in `sh -c TEXT` the same words may be other commands, files and values."""

import re

# `[[ a > b ]]` writes the file `b` in dash, `((a))` runs `a`, and `x+=1` is a command. Looked for as plain text,
# quoted or not: a question too many is better than another language.
_ONLY_BASH = re.compile(
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
    "test": "`[[`",
    "arithmetic": "`((`",
    "process": "`<(`",
    "string": "`<<<`",
    "both": "`&>`",
    "quoting": "`$'..'`",
    "append": "`+=`",
    "array": "an array",
    "parameter": "a `${..}` form",
    "braces": "`{a,b}`",
    "negated": "`[^..]`",
    "tilde": "`~+`",
    "counting": "`++`",
}


def objection_elsewhere(text: str) -> str | None:
    """Return the part of `text` that another shell than bash reads differently, as text for the user, or None."""
    found = _ONLY_BASH.search(text)
    if found is None:
        return None
    return _NAMES.get(found.lastgroup or "", f"`{found[0]}`")
