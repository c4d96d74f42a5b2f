"""The recorded changes of commands, judged by another policy. Runs nothing."""

import itertools
from collections.abc import Iterator, Mapping

from policy.flow.state import FlowMode
from policy.flow.trusted_later import trusted_later
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.permission.paths import denies_any_command, touches
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import beginning, items, mapping, number
from runner.audit.reports.replay import Policy

_COMMANDS = ("RunScript", "RunArgv")
_MOST = 200  # changes of one command, which is what a record contains


@dataclass(frozen=True, slots=True)
class ReplayedChange:
    """One recorded change that the other policy would not have let through.

    Attributes:
        path: absolute path of the file
        how: `added`, `modified`, `deleted` or `written`
        reason: `protected` (a rule denies the path) or `trusted-later`
        why: the reason in words
    """

    path: str
    how: str
    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class ReplayedChanges:
    """The changes of one command that the other policy would not have let through.

    Attributes:
        changes: these changes
        unknown: number of further changes of the command, whose paths are not recorded
    """

    deed: DecisionTrail
    changes: tuple[ReplayedChange, ...]
    unknown: int


def changes_under(deed: DecisionTrail, policy: Policy, facts: Facts) -> ReplayedChanges | None:
    """Return the applied changes of the command that `policy` denies or holds back; None if there are none."""
    if beginning(mapping(deed.body.get("action")).get("type")) not in _COMMANDS:
        return None  # the verdict covers the exact change
    done = mapping(deed.outcome.get("transaction"))
    listed, count = ("files", "count") if done else ("changed", "changes")  # without a transaction: what undo found
    done = done or mapping(deed.outcome)
    files = [*map(mapping, itertools.islice(items(done.get(listed)), _MOST))]
    found = tuple(change for each in files if (change := _judged(each, deed, policy, facts)) is not None)
    if not found:
        return None
    return ReplayedChanges(deed, found, max(0, int(number(done.get(count)) or 0) - len(files)))


def _judged(file: Mapping[str, object], deed: DecisionTrail, policy: Policy, facts: Facts) -> ReplayedChange | None:
    path, how = beginning(file.get("path")), beginning(file.get("how"))
    if not path.startswith(f"{facts.workspace}/"):
        return None
    for why in _denials(path, how, policy, facts):
        return ReplayedChange(path, how, "protected", why)
    flow = mapping(deed.body.get("flow"))  # only after untrusted text
    mode = (policy.flow.value if policy.flow is not None else beginning(flow.get("mode"))) if flow else ""
    if mode == FlowMode.GUARD.value and how != "deleted" and (what := trusted_later(path, facts.workspace)):
        return ReplayedChange(path, how, "trusted-later", f"it is {what}, which is trusted later")
    return None


def _denials(path: str, how: str, policy: Policy, facts: Facts) -> Iterator[str]:
    """Yield the reasons of the rules that deny changes of the path to any command. A rule that denies reading protects
    files that exist.
    """
    for rule in policy.profile.permissions:
        if not denies_any_command(rule) or rule.expired(facts.today):
            continue
        patterns = (*rule.write, *rule.read) if how in ("modified", "deleted") else rule.write
        if any(touches(pattern, path, facts, below=False) for pattern in patterns):
            yield f"{rule.why or 'a rule denies it'} ({rule.ref})"
