"""From an action to an Assessment: what it would do, in tiers, each with the words and the rule behind it."""

from typing import TYPE_CHECKING

from policy.action import (
    Action,
    EditFile,
    GlobFiles,
    GrepFiles,
    ListFolder,
    ReadFile,
    RunArgv,
    RunScript,
    WriteFile,
)
from policy.assessment import Assessment, Effect, EffectKind, Reason
from policy.budget import MOST_AFTER, TooMuchError
from policy.builtin_rules import (
    EMPTY_COMMAND,
    EMPTY_SCRIPT,
    FILE_TOOL,
    GATE_FAILURE,
    RELATIVE_PATH,
    TIME_LIMIT,
    UNREADABLE_SCRIPT,
)
from policy.facts import Facts
from policy.little.registry import grammar
from policy.permission.rule import Source
from policy.profile import Profile
from policy.rule import Role
from policy.rules import RuleBook
from policy.script.tree import Opaque
from policy.sense import AbstractWord, literal
from policy.state import State
from policy.tier import Tier
from policy.walk import Walk

if TYPE_CHECKING:
    from policy.typed import FlagRights

_TOO_MUCH = "more than can be judged in the time of a decision"


def classify(
    action: Action,
    facts: Facts,
    rules: RuleBook,
    profile: Profile,
    source: Source = Source.MODEL,
    typed: "FlagRights | None" = None,
) -> Assessment:
    """Judge one action that `source` proposed, and what the users' rules in `profile` say about it; `typed` is what a
    person adds to it by flags.

    Total: whatever it cannot tell is tier unknown, with the reason.
    """
    try:
        assessment = _classify(action, Walk(facts, rules, profile, grammar))
        return _ruled(assessment, facts, profile, source, typed)
    except Exception as error:  # the named seam: a defect in the gate must ask, never let pass or crash
        why = f"this gate failed on it ({type(error).__name__})"
        reason = Reason(Tier.UNKNOWN, why, GATE_FAILURE)
        # What the users' rules deny may be among what was not understood, so their question is due in every mode.
        asked = (reason,) if profile.permissions or profile.denied else ()
        return Assessment(action, (Effect(EffectKind.UNKNOWN, why),), (reason,), asked=asked)


def _ruled(
    assessment: Assessment, facts: Facts, profile: Profile, source: Source, typed: "FlagRights | None"
) -> Assessment:
    if not profile.permissions and not typed:
        return assessment
    from policy.permission.match import ruled  # only where somebody has rules

    if not typed:
        return ruled(assessment, facts, profile.permissions, source)
    from policy.typed import widened

    wider = widened(assessment, typed, facts, profile)
    return ruled(wider, facts, (*profile.permissions, *typed.rules), source)


def _classify(action: Action, walk: Walk) -> Assessment:
    tree = ""
    try:
        tree = _walked(action, walk)
        if walk.findings.worst > Tier.READ:
            for again in walk.findings.unless_read:
                again()
    except TooMuchError:
        walk.classifier.budget.left = MOST_AFTER
        if isinstance(action, RunScript):
            walk.opaque(action.script, _TOO_MUCH, State((action.cwd,)), TIME_LIMIT, None)
        else:
            walk.findings.unknown(_TOO_MUCH, TIME_LIMIT, None)
    findings = walk.findings
    plain = findings.worst is Tier.WRITE and not findings.unplain
    return Assessment(action, findings.effects, findings.reasons, plain, tree, findings.steps)


def _walked(action: Action, walk: Walk) -> str:
    """Judge it; the tree of a script, printed."""
    tree = ""
    match action:
        case RunScript():
            tree = _script(action, walk)
        case RunArgv():
            _argv(action, walk)
        case ReadFile(path=path):
            _file(walk, Role.READ, path, "reads a file")
        case WriteFile(path=path) | EditFile(path=path):
            if isinstance(action, EditFile):
                _file(walk, Role.READ, path, "reads a file")
            _file(walk, Role.WRITE, path, "writes a file")
        case ListFolder(path=path):
            _file(walk, Role.NAMES, path, "lists a folder")
        case GlobFiles(root=root):
            _file(walk, Role.TREE, root, "finds files by name")
        case GrepFiles(root=root):
            _file(walk, Role.READ, root, "searches in files")
    return tree


def _script(action: RunScript, walk: Walk) -> str:
    """Read, let the witness object, and walk."""
    # Imported when there is a script: the exact words of `agent exec -- ...` need none of it, and start sooner.
    from policy.script.reader import read
    from policy.script.show import show
    from policy.witness import disagreement

    tree = read(action.script)
    if not isinstance(tree, Opaque):
        shown = show(tree)
        tree = disagreement(action.script, tree) or tree
    if isinstance(tree, Opaque):
        walk.opaque(action.script, tree.reason, State((action.cwd,)), UNREADABLE_SCRIPT, tree.span)
        return ""
    walk.run(tree, State((action.cwd,), arguments=()))  # the sandbox gives a script no arguments
    if not tree.items:
        walk.findings.add_reason(Tier.READ, "there is nothing to run", EMPTY_SCRIPT, None)
    return shown


def _argv(action: RunArgv, walk: Walk) -> None:
    if not action.argv:
        walk.findings.unknown("there is no program to run", EMPTY_COMMAND, None)
        return
    words: list[AbstractWord] = [literal(word) for word in action.argv]
    walk.shell = False
    walk.simple(words, State((action.cwd,)), None, fed=False)


def _file(walk: Walk, role: Role, path: str, text: str) -> None:
    if not path.startswith("/"):
        walk.findings.unknown("the path does not start at the root folder", RELATIVE_PATH, None)
        return
    walk.findings.add_reason(Tier.READ, text, FILE_TOOL, None)
    walk.findings.access_path(role, literal(path), ("/",), FILE_TOOL, None)
