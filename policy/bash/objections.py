"""Objections to texts that bash, or another shell, may read in another way than the tree shows.

Three kinds: conditions for the whole text before it is parsed (size, characters, names that change the grammar);
commands and assignments after which bash reads or evaluates later text differently; and forms that other shells read
differently, because in `sh -c TEXT` the same words may be other commands, files and values.
"""

import re

from policy.bash.ast import Opaque, Word
from policy.model.abstract_word import SourceSpan

MOST_CHARACTERS = 64 * 1024

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

# Setting one of these makes bash read or translate the rest of the script differently. They are searched as
# plain text, at every position: `export`, `read`, `declare` and `printf -v` can all set them.
_SWITCHING_NAMES = re.compile(r"POSIXLY_CORRECT|BASH_COMPAT|TEXTDOMAIN|histchars|BASH_ALIASES|SHELLOPTS|BASHOPTS")
# Letters and signs that look like blanks to people.
_BLANK_LOOKING = re.compile("[\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]")
_LOCALE_NAMES = re.compile(r"LC_|LANG")


def objection(text: str) -> Opaque | None:
    """Return the reason that `text` cannot be parsed at all, or None. The time is bounded, because
    long texts are refused first.
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
        # In another character set the same bytes may contain or conceal a `\` or a backquote on a later line.
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


# `[[ a > b ]]` writes the file `b` in dash, `((a))` runs `a`, and `x+=1` is a command. Searched as plain text,
# quoted or not, so some harmless scripts are refused, too.
_ONLY_BASH = (
    r"(?P<test>\[\[(?=\s)|(?<=\s)\]\])"
    r"|(?P<arithmetic>\(\((?<!\$\(\())"
    r"|(?P<process>[<>]\()"
    r"|(?P<string><<<)"
    r"|(?P<both>&>|>&(?![0-9-])|\|&)"
    r"|(?P<quoting>\$['\"])"
    r"|(?P<append>[A-Za-z0-9_]\+=)"
    r"|(?P<array>=\(|(?<![\w.])[A-Za-z_]\w*\[[^\]\s]{0,999}\]\+?=)"
    r"|(?P<name>(?<![\w-])(?:time|function|select|coproc|alias|declare|typeset|source|let|local|shopt|mapfile|readarray)(?![\w-]))"
    r"|(?P<parameter>\$\{(?:!|[A-Za-z0-9_@*]+(?:\[|[/^,@]|:(?![-=+?]))))"
    r"|(?P<braces>(?<!\$)\{(?:[^\s{}\"'\\$]|\\.|\$(?!\{)|\$\{[^{}]{0,99}\}|\"[^\"]{0,99}\"|'[^']{0,99}'){0,99}?(?:,|\.\.))"
    r"|(?P<descriptor>\{[A-Za-z_]\w*\}[<>])"
    r"|(?P<negated>\[\^)"
    r"|(?P<tilde>~[+-]|(?<![\w./-])[A-Za-z_]\w*\+?=~)"
    r"|(?P<counting>\+\+|--(?=[^ ]{0,400}\)\)|[^ ]{400}))"
)
_NAMES = {
    "test": "`[[`", "arithmetic": "`((`", "process": "`<(`", "string": "`<<<`", "both": "`&>`", "quoting": "`$'..'`",
    "append": "`+=`", "array": "an array", "parameter": "a `${..}` form", "braces": "`{a,b}`", "negated": "`[^..]`",
    "descriptor": "`{name}>`",
    "tilde": "`~+` or `x=~`", "counting": "`++`",
}  # fmt: skip


def objection_in_other_shells(text: str) -> str | None:
    """Return the part of `text` that another shell than bash reads differently, as text for the user, or None."""
    found = re.search(_ONLY_BASH, text)  # compiled at the first script for another shell
    return None if found is None else _NAMES.get(found.lastgroup or "", f"`{found[0]}`")


# -- commands and assignments

# fmt: off
_SAFE_SHOPT = frozenset((
    "nullglob", "failglob", "globstar", "dotglob", "nocaseglob", "globasciiranges", "globskipdots",
    "inherit_errexit", "checkjobs", "huponexit", "nocasematch", "checkwinsize", "cmdhist", "histappend", "lithist",
))
# These options are off when a script starts, and without `-s` they stay off.
OFF_IN_SCRIPTS = frozenset(("extglob", "expand_aliases", "lastpipe", "dotglob", "nocaseglob"))
_SAFE_SET = frozenset((
    "pipefail", "errexit", "nounset", "noglob", "noclobber", "xtrace", "verbose", "allexport", "errtrace", "functrace",
    "monitor", "notify",
))
# These variables evaluate what is assigned to them as arithmetic, and arithmetic can run commands.
_EVALUATING = frozenset((
    "SECONDS", "RANDOM", "SRANDOM", "OPTIND", "HISTCMD", "LINENO", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID",
    "BASH_SUBSHELL", "HISTSIZE", "HISTFILESIZE", "GROUPS", "FUNCNAME", "DIRSTACK", "BASH_CMDS", "BASH_ARGV0",
))
# Names that a function may not have: words that POSIX shells find before functions, words that the parser interprets,
# and the name that bash calls by itself.
_NO_FUNCTION = frozenset((
    "break", "continue", "eval", "exec", "exit", "export", "readonly", "return", "set", "shift", "source", "times",
    "trap", "unset", "command", "builtin", "alias", "unalias", "enable", "shopt", "declare", "typeset", "local", "let",
    "read", "mapfile", "readarray", "getopts", "printf", "wait", "hash", "command_not_found_handle",
))
# fmt: on
_SET_LETTERS = re.compile(r"[-+][abefmuvxCET]*o?")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_PREFIXES = ("command", "builtin")
_EXAMINED = frozenset((*_PREFIXES, "enable", "shopt", "set"))


def objection_to_command(words: tuple[Word, ...]) -> str | None:
    """Return the reason that text after this command may be read in another way than the tree shows, or None.

    Only literal names are examined; the classifier judges a command whose name is known only at run time.
    """
    if words[0].literal not in _EXAMINED:
        return None
    texts = [word.literal for word in words]
    while len(texts) > 1 and texts[0] in _PREFIXES:
        del texts[0]
        while len(texts) > 1 and (texts[0] or "").startswith("-"):
            del texts[0]
    name, rest = texts[0], texts[1:]
    match name:
        case "enable":
            return f"`{name}` may change what later words mean" if rest else None
        case "shopt":
            names = _SAFE_SHOPT if "-s" in rest else _SAFE_SHOPT | OFF_IN_SCRIPTS
            plain = all(text in names or text in ("-s", "-u", "-q", "-p") for text in rest)
            return None if plain else "`shopt` may change how bash reads later lines"
        case "set":
            return None if _keeps_grammar(rest) else "`set` may change how bash reads later lines"
    return None


def _keeps_grammar(arguments: list[str | None]) -> bool:
    named = False
    for argument in arguments:
        if named:
            if argument not in _SAFE_SET:
                return False
            named = False
        elif argument in ("--", "-"):
            return True
        elif argument is None:
            return False
        elif argument[:1] in ("-", "+"):
            if not _SET_LETTERS.fullmatch(argument):
                return False
            named = argument.endswith("o")
        else:
            return True
    return not named or len(arguments) == 1


def objection_to_function(name: str) -> str | None:
    """Return the reason that a function with that name cannot be read, or None."""
    return f"a function named `{name}` changes what that word of the shell does" if name in _NO_FUNCTION else None


def objection_to_variable(name: str, value: Word | None) -> str | None:
    """Return the reason that assigning `value` (None: any) to the variable `name` may run code, or None."""
    text = None if value is None else value.literal
    number = text is not None and _NUMBER.fullmatch(text)
    return f"bash evaluates what is assigned to `{name}`" if name in _EVALUATING and not number else None
