"""The output of git commands, where it is certain: it may then be among the words of another command."""

import re
from collections.abc import Callable

from policy.interpreter.command_call import Call
from policy.model.abstract_word import AbstractWord

# One revision that prints one id or name: no range, no set of parents, no path, nothing with a blank.
_ONE = re.compile(r"(?!.*(?:\.\.|\^[@!-]|//))[A-Za-z0-9_@][A-Za-z0-9_./@{}~^-]*")
# fmt: off
_MODIFIERS = frozenset(("--verify", "--quiet", "-q", "--abbrev-ref", "--short", "--symbolic", "--symbolic-full-name"))
_ONE_LINE = frozenset((
    "--show-toplevel", "--git-dir", "--absolute-git-dir", "--git-common-dir", "--is-inside-work-tree", "--show-cdup",
    "--is-inside-git-dir", "--is-bare-repository", "--is-shallow-repository",
))
# What selects commits, beside what changes how one is printed (which could be any text of a commit).
_SELECTING = frozenset((
    "-#", "-n", "--max-count", "--count", "--all", "--branches", "--tags", "--remotes", "--merges", "--no-merges",
    "--first-parent", "--reverse", "--since", "--after", "--until", "--before", "--author", "--committer", "--grep",
    "--skip", "--abbrev-commit", "--abbrev", "--topo-order", "--date-order", "--no-walk",
    "--max-parents", "--min-parents",
))
_DESCRIBING = frozenset((
    "--all", "--tags", "--contains", "--abbrev", "--exact-match", "--long", "--match", "--exclude", "--always",
    "--first-parent",
))
# fmt: on


def prints_one(call: Call) -> AbstractWord | None:
    """Return a bound of the output if it is certainly one word: an id, a number or a name; else None.

    THREAT: the author of the repository chooses the subject of a commit and the name of a file; in `git diff $(git ..)`
    it would become a flag. The same applies to the short name of a branch or a tag: a clone may contain `--output=x` as
    both.
    """
    operands = [word.text for word in call.words if word.text is None or word.text[:1] != "-"]
    name = call.label.rpartition(" ")[2]
    if name not in _CERTAIN or not _CERTAIN[name](call, operands):
        return None
    return AbstractWord(unsplittable=True, never_an_option=not _names(call, name))


def _names(call: Call, command: str) -> bool:
    """Return True if the command may print the short name of a branch or tag."""
    given = set(call.flags)
    match command:
        case "rev-parse":
            return bool(given & {"--abbrev-ref", "--symbolic"})
        case "symbolic-ref":
            return "--short" in given
        case "describe":
            return "--all" not in given
    return command == "branch"


def _rev_parse(call: Call, operands: list[str | None]) -> bool:
    given = set(call.flags)
    if operands:
        return given <= _MODIFIERS and len(call.words) == len(given) + 1 and _one(operands)
    return len(given) == 1 and given <= _ONE_LINE


def _rev_list(call: Call, operands: list[str | None]) -> bool:
    given = set(call.flags)
    one = "--count" in given or any(word.text in ("-1", "-n1", "--max-count=1") for word in call.words)
    pairs = [first.text for first, second in zip(call.words, call.words[1:], strict=False) if second.text == "1"]
    return given <= _SELECTING and (one or "-n" in pairs or "--max-count" in pairs)


def _merge_base(call: Call, operands: list[str | None]) -> bool:
    return not set(call.flags) & {"-a", "--all", "--independent", "--is-ancestor"}


def _describe(call: Call, operands: list[str | None]) -> bool:
    return set(call.flags) <= _DESCRIBING and (not operands or _one(operands))


def _branch(call: Call, operands: list[str | None]) -> bool:
    return set(call.flags) == {"--show-current"} and not operands


def _symbolic_ref(call: Call, operands: list[str | None]) -> bool:
    return set(call.flags) <= {"-q", "--quiet", "--short"} and operands == ["HEAD"]


def _one(operands: list[str | None]) -> bool:
    return len(operands) == 1 and operands[0] is not None and bool(_ONE.fullmatch(operands[0]))


_CERTAIN: dict[str, Callable[[Call, list[str | None]], bool]] = {
    "rev-parse": _rev_parse,
    "rev-list": _rev_list,
    "merge-base": _merge_base,
    "describe": _describe,
    "branch": _branch,
    "symbolic-ref": _symbolic_ref,
}
