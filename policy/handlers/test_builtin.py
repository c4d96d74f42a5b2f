"""The commands `test` and `[`. bash evaluates the subscript of a name, so `-v` and `-R` are not accepted."""

from policy.bash.ast import FILE_COMPARISONS, FILE_TESTS
from policy.interpreter.command_call import Call
from policy.model.abstract_word import AbstractWord
from policy.model.tier import Tier
from policy.rules.rule import Role

_UNARY = FILE_TESTS | {"-n", "-z", "-t", "-o"}
_BINARY = FILE_COMPARISONS | {"=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"}


def test(call: Call) -> None:
    """Judge a condition: every operator literal, every operand one word."""
    words = list(call.words)
    if call.label == "[":
        if not words or words[-1].text != "]":
            call.unknown("`[` without `]`")
            return
        del words[-1]
    if any(word.may_split for word in words):
        call.unknown("a word known only when it runs may become an operator of a condition")
        for word in words:
            call.suspect(word)
        return
    call.add_rule_fact(Tier.READ)
    if len(words) <= 1:
        return
    if len(words) == 3 and words[1].text in ("-a", "-o"):
        return  # between two words these only ask whether both, or either, are not empty
    at = 0
    while at < len(words):
        while at < len(words) and words[at].text in ("!", "(") and not _binary_at(words, at):
            at += 1
        taken = _primary(call, words, at)
        if taken == 0:
            where = words[at] if at < len(words) else None
            call.unknown(f"a condition of `{call.label}` that is not understood", where)
            return
        at += taken
        while at < len(words) and words[at].text == ")":
            at += 1
        if at < len(words):
            if words[at].text not in ("-a", "-o"):
                call.unknown(f"a condition of `{call.label}` that is not understood", words[at])
                return
            at += 1


def _binary_at(words: list[AbstractWord], at: int) -> bool:
    return at + 2 < len(words) and words[at + 1].text in _BINARY


def _primary(call: Call, words: list[AbstractWord], at: int) -> int:
    """Judge one test and return the number of its words; 0 if the test is not understood."""
    if _binary_at(words, at):
        if words[at + 1].text in FILE_COMPARISONS:
            call.access_path(Role.TREE, words[at])
            call.access_path(Role.TREE, words[at + 2])
        return 3
    if at + 1 < len(words) and words[at].text in _UNARY:
        if words[at].text in FILE_TESTS:
            call.access_path(Role.TREE, words[at + 1])
        return 2
    if at < len(words) and words[at].text is not None and words[at].text not in ("-v", "-R"):
        return 1
    return 0
