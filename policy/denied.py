"""The denied list: argv patterns that never run, in any mode."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from policy.assessment import Reason, RuleRef, Span
from policy.profile import Profile
from policy.tier import Tier

_LONGEST_CLUSTER = 4


def denied_reason(words: Sequence[str | None], profile: Profile, span: Span | None = None) -> Reason | None:
    """Whether one simple command is on the denied list. Ask it for every command of a script, wrapped ones too.

    `words` are decoded; None stands for a word that only the moment of running decides. A pattern matches when its
    program is the command's (with or without a folder before it), each of its flags is given (in any order, short ones
    in any clustering) and its other words occur among the operands in that order; a None may be any flag, and the
    operand at its place. `*` and `?` match within a word, a last `*` is any rest. When in doubt it matches. A spelling
    that the list does not know, such as the long form of a short flag, is not found: deny those too.
    """
    if not words or words[0] is None:
        return None
    for pattern in profile.denied:
        if _matches(words[0], words[1:], pattern):
            shown = " ".join(pattern)
            return Reason(Tier.DENIED, f"`{shown}` is on the denied list", RuleRef("[deny] commands", 0), span)
    return None


def _matches(program: str, given: Sequence[str | None], pattern: tuple[str, ...]) -> bool:
    wanted = pattern[0]
    if not (fnmatchcase(program, wanted) or fnmatchcase(program.rpartition("/")[2], wanted)):
        return False
    rest = pattern[1:-1] if pattern[-1] == "*" else pattern[1:]
    have = _flags_given([word for word in given if word is not None])
    if None not in given and not all(_flag_given(flag, have) for flag in rest if _is_flag(flag)):
        return False
    return _in_order(
        [word for word in given if word is None or not _is_flag(word)], [word for word in rest if not _is_flag(word)]
    )


def _in_order(operands: list[str | None], wanted: list[str]) -> bool:
    found = 0
    for place, word in enumerate(operands):
        if found < len(wanted) and (found == place if word is None else fnmatchcase(word, wanted[found])):
            found += 1
    return found == len(wanted)


def _flags_given(words: list[str]) -> frozenset[str]:
    """Every flag as written, and every letter of a cluster: `-rf` is also `-r` and `-f`."""
    flags = [word for word in words if _is_flag(word)]
    return frozenset([*flags, *(f"-{letter}" for word in flags if word[1] != "-" for letter in word[1:])])


def _flag_given(flag: str, have: frozenset[str]) -> bool:
    if any(fnmatchcase(word, flag) for word in have):
        return True
    letters = flag[1:]
    # `-rf` is a cluster; `-delete` and `-exec` are words of their own.
    cluster = letters[0] != "-" and letters.isalnum() and len(set(letters)) == len(letters) <= _LONGEST_CLUSTER
    return cluster and all(f"-{letter}" in have for letter in letters)


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-"
