"""The awk language: a tokenizer finds the programs that an awk program runs and the files it reads and writes."""

import re

from policy.languages.language_result import HARMLESS, Reading, unknown_reading
from policy.model.tier import Tier

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n|\#[^\n]*)
      |(?P<newline>\n)
      |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<two>\|\||&&|\|&|>>|\*\*=?|\+\+|--|[-+*/%^=!<>]=|!~)
      |(?P<one>[-+*/%^=!<>~?:,;(){}\[\]$|&@.'\\`"\x23])""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]\\\n]|\\.)*\])*/")
_SIMPLE_REGEX = re.compile(r"/(?:[^/\\\n]|\\.)*/")
_BEFORE_REGEX = frozenset("{};(,!~?:&|<>=+-*%^\n") | {
    "||", "&&", "!~", "==", "!=", "<=", ">=", "print", "printf", "return", "in", "else", "do", "case",
}  # fmt: skip
_BEFORE_UNCERTAIN_SLASH = frozenset([")", "++", "--"])
_RISKY = re.compile(r"system|getline|@|\||>")
_CONTINUES = frozenset([",", "&&", "||", "\n"])  # a line end after one of these does not end the statement
_AFTER_GETLINE = frozenset([";", "}", "\n", ")", "==", "!=", ">", ">=", "&&", "||"])
_KEYWORDS = frozenset(
    ["in", "getline", "print", "printf", "function", "func", "if", "else", "while", "for", "do", "return"]
)
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/null")


def read_awk(program: str) -> Reading:
    """Judge one awk program. Any unknown form of access beyond its input and output makes the result unknown."""
    tokens = _tokenize(program)
    if tokens is None:
        return unknown_reading("the program cannot be parsed")
    writes: list[str] = []
    reads: list[str] = []
    depth, printing = 0, -1  # `printing`: the depth at which a print statement began
    for index, (kind, text) in enumerate(tokens):
        if kind in ("string", "regex", "number"):
            continue
        if text in ("(", "[", "{"):
            depth += 1
        elif text in (")", "]", "}"):
            depth -= 1
            if depth < printing:
                printing = -1
        elif text == ";" or (text == "\n" and (index == 0 or tokens[index - 1][1] not in _CONTINUES)):
            printing = -1
        elif text in ("print", "printf"):
            printing = depth
        elif text == "system":
            return Reading(Tier.EXECUTE, "`system` runs a program")
        elif text == "getline":
            path = _getline_file(tokens[index + 1 :])
            if path is None or path.startswith("/inet"):
                return unknown_reading("`getline` may read from a program or another file")
            reads += [path] if path not in ("", "-") else []
        elif text in ("|", "|&"):
            return Reading(Tier.EXECUTE, "a pipe to or from another program")
        elif text == "@":
            return unknown_reading("`@` loads a file or calls a function named at run time")
        elif text in ("ARGV", "SYMTAB"):
            return unknown_reading(f"`{text}` may change which files the program reads")
        elif text in (">", ">>") and printing >= 0 and depth <= printing:
            target = tokens[index + 1 : index + 3]
            ends = len(target) < 2 or target[1][1] in (";", "\n", "}")
            if not target or target[0][0] != "string" or not ends or "\\" in target[0][1]:
                return unknown_reading("the program writes to a file known only at run time")
            path = target[0][1][1:-1]
            if path.startswith("/inet"):
                return Reading(Tier.NETWORK, "the program connects to a network")
            if path not in _STREAMS:
                writes.append(path)
    return Reading(Tier.READ, "", tuple(reads), tuple(writes)) if writes or reads else HARMLESS


def _getline_file(tokens: list[tuple[str, str]]) -> str | None:
    """Return the file that a `getline` before these tokens reads: empty for the input of the program, None if it is
    uncertain.
    """
    if tokens and tokens[0][0] == "word" and tokens[0][1] not in _KEYWORDS:
        del tokens[0]
    following = tokens[0][1] if tokens else ";"
    if following in _AFTER_GETLINE:
        return ""
    ends = len(tokens) > 1 and (len(tokens) == 2 or tokens[2][1] in _AFTER_GETLINE)
    if following != "<" or not ends or tokens[1][0] != "string" or "\\" in tokens[1][1]:
        return None
    return tokens[1][1][1:-1]


def _tokenize(program: str) -> list[tuple[str, str]] | None:
    """Return the tokens, or None if `program` cannot be tokenized with certainty, such as at an ambiguous `/`."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(program):
        before = tokens[-1] if tokens else ("newline", "\n")
        if program[at] == "/":
            uncertain = before[1] in _BEFORE_UNCERTAIN_SLASH and before[0] in ("one", "two")
            if uncertain and _RISKY.search(program):
                return None
            if before[0] not in ("number", "string", "regex") and before[1] in _BEFORE_REGEX:
                found = _REGEX.match(program, at)
                simple = _SIMPLE_REGEX.match(program, at)
                if found is None or simple is None:
                    return None
                if found.end() != simple.end() and _RISKY.search(program):
                    return None  # a `/` inside `[..]`: implementations differ
                tokens.append(("regex", found[0]))
                at = found.end()
                continue
        found = _TOKEN.match(program, at)
        if found is None or found[0] in ("'", "`", '"', "\\"):
            return None
        if found.lastgroup != "space":
            tokens.append((str(found.lastgroup), found[0]))
        at = found.end()
    return tokens
