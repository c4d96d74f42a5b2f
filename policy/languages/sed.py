"""The sed language: a reader that finds the commands that run programs and read or write files."""

import re

from policy.languages.language_result import HARMLESS, Reading, unknown_reading
from policy.model.tier import Tier

_ADDRESS = re.compile(r"\d+(?:~\d+)?|\$")
_AFTER_COMMA = re.compile(r"[+~]?\d+|\$")
_COMMA = re.compile(r"[ \t]*,[ \t]*")
_END = r"[ \t]*(?=[\n;}#]|\Z)"  # the end of a command
_COMMAND_END = re.compile(_END)
_S_FLAG = re.compile(r"[gpiImM]|\d+")
# Patterns of the arguments of commands that take nothing, a number or a label. `re` compiles them at their first use.
_ARGUMENTS = {
    **dict.fromkeys("=dDgGhHnNpPxFz", ""), **dict.fromkeys("qQl", r"[ \t]*[0-9]*"), "L": r"(?!)",
    **dict.fromkeys("btT", r"[ \t]*[A-Za-z0-9_.-]*"), ":": r"[ \t]*[A-Za-z0-9_.-]+",
}  # fmt: skip
# The text of `a`, `i` or `c` ends before a line end without a backslash before it.
_TEXT = re.compile(r"(?:[^\\\n]|\\.)*\\?", re.DOTALL)


def read_sed(program: str) -> Reading:
    """Judge one sed program. Any command that is not understood makes the result unknown."""
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
        after = _addresses_end(program, at)
        if after is None:
            return unknown_reading("an address that cannot be parsed")
        if after >= end:
            return unknown_reading("an address without a command")
        command, at = program[after], after + 1
        if command in _ARGUMENTS:
            words = re.compile(_ARGUMENTS[command] + _END).match(program, at)
            if words is None:
                return unknown_reading("a bad label" if command in "btT:" else f"unexpected text after `{command}`")
            at = words.end()
        elif command in "aic":
            text = _TEXT.match(program, at)
            at = text.end() if text else at
        elif command in "rRwW":
            line = _line_end(program, at)
            (reads if command in "rR" else writes).append(program[at:line].lstrip(" \t"))
            at = line
        elif command in "ys":
            parts = _two_parts_end(program, at)
            if parts is None or (command == "y" and not _COMMAND_END.match(program, parts)):
                return unknown_reading(f"{'a' if command == 'y' else 'an'} `{command}` command that cannot be parsed")
            at = parts
            while at < end and not _COMMAND_END.match(program, at):
                flag = _S_FLAG.match(program, at)
                if flag:
                    at = flag.end()
                elif program[at] == "e":
                    runs = "the `e` flag of `s` runs text of the input as a command"
                    at += 1
                elif program[at] == "w":
                    line = _line_end(program, at)
                    writes.append(program[at + 1 : line].lstrip(" \t"))
                    at = line
                else:
                    return unknown_reading("an unknown flag of the `s` command")
        elif command == "e":
            return Reading(Tier.EXECUTE, "the `e` command runs a program")
        elif command != "{":
            return unknown_reading(f"`{command}` is not a known command")
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


def _addresses_end(program: str, at: int) -> int | None:
    """Return the end of up to two addresses and a `!`, or None if they are not understood."""
    end = _address_end(program, at, _ADDRESS)
    if end is not None and (comma := _COMMA.match(program, end)):
        end = _address_end(program, comma.end(), _AFTER_COMMA)
        if end == comma.end():
            return None
    return None if end is None else _skip(program, end, "! \t")


def _address_end(program: str, at: int, pattern: re.Pattern[str]) -> int | None:
    number = pattern.match(program, at)
    if number:
        return number.end()
    if program[at : at + 1] == "/":
        found = _part_end(program, at + 1, "/")
    elif program[at : at + 1] == "\\" and at + 1 < len(program):
        found = _part_end(program, at + 2, program[at + 1])
    else:
        return at
    return None if found is None else _skip(program, found, "IM")


def _two_parts_end(program: str, at: int) -> int | None:
    """Return the end of `/first/second/` with any delimiter, or None."""
    if at >= len(program) or program[at] in "\\\n":
        return None
    first = _part_end(program, at + 1, program[at])
    return None if first is None else _part_end(program, first, program[at], pattern=False)


def _part_end(program: str, at: int, delimiter: str, *, pattern: bool = True) -> int | None:
    """Return the position after the next unescaped delimiter, or None if there is none or its position is uncertain."""
    start = at
    while at < len(program):
        if program[at] == "\\":
            at += 2
        elif program[at] == delimiter:
            # Implementations differ on whether a delimiter inside `[..]` ends the pattern.
            text = re.sub(r"\\.", "", program[start:at], flags=re.DOTALL)
            opened = pattern and text.rfind("[") > text.rfind("]")
            return None if opened else at + 1
        elif program[at] == "\n" and pattern:
            return None
        else:
            at += 1
    return None
