"""The rules about information flow, applied to one assessed action.

SOURCE: the rule that no session should combine untrusted input, private data and external effects ("Rule of Two", Meta,
2025), and labels on messages as in FIDES (arXiv 2505.23643).

R0: without untrusted text nothing changes. R1: with it, neither broad rules nor remembered answers allow what sends
data to a destination that no trusted text names, or what is dangerous. R2: if the session has read private data as
well, this is always a question. R3: a change of a file that is trusted later is a question.
"""

import hashlib

from policy.decide import open_reasons, starts_offline
from policy.flow.destinations import new_destinations, paths_in
from policy.flow.finding import FlowFinding, Sink
from policy.flow.state import FlowMode, FlowState
from policy.flow.trusted_later import trusted_later
from policy.model.action import (
    CallServerTool,
    EditFile,
    RunHook,
    SignGit,
    StartProcess,
    StartServer,
    WriteFile,
    WriteProcess,
)
from policy.model.assessment import Assessment, EffectKind, Reason, RuleKind, Scope
from policy.model.facts import Facts
from policy.model.frozen import replace
from policy.model.profile import Profile
from policy.model.tier import MATRIX, Matrix, Mode, Tier

_SENDING = frozenset((Tier.NETWORK, Tier.MCP_EXTERNAL))
_CHANGES = (EffectKind.WRITES, EffectKind.DELETES)
_UNCOMPARED = "files of the workspace by code whose changes are not compared"
_UNREAD = (EffectKind.RUNS, EffectKind.UNKNOWN)


def flow_findings(assessment: Assessment, flow: FlowState, facts: Facts, profile: Profile) -> tuple[FlowFinding, ...]:
    """Return the findings about an action. Without untrusted text in the conversation there are none."""
    if flow.recorded is not None:
        return flow.recorded
    action = assessment.action
    if flow.mode is FlowMode.OFF or not flow.untrusted or isinstance(action, StartServer | RunHook | SignGit):
        return ()
    because = flow.because
    private = flow.private[-1] if flow.private else ""
    found = [
        FlowFinding(Sink.SENDS, each, because, private)
        for each in new_destinations(assessment, flow, facts, profile.permissions)
    ]
    found += [FlowFinding(Sink.TRUSTED_LATER, each, because) for each in _changed_files(assessment, flow, facts)]
    if Tier.DANGEROUS in assessment.tiers:
        found.append(FlowFinding(Sink.DANGEROUS, "", because))
    return tuple(found)


def _changed_files(assessment: Assessment, flow: FlowState, facts: Facts) -> tuple[str, ...]:
    """Return the files that the action changes and that are trusted later, as text for the user.

    What a command changes is seen on the disk afterwards. If nothing looks afterwards, or if the command stays beside
    later actions, then what its words say must be enough, and code that is not read may change any file.
    """
    action = assessment.action
    found: list[str] = []
    if flow.copied:
        return ()
    if isinstance(action, WriteFile):
        digest = hashlib.sha256(action.content.encode("utf-8", "surrogatepass")).hexdigest()
        found = [] if (action.path, digest) in flow.approved else _later(action.path, facts)
    elif isinstance(action, EditFile):
        found = _later(action.path, facts)
    elif isinstance(action, CallServerTool):
        found = [each for path in paths_in(action) for each in _later(_absolute(path, facts), facts)]
    elif isinstance(action, WriteProcess):
        found = [_UNCOMPARED] if action.writes else []
    elif not flow.undo or (isinstance(action, StartProcess) and action.stays):
        for effect in assessment.effects:
            if effect.kind in _UNREAD:
                found.append(_UNCOMPARED)
            elif effect.kind in _CHANGES and effect.scope is Scope.WORKSPACE:
                found += _later(effect.target, facts) if effect.exact else ["files that are not known before"]
    return tuple(dict.fromkeys(found))


def _absolute(path: str, facts: Facts) -> str:
    """Return the path that a server may read `path` as: below the workspace, unless it is absolute."""
    path = path.removeprefix("file://")
    names = [name for name in path.split("/") if name not in ("", ".")]
    return f"{'' if path.startswith('/') else facts.workspace}/{'/'.join(names)}"


def _later(path: str, facts: Facts) -> list[str]:
    """Return the file with what it is trusted as, as text for the user; empty for an ordinary file."""
    workspace = facts.workspace
    real = facts.look(path).real if path.startswith("/") else path
    what = trusted_later(real, workspace) or trusted_later(path, workspace)
    if not what:  # a link with such a name may lead to the file
        links = (f"{workspace}/{name}" for name in facts.names(workspace) or ())
        what = next((found for link in links if (found := trusted_later(link, workspace))
                     and facts.look(link).real == real), "")  # fmt: skip
    return [f"{path.removeprefix(workspace + '/')} ({what})"] if what else []


def guarded(
    assessment: Assessment, flow: FlowState, findings: tuple[FlowFinding, ...], mode: Mode, matrix: Matrix = MATRIX
) -> Assessment:
    """Return `assessment` with what the findings require: questions, and rules that no longer answer. Unless `flow` is
    in the mode `guard`, nothing changes.

    INVARIANT: the verdict on the result is never looser than that on `assessment`.
    """
    if flow.mode is not FlowMode.GUARD:
        return assessment
    asked = [each.reason for each in findings if each.sink is Sink.TRUSTED_LATER or each.private]
    if any(each.sink is Sink.DANGEROUS for each in findings):
        asked += [each.reason for each in findings if each.sink is Sink.DANGEROUS]
    sends = [each for each in findings if each.sink is Sink.SENDS]
    if not sends:
        return replace(assessment, asked=(*asked, *assessment.asked)) if asked else assessment
    # A tool of a server sends what it is called with, whatever its tier is.
    every = isinstance(assessment.action, CallServerTool)
    covered = {reason: by for reason, by in assessment.covered.items() if not every and _may_stay(reason, by)}
    shut = any(reason.tier is Tier.NETWORK and reason not in covered for reason in assessment.covered)
    closed = replace(assessment, covered=covered, opened={} if shut else assessment.opened)
    offline = not asked and starts_offline(closed, mode, matrix)
    if not offline and not asked and not _left_open(closed, mode, matrix):
        asked += [each.reason for each in sends]
    elif not offline and asked:
        asked += [each.reason for each in sends if not each.private]
    return replace(closed, asked=(*asked, *closed.asked))


def _left_open(assessment: Assessment, mode: Mode, matrix: Matrix) -> bool:
    """Return True if a reason keeps the matrix and the remaining rules from allowing the action."""
    return any(reason not in assessment.covered for reason in open_reasons(assessment, mode, matrix))


def _may_stay(reason: Reason, by: Reason) -> bool:
    """Return True if a rule still allows `reason`: it is about no sending, or the user typed it for this one action."""
    return reason.tier not in _SENDING or by.rule.kind is RuleKind.FLAG
