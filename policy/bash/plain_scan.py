"""A scan of plain scripts by one regular expression. Its result is what bashlex would report.

Plain: words of literal text, quotes, escapes, `$x` and `${x..}`, joined by blanks, continued lines, newlines, `|`,
`|&`, `||`, `&&`, `;`, `&`, comments and redirections, and no command that begins with a reserved word. The scan shares
no code with the parser, so it is as independent as bashlex, and far quicker.

The scan reports at least the nodes that bashlex reports:

- substitutions begin with `$(`, a backquote, `<(` or `>(`, which no plain script contains;
- compound commands and functions need a reserved word where a command begins (elsewhere bashlex stops with an error,
  which has no effect) or an unquoted parenthesis, and a plain script has neither;
- only words, redirections and simple commands remain: bashlex, as bash, ends a word at an unquoted blank,
  newline or one of `()<>;&|`, and the expression below ends it at the same positions, and no quote can conceal
  another one (a backslash, `$` and double quotes only in the forms listed; single quotes contain no single quote).
  Where bashlex differs from bash (`;#`, `>&-x`), the script is not plain.

tests/unit/test_plain_scan.py compares the two.
"""

import re
from typing import Final

Found = tuple[str, int, int]  # the kind of a node as bashlex calls it, and its range

# `$` before a name, a sign or anything that begins no other form; never `$(`, `$[`, `$'`, `$"`, `$$` or "$`".
# The alternatives begin with different characters, so there is no backtracking and the time is linear. (Python before
# 3.11.5 matches possessive groups wrongly; possessive sets are correct.)
_BRACED = r"\$\{[A-Za-z0-9_#?@*!:%/.,^=+~-]++\}"
_DOLLAR = rf"{_BRACED}|\$(?![({{\[`'\"$])"
_IN_DOUBLE = rf'[^"\\$`]++|\\[^\n]|{_BRACED}|\$(?![({{\[`\'$])'
_ASCII = r"[!#%*+,./0-9:=?@A-Z\[\]^_a-z{}~-]"
_ENDS = r"(?=[ \t\n;|&<>]|\Z)"
_WORD = rf"(?!\#)(?:{_ASCII}++|\\[!-~ ]|'[^']*+'|\"(?:{_IN_DOUBLE})*\"|{_DOLLAR})+{_ENDS}"
_TOKEN: Final = re.compile(
    rf"""(?:[ \t]|(?<=[ \t])\\\n)*(?:
    (?P<end>(?<![;&|])\#[^\n]*+|\n|&&|\|\||\|&?|;(?![;&])|&(?![&>]))
    |(?P<copy>[0-9]*+[<>]&[ \t]*+)(?P<descriptor>(?:[0-9]{{1,3}}|-){_ENDS})
    |(?P<redirect>(?:[0-9]*+(?:>>|>\||<>|[<>](?![<>&|(]))|&>>?)[ \t]*+)(?P<target>{_WORD})
    |(?P<word>{_WORD})
    |\Z)""",
    re.VERBOSE,
)
_SUBSTITUTION: Final = re.compile(r"`|[$<>]\(")
_RESERVED: Final = frozenset(
    [
        *("if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in"),
        *("function", "time", "coproc", "{", "}", "!", "[[", "]]"),
    ]
)


def scan_plain(text: str) -> list[Found] | None:
    """Return every command, word (assignments too) and redirection of a plain script, or None if `text` is not plain.

    The range of a command is that of its first word or redirection.
    """
    if _SUBSTITUTION.search(text):
        return None
    found: list[Found] = []
    match, at, last, begins = _TOKEN.match, 0, len(text), True
    while at < last:
        token = match(text, at)
        if token is None:
            return None
        at = token.end()
        kind = token.lastgroup
        if kind == "word":
            start = token.start("word")
            if begins:
                if text[start:at] in _RESERVED:
                    return None
                found.append(("command", start, at))
                begins = False
            found.append(("word", start, at))
        elif kind == "end" or kind is None:
            begins = True
        else:
            start = token.start("redirect" if kind == "target" else "copy")
            if begins:
                found.append(("command", start, at))
                begins = False
            found.append(("redirect", start, at))
            if kind == "target":
                found.append(("word", token.start(kind), at))
    return found
