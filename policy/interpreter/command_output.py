"""The known output of commands: texts that a command is known to print, which later commands may read."""

from policy.interpreter.command_call import Call
from policy.interpreter.options import parse
from policy.interpreter.redirections import MOST_OUTPUT
from policy.interpreter.shell_state import State
from policy.model.abstract_word import AbstractWord, tokens
from policy.rules.rule import CommandRule, Role

# These print what they read.
_PASSING = frozenset(["cat", "head", "tail", "sort", "uniq", "tee", "grep", "rg", "shuf", "xargs", "read"])
_CUTTING = frozenset(["cut", "tr", "awk"])
# These print the names that are their operands.
_NAMING = frozenset(
    ["ls", "stat", "du", "realpath", "readlink", "basename", "dirname", "git ls-files", "git check-ignore"]
)
_PRINTING = frozenset(["echo", "printf"])
_PACKING = frozenset(["tar", "zip", "cpio", "pax"])


def note_output(call: Call, rule: CommandRule, begin: State) -> None:
    """Add the texts that a command is known to print to the output of its frame."""
    frame, variables = call.frame, call.interpreter.variables
    texts = frame.stdin_texts if rule.name in _PASSING else call.says
    if rule.name in _PASSING:
        texts += tuple(text for word in call.words for text in word.content)
    if rule.name in _PRINTING:
        texts += tuple(text for word in call.words if word.pattern for text in variables.likely_words(word, begin))
    if call.label in ("grep", "egrep", "fgrep"):
        from policy.interpreter.name_filters import picked  # only where there is a search

        texts += picked(parse(rule, call.label, call.words))
    elif rule.name in _CUTTING and frame.stdin_texts:
        from policy.interpreter.name_filters import cut_out  # only where its input is known

        texts = cut_out(rule.name, call.words, frame.stdin_texts)
    if rule.name in _NAMING:
        texts = tuple(text for word in call.words for text in variables.likely_words(word, begin) if text[:1] != "-")
    if rule.name in _PACKING:  # the names of files may come by their input
        names = tokens([*frame.stdin_texts, *(text for word in call.words for text in word.content)])
        call.findings.suspect(Role.READ, AbstractWord(hints=names), begin.cwds, rule.ref, call.span)
    known = frame.output
    known += [text for text in texts if text not in known][: MOST_OUTPUT - len(known)]
