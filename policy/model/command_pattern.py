"""Patterns of commands: the pattern of the one command that a grant is about, and the word patterns of rules.

Word patterns match exactly for rules that allow, and broadly for rules that forbid.
"""

import re
from collections.abc import Iterable, Sequence

from policy.model.abstract_word import AbstractWord, literal
from policy.model.assessment import Step
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.glob import glob

HOLE = "*"  # as a word: any one word that is not empty and does not start with `-` or `+`
# THREAT T76: the value attached to a flag may be code (`--eval=..`, `-e..`), another program or another folder (`-C/`).
_SWITCH = re.compile(r"[-+]{1,2}[A-Za-z0-9][A-Za-z0-9_-]*(?:=[0-9]+)?|--", re.ASCII)


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """A pattern that matches one command.

    Attributes:
        words: the program and its arguments, each a literal text or a HOLE; empty for effects of the shell itself
            between the commands.
        flags: True if further flags may follow. A further flag may have a number as its value, and no other value.
        folder: the current folder, relative to the workspace.
        program: the real path of the program that the first word starts; empty if there was none.
        family: the family of reading commands that the command must belong to. Then `words` are only the program, the
            other words may be any, and the current folder may be any folder of the workspace.
    """

    words: tuple[str, ...] = ()
    flags: bool = False
    folder: str = ""
    program: str = ""
    family: str = ""

    def fits(self, step: Step, facts: Facts) -> bool:
        """Return True if the pattern matches `step`: every word is certain, no variables are set for the command, and
        its only current folder and its program are those of the pattern.

        A pattern without words matches every step without words.
        """
        if step.text or step.set_up:
            return False
        if not self.words:
            return not step.words
        words = step.literal
        if self.family:
            return (
                words is not None
                and words[0] == self.words[0]
                and belongs(step, self.family, facts)
                and program_of(words[0], facts.workspace, facts) == self.program
            )
        here = f"{facts.workspace.rstrip('/')}/{self.folder}" if self.folder else facts.workspace
        count = len(self.words)
        if words is None or step.cwds != (here,) or len(words) < count or (len(words) > count and not self.flags):
            return False
        for word, wanted in zip(words, self.words, strict=False):
            if word != wanted and (wanted != HOLE or not word or word[0] in "-+"):
                return False
        further = all(_SWITCH.fullmatch(word) for word in words[count:])
        return further and program_of(words[0], here, facts) == self.program


def belongs(step: Step, family: str, facts: Facts) -> bool:
    """Return True if `step` is a command of `family` that starts a program of the machine, by its bare name and in the
    workspace, with certain words and without variables of its own.
    """
    words = step.literal
    if words is None or step.family != family or step.set_up or step.text or "/" in words[0]:
        return False
    if not step.cwds or not all(_below(cwd, facts.workspace) for cwd in step.cwds):
        return False
    program = program_of(words[0], facts.workspace, facts)
    return not (program and _below(program, facts.workspace))


def _below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def program_of(name: str, folder: str, facts: Facts) -> str:
    """Return the real path of the program that `name` starts in `folder`, or an empty text if there is none."""
    if "/" in name:
        return facts.look(name if name.startswith("/") else f"{folder.rstrip('/')}/{name}").real
    found = facts.which(name) if name else None
    return facts.look(found).real if found else ""


Pattern = tuple[tuple[str, ...], ...]  # one entry for each word, each with its alternatives

_LONGEST_CLUSTER = 4
_MOST_STARTS = 20  # occurrences of a program among the words of another command; more count as a match
_COMMANDS = re.compile(r"[\n;|&]+")
_BLANKS = re.compile(r"[\s()`'\"<>{},\[\]]+")


def exact(words: Sequence[str], pattern: Pattern, *, more: bool) -> bool:
    """Return True if the pattern matches the command word by word; with `more`, further words may follow."""
    fits = len(words) >= len(pattern) if more else len(words) == len(pattern)
    return fits and all(_among(word, wanted) for word, wanted in zip(words, pattern, strict=False))


