"""Commands whose output is one number: `wc -l`, `id -u`, `stat -c %s`, `grep -c`."""

import re
from dataclasses import replace

from policy.bash.ast import Command, Pipeline, Redirect, RedirectOp, Script
from policy.interpreter.shell_state import State
from policy.model.abstract_word import COUNT, MAYBE_NUMBER, AbstractWord

_SOME = "\0"  # a word that is not spelled out
_COUNTING = re.compile(r"-[EFivwx]*c[EFivwx]*")
_STATED = ("%s", "%b", "%h", "%i", "%u", "%g", "%X", "%Y", "%Z")  # sizes and ids; then times, maybe before 1970


def numeric_output(body: Script, state: State) -> AbstractWord | None:
    """Return the output of a command that prints one number, or nothing if it fails; None for other commands."""
    node = body.items[0].node if len(body.items) == 1 else None
    commands = [*node.commands] if isinstance(node, Pipeline) and not node.timed else [node]
    last = commands[-1]
    if not isinstance(last, Command) or last.assignments or not all(map(keeps_output, last.redirects)):
        return None
    words = [text if (text := word.literal) is not None else _SOME for word in last.words]
    if not words or words[0] in state.functions:
        return None
    match words:
        case ["nproc"] | ["id", "-u" | "-g"] | ["date", "+%s"]:
            return COUNT
        case ["wc", "-l" | "-c" | "-w" | "-m"] | ["git", "rev-list", "--count", "HEAD" | "--all"]:
            return MAYBE_NUMBER
        case ["git", "rev-list", "--count", revision] if revision[:1] not in ("-", "", _SOME):
            return MAYBE_NUMBER
        case ["stat", "-c" | "-Lc", format, file] if format in _STATED and file[:1] not in ("-", "", _SOME):
            return MAYBE_NUMBER if format in _STATED[:6] else replace(MAYBE_NUMBER, never_an_option=False)
        case ["grep", flags, pattern, *files] if _COUNTING.fullmatch(flags) and pattern[:1] not in ("-", ""):
            one = not files or (len(files) == 1 and files[0][:1] not in ("-", "", _SOME))
            return MAYBE_NUMBER if one and pattern != _SOME else None
    return None


def keeps_output(redirect: Redirect) -> bool:
    """Return True if the redirection leaves the output of a command as it is. Error messages must not get into it."""
    inputs = (RedirectOp.IN, RedirectOp.HERE_DOC, RedirectOp.HERE_STRING)
    return redirect.op in inputs or (redirect.fd == 2 and redirect.target.literal == "/dev/null")
