"""The output of git commands, where it is certain: it may then be among the words of another command."""

import re
from itertools import pairwise

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
    if not _certain(call, name, operands):
        return None
    # These may print the short name of a branch or tag.
    short = {
        "rev-parse": not call.flags.keys().isdisjoint(("--abbrev-ref", "--symbolic")),
        "symbolic-ref": "--short" in call.flags,
        "describe": "--all" not in call.flags,
        "branch": True,
    }
    return AbstractWord(unsplittable=True, never_an_option=not short.get(name, False))


def _certain(call: Call, command: str, operands: list[str | None]) -> bool:
    """Return True if the command certainly prints one word."""
    given = set(call.flags)
    one = len(operands) == 1 and operands[0] is not None and bool(_ONE.fullmatch(operands[0]))
    match command:
        case "rev-parse" if operands:
            return given <= _MODIFIERS and len(call.words) == len(given) + 1 and one
        case "rev-parse":
            return len(given) == 1 and given <= _ONE_LINE
        case "rev-list":
            single = "--count" in given or any(word.text in ("-1", "-n1", "--max-count=1") for word in call.words)
            counts = {first.text for first, second in pairwise(call.words) if second.text == "1"}
            return given <= _SELECTING and (single or not counts.isdisjoint(("-n", "--max-count")))
        case "merge-base":
            return given.isdisjoint(("-a", "--all", "--independent", "--is-ancestor"))
        case "describe":
            return given <= _DESCRIBING and (not operands or one)
        case "branch":
            return given == {"--show-current"} and not operands
        case "symbolic-ref":
            return given <= {"-q", "--quiet", "--short"} and operands == ["HEAD"]
    return False