def broad(words: Sequence[AbstractWord], pattern: Pattern, name: int = 1) -> bool:
    """Return True if the pattern may match the command, whatever other words the command has.

    The program may be written with its folder. Flags match in any order, short ones in any cluster, long ones
    abbreviated or with a value; the other words must occur among the operands in their order. The first `name` words
    are known to be the program and its subcommands, and are compared one by one. A word that is known only at run time
    may be any flag, unless it cannot be a flag, and may be the operand at its position. Another spelling of a flag
    (`--force` for `-f`) matches only if the pattern contains it.
    INVARIANT: the same commands match with and without a final `**`.
    """
    if not words or not pattern or not _program(words[0], pattern[0]):
        return False
    rest = words[1:]
    given = _flags(text for word in rest for text in word.texts)
    unclear = any(not word.plain for word in rest if word.text is None)
    wanted = []
    for alternatives in pattern[1:]:
        flags = [text for text in alternatives if is_flag(text)]
        if flags and (unclear or any(_flag_given(flag, given) for flag in flags)):
            continue
        others = tuple(text for text in alternatives if not is_flag(text))
        if not others:
            return False
        wanted.append(others)
    for word, alternatives in zip(rest[: name - 1], wanted, strict=False):
        if not may_be(word, alternatives):
            return False
    operands = [word for word in rest[name - 1 :] if word.text is None or not is_flag(word.text)]
    return _in_order(operands, wanted[name - 1 :])


def mentions(text: str, pattern: Pattern) -> bool:
    """Return True if a part of `text`, which is split at newlines, `;`, `|` and `&` but not parsed, contains a command
    that the pattern matches as `broad` does.
    """
    if not any("*" in program or "?" in program or program in text for program in pattern[0]):
        return False
    for command in _COMMANDS.split(text):
        whole = [word for word in _BLANKS.split(command) if word]
        parts = [part for word in whole for part in word.split("=") if part]  # `--exec=rm`
        for found in (whole, parts) if len(parts) > len(whole) else (whole,):
            # The first occurrence is enough: the words after a later occurrence also follow the first.
            start = next((at for at, word in enumerate(found) if _program(literal(word), pattern[0])), None)
            if start is not None and broad([literal(word) for word in found[start:]], pattern):
                return True
    return False


def passed_on(words: Sequence[AbstractWord], pattern: Pattern) -> bool:
    """Return True if the words that a program may run contain a command that `pattern` matches, also inside one
    word, or if the program of `pattern` occurs too often to be examined.
    """
    starts = [at for at, word in enumerate(words) if _program(word, pattern[0])]
    if len(starts) > _MOST_STARTS or any(broad(words[at:], pattern) for at in starts):
        return True
    return any(mentions(text, pattern) for word in words for text in word.texts)


def may_be(word: AbstractWord, alternatives: Sequence[str]) -> bool:
    """Return True if `word` may be one of `alternatives`."""
    if word.texts:
        return any(_among(text, alternatives) for text in word.texts)
    if any(_among(text, alternatives) for text in word.likely_texts):
        return True
    for wanted in alternatives:
        start = re.split(r"[*?]", wanted, maxsplit=1)[0]
        if start.startswith(word.head) or word.head.startswith(start):
            return True
    return False


def is_flag(word: str) -> bool:
    """Return True if `word` is a flag: `-` or `+` and at least one more character."""
    return len(word) > 1 and word[0] in "-+"


def _program(word: AbstractWord, alternatives: Sequence[str]) -> bool:
    return any(_among(text, alternatives) or _among(text.rpartition("/")[2], alternatives) for text in word.texts)


def _among(text: str, alternatives: Sequence[str]) -> bool:
    return any(glob(text, wanted) for wanted in alternatives)


def _in_order(operands: list[AbstractWord], wanted: list[tuple[str, ...]]) -> bool:
    found = 0
    for place, word in enumerate(operands):
        if found == len(wanted):
            break
        if word.texts:
            found += may_be(word, wanted[found])
        elif found == place and may_be(word, wanted[found]):
            if word.may_split:
                return True  # it may become all remaining wanted words
            found += 1
    return found == len(wanted)


def _flags(texts: Iterable[str]) -> frozenset[str]:
    """Return every flag as written, without its value, and every letter of a cluster: `-rf` is also `-r` and `-f`."""
    flags = [text for text in texts if is_flag(text)]
    letters = (f"{text[0]}{letter}" for text in flags if text[1] != text[0] for letter in text[1:])
    return frozenset([*flags, *(text.partition("=")[0] for text in flags), *letters])


def _flag_given(flag: str, given: frozenset[str]) -> bool:
    if any(glob(text, flag) for text in given):
        return True
    letters = flag[1:]
    if letters[0] == "-":
        return any(len(text) > 3 and text[:2] == "--" and flag.startswith(text) for text in given)
    # `-rf` is a cluster; `-delete` and `-exec` are words of their own.
    cluster = letters.isalnum() and len(set(letters)) == len(letters) <= _LONGEST_CLUSTER
    return cluster and all(f"{flag[0]}{letter}" in given for letter in letters)
