"""The output of a command substitution, as far as it is known before the command runs."""

import re

from policy.bash.ast import Command, Pipeline, Redirect, RedirectOp, Script
from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import State
from policy.model.abstract_word import COUNT, MAYBE_NUMBER, AbstractWord, literal, unquoted
from policy.model.facts import Kind
from policy.model.frozen import replace
from policy.model.secret_paths import inside
from policy.model.tier import Tier

_LIVE = frozenset("*?[]\\")
_UNKNOWN = "\0"  # in place of a word that is not literal
_NATURAL = re.compile("0|[1-9][0-9]{0,8}")
_COUNTING = re.compile(r"-[EFivwx]*c[EFivwx]*")
_NUMERIC_FORMATS = ("%s", "%b", "%h", "%i", "%u", "%g", "%X", "%Y", "%Z")  # sizes, ids; then times, maybe negative


def output_of(
    body: Script, printed: AbstractWord | None, state: State, findings: Findings, worst: Tier, *, quoted: bool
) -> AbstractWord:
    """Return the text that replaces a command substitution, whose last command prints `printed`.

    `worst` is the worst tier of what was found before the substitution was interpreted.
    """
    counted = numeric_output(body, state)
    if counted is not None:
        return replace(counted, may_split=(counted.empty or counted.may_split) and not quoted)
    unknown = AbstractWord(may_split=not quoted)
    command = body.items[0].node if len(body.items) == 1 else None
    if not isinstance(command, Command) or command.assignments or not all(map(_keeps_output, command.redirects)):
        return unknown
    words = [word.literal for word in command.words]
    if not words or words[0] in state.functions:
        return unknown
    printed = None if None in words else printed
    if printed is not None and printed.head:
        return printed  # one word, whose beginning is certain even for a path that was just created
    if findings.worst > max(worst, Tier.READ):
        return unknown
    known = _known_output(words, state, findings)
    if known is not None:
        return literal(known) if quoted else unquoted(literal(known))
    # Commands marked tame print numbers, ids, or paths below the workspace: one word when that has no blanks.
    if printed is None or any(char.isspace() or char in _LIVE for char in findings.classifier.facts.workspace):
        return unknown
    return replace(printed, may_split=not quoted)  # a command that fails prints nothing, so there may be no word


def _known_output(words: list[str | None], state: State, findings: Findings) -> str | None:
    """Return the output of a command that only prints known facts (`pwd`), or None for other commands."""
    if words == ["pwd"] and state.cwds is not None and len(state.cwds) == 1:
        return state.cwds[0]
    if words == ["git", "rev-parse", "--show-toplevel"] and state.cwds is not None:
        classifier, facts = findings.classifier, findings.classifier.facts
        below = all(inside(cwd, facts.workspace) for cwd in state.cwds)
        repository = facts.look(f"{facts.workspace}/.git").kind is not Kind.MISSING
        if below and repository and not any(classifier.foreign_repository(cwd) for cwd in state.cwds):
            return facts.workspace
    return None


def numeric_output(body: Script, state: State) -> AbstractWord | None:
    """Return the output of a command that prints one number, or nothing if it fails; None for other commands."""
    node = body.items[0].node if len(body.items) == 1 else None
    commands = [*node.commands] if isinstance(node, Pipeline) and not node.timed else [node]
    last = commands[-1]
    if not isinstance(last, Command) or last.assignments or not all(map(_keeps_output, last.redirects)):
        return None
    words = [text if (text := word.literal) is not None else _UNKNOWN for word in last.words]
    if not words or words[0] in state.functions:
        return None
    match words:
        case ["seq", *bounds] if 1 <= len(bounds) <= 3 and _counts(bounds):
            return replace(COUNT, may_split=True)
        case ["nproc"] | ["id", "-u" | "-g"] | ["date", "+%s"]:
            return COUNT
        case ["wc", "-l" | "-c" | "-w" | "-m"] | ["git", "rev-list", "--count", "HEAD" | "--all"]:
            return MAYBE_NUMBER
        case ["git", "rev-list", "--count", revision] if revision[:1] not in ("-", "", _UNKNOWN):
            return MAYBE_NUMBER
        case ["stat", "-c" | "-Lc", format, file] if format in _NUMERIC_FORMATS and file[:1] not in ("-", "", _UNKNOWN):
            return MAYBE_NUMBER if format in _NUMERIC_FORMATS[:6] else replace(MAYBE_NUMBER, never_an_option=False)
        case ["grep", flags, pattern, *files] if _COUNTING.fullmatch(flags) and pattern[:1] not in ("-", ""):
            one = not files or (len(files) == 1 and files[0][:1] not in ("-", "", _UNKNOWN))
            return MAYBE_NUMBER if one and pattern != _UNKNOWN else None
    return None


def _counts(bounds: list[str]) -> bool:
    """Return True if `seq` with these operands prints at least one number, and none with a sign."""
    if not all(_NATURAL.fullmatch(bound) for bound in bounds):
        return False
    numbers = [int(bound) for bound in bounds]
    first, last = (1 if len(numbers) == 1 else numbers[0]), numbers[-1]
    step = numbers[1] if numbers[2:] else 1
    return step > 0 and first <= last


def _keeps_output(redirect: Redirect) -> bool:
    """Return True if the redirection leaves the output of a command as it is. Error messages must not get into it."""
    inputs = (RedirectOp.IN, RedirectOp.HERE_DOC, RedirectOp.HERE_STRING)
    return redirect.op in inputs or (redirect.fd == 2 and redirect.target.literal == "/dev/null")
