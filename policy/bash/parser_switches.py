"""Commands and assignments after which bash reads or evaluates later text in a way that the tree does not show."""

import re

from policy.bash.ast import Word

# fmt: off
_SAFE_SHOPT = frozenset((
    "nullglob", "failglob", "globstar", "dotglob", "nocaseglob", "globasciiranges", "globskipdots",
    "inherit_errexit", "checkjobs", "huponexit",
))
_SAFE_SET = frozenset((
    "pipefail", "errexit", "nounset", "noglob", "noclobber", "xtrace", "verbose", "allexport", "errtrace", "functrace",
))
# These variables evaluate what is assigned to them as arithmetic, and arithmetic can run commands.
_EVALUATING = frozenset((
    "SECONDS", "RANDOM", "SRANDOM", "OPTIND", "HISTCMD", "LINENO", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID",
    "BASH_SUBSHELL", "HISTSIZE", "HISTFILESIZE", "GROUPS", "FUNCNAME", "DIRSTACK", "BASH_CMDS", "BASH_ARGV0",
))
# What a function may not be called: words that POSIX shells find before functions, words that this reader goes by,
# and the name that bash calls by itself.
_NO_FUNCTION = frozenset((
    "break", "continue", "eval", "exec", "exit", "export", "readonly", "return", "set", "shift", "source", "times",
    "trap", "unset", "command", "builtin", "alias", "unalias", "enable", "shopt", "declare", "typeset", "local", "let",
    "read", "mapfile", "readarray", "getopts", "printf", "wait", "hash", "command_not_found_handle",
))
# fmt: on
_SET_LETTERS = re.compile(r"[-+][euxfCvaET]*o?")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_PREFIXES = ("command", "builtin")
_ASKED = frozenset((*_PREFIXES, "alias", "enable", "shopt", "set"))


def objection_to_command(words: tuple[Word, ...]) -> str | None:
    """Return the reason that text after this command may be read in another way than the tree shows, or None.

    Only literal names are examined; the classifier judges a command whose name is known only at run time.
    """
    if words[0].literal not in _ASKED:
        return None
    texts = [word.literal for word in words]
    while len(texts) > 1 and texts[0] in _PREFIXES:
        del texts[0]
        while len(texts) > 1 and (texts[0] or "").startswith("-"):
            del texts[0]
    name, rest = texts[0], texts[1:]
    match name:
        case "alias" | "enable":
            return f"`{name}` may change what later words mean" if rest else None
        case "shopt":
            plain = all(text in _SAFE_SHOPT or text in ("-s", "-u", "-q", "-p") for text in rest)
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
