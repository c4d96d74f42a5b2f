"""The sed language: finds the commands that run, write or read more than the input. Printing is harmless."""

import re

from policy.languages.language_result import HARMLESS, Reading, unknown
from policy.model.tier import Tier

_BLANK = " \t"
_ADDRESS = re.compile(r"\d+(?:~\d+)?|\$")
_AFTER_COMMA = re.compile(r"[+~]?\d+|\$")
_S_FLAG = re.compile(r"[gpiImM]|\d+")
_LABEL = re.compile(r"[A-Za-z0-9_.-]+")
_PLAIN = frozenset("=dDgGhHnNpPxFz")


def read_sed(program: str) -> Reading:
    """Judge one sed program. Closed world: a command that is not understood is unknown."""
    reads: list[str] = []
    writes: list[str] = []
    runs = ""
    at, end = 0, len(program)
    while at < end:
        if program[at] in " \t\n;}":
            at += 1
            continue
        if program[at] == "#":
            at = _line_end(program, at)
            continue
        after = _addresses(program, at)
        if after is None:
            return unknown("an address that is not understood")
        at = after
        if at >= end:
            return unknown("an address without a command")
        command = program[at]
        at += 1
        if command == "{" or command in _PLAIN:
            if command != "{" and not _ends(program, at):
                return unknown(f"text after `{command}`")
        elif command in "qQlL":
            at = _skip(program, at, _BLANK)
            at = _skip(program, at, "0123456789")
            if command == "L" or not _ends(program, at):
                return unknown(f"text after `{command}`")
        elif command in "aic":
            at = _text_end(program, at)
        elif command in "btT:":
            at = _skip(program, at, _BLANK)
            label = _LABEL.match(program, at)
            at = label.end() if label else at
            if (command == ":" and label is None) or not _ends(program, at):
                return unknown("a label that is not understood")
        elif command in "rRwW":
            line = _line_end(program, at)
            path = program[at:line].lstrip(_BLANK)
            (reads if command in "rR" else writes).append(path)
            at = line
        elif command == "y":
            two = _two_parts(program, at)
            if two is None or not _ends(program, two):
                return unknown("a `y` that is not understood")
            at = two
        elif command == "s":
            two = _two_parts(program, at)
            if two is None:
                return unknown("an `s` that is not understood")
            at = two
            while at < end and not _ends(program, at):
                flag = _S_FLAG.match(program, at)
                if flag:
                    at = flag.end()
                elif program[at] == "e":
                    runs = "the `e` flag runs what it matched"
                    at += 1
                elif program[at] == "w":
                    line = _line_end(program, at)
                    writes.append(program[at + 1 : line].lstrip(_BLANK))
                    at = line
                else:
                    return unknown("an `s` flag that is not understood")
        elif command == "e":
            return Reading(Tier.EXECUTE, "the `e` command runs a program")
        else:
            return unknown(f"`{command}` is not a known command")
    paths = tuple(path for path in writes if path not in ("/dev/stdout", "/dev/stderr"))
    if runs:
        return Reading(Tier.EXECUTE, runs, tuple(reads), paths)
    return Reading(Tier.READ, "", tuple(reads), paths) if reads or paths else HARMLESS


def _skip(program: str, at: int, letters: str) -> int:
    while at < len(program) and program[at] in letters:
        at += 1
    return at


def _line_end(program: str, at: int) -> int:
    found = program.find("\n", at)
    return len(program) if found < 0 else found


def _text_end(program: str, at: int) -> int:
    """Return the end of the text of `a`, `i` or `c`: the first line end without a backslash before it."""
    while True:
        line = _line_end(program, at)
        text = program[at:line]
        slashes = len(text) - len(text.rstrip("\\"))
        if line >= len(program) or slashes % 2 == 0:
            return line
        at = line + 1


def _ends(program: str, at: int) -> bool:
    at = _skip(program, at, _BLANK)
    return at >= len(program) or program[at] in "\n;}#"


def _addresses(program: str, at: int) -> int | None:
    """Return the end of up to two addresses and a `!`, or None if they are not understood."""
    first = _address(program, at, _ADDRESS)
    if first is None:
        return None
    at = first
    if at < len(program) and program[_skip(program, at, _BLANK) :][:1] == ",":
        at = _skip(program, _skip(program, at, _BLANK) + 1, _BLANK)
        second = _address(program, at, _AFTER_COMMA)
        if second is None or second == at:
            return None
        at = second
    at = _skip(program, at, _BLANK)
    return _skip(program, at, "! \t")


def _address(program: str, at: int, pattern: re.Pattern[str]) -> int | None:
    number = pattern.match(program, at)
    if number:
        return number.end()
    if program[at : at + 1] == "/":
        found = _part(program, at + 1, "/")
    elif program[at : at + 1] == "\\" and at + 1 < len(program):
        found = _part(program, at + 2, program[at + 1])
    else:
        return at
    return None if found is None else _skip(program, found, "IM")


def _two_parts(program: str, at: int) -> int | None:
    """Return the end of `/first/second/` with any delimiter, or None."""
    if at >= len(program) or program[at] in "\\\n":
        return None
    first = _part(program, at + 1, program[at])
    return None if first is None else _part(program, first, program[at], pattern=False)


def _part(program: str, at: int, delimiter: str, *, pattern: bool = True) -> int | None:
    """Return the position after the next unescaped delimiter, or None if there is none or its position is uncertain."""
    start = at
    while at < len(program):
        if program[at] == "\\":
            at += 2
        elif program[at] == delimiter:
            # Whether a delimiter inside `[..]` ends the pattern differs between implementations.
            text = re.sub(r"\\.", "", program[start:at], flags=re.DOTALL)
            opened = pattern and text.rfind("[") > text.rfind("]")
            return None if opened else at + 1
        elif program[at] == "\n" and pattern:
            return None
        else:
            at += 1
    return None
