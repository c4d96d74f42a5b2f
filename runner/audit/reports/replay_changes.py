"""The recorded changes of commands, judged by another policy. Runs nothing."""

import itertools
from collections.abc import Iterable, Iterator, Mapping

from policy.flow.state import FlowMode
from policy.flow.trusted_later import trusted_later
from policy.model.facts import Facts, Kind
from policy.model.frozen import dataclass
from policy.model.glob import glob
from policy.model.secret_paths import folded, inside
from policy.permission.paths import denies_any_command, touches
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import beginning, items, mapping, number, texts
from runner.audit.reports.replay import Policy
from runner.changes.transaction.judge import HeldReason, too_many
from sandbox.workspace.git_settings import OTHERS
from sandbox.workspace.inventory import BY_NAME

_COMMANDS = ("RunScript", "RunArgv")
_MOST = 200  # changes of one command, which is what a record contains


@dataclass(frozen=True, slots=True)
class ReplayedChange:
    """One recorded change that the other policy would not have let through.

    Attributes:
        path: absolute path of the file
        how: `added`, `modified`, `deleted` or `written`
        reason: `protected` (a rule denies the path), `auto-run`, `deletions` or `trusted-later`
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
    names = [name for each in files if (name := _below(beginning(each.get("path")), facts.workspace))]
    auto_run = _AutoRun(deed, policy, facts, names)
    deletions = _deletions(done, files, policy)
    found = tuple(
        change for each in files if (change := _judged(each, deed, policy, facts, auto_run, deletions)) is not None
    )
    if not found:
        return None
    return ReplayedChanges(deed, found, max(0, int(number(done.get(count)) or 0) - len(files)))


def _judged(
    file: Mapping[str, object],
    deed: DecisionTrail,
    policy: Policy,
    facts: Facts,
    auto_run: "_AutoRun",
    deletions: str,
) -> ReplayedChange | None:
    path, how = beginning(file.get("path")), beginning(file.get("how"))
    name = _below(path, facts.workspace)
    if not name:
        return None
    if how != "deleted" and auto_run.matches(name):
        return ReplayedChange(path, how, HeldReason.AUTO_RUN, BY_NAME)
    for why in _denials(path, how, policy, facts):
        return ReplayedChange(path, how, HeldReason.PROTECTED, why)
    if how == "deleted" and deletions:
        return ReplayedChange(path, how, HeldReason.DELETIONS, deletions)
    flow = mapping(deed.body.get("flow"))  # only after untrusted text
    mode = (policy.flow.value if policy.flow is not None else beginning(flow.get("mode"))) if flow else ""
    if mode == FlowMode.GUARD.value and how != "deleted" and (what := trusted_later(path, facts.workspace)):
        return ReplayedChange(path, how, HeldReason.TRUSTED_LATER, f"it is {what}, which is trusted later")
    return None


def _below(path: str, workspace: str) -> str:
    """Return the path below the workspace; empty for other paths."""
    return path[len(workspace) + 1 :] if path.startswith(f"{workspace}/") else ""


class _AutoRun:
    """The auto-run patterns of the other policy that did not judge the changes of the command already."""

    def __init__(self, deed: DecisionTrail, policy: Policy, facts: Facts, names: Iterable[str]) -> None:
        terms = mapping(deed.body.get("terms"))
        had, named = frozenset(texts(terms.get("locked"))), texts(terms.get("write"))
        patterns = (*policy.profile.locked, *policy.profile.personal)
        # A record without the patterns of its command tells nothing about what was judged by them.
        self._patterns = [folded(each).split("/") for each in patterns if each not in had] if had else []
        self._opened = [name for each in named if (name := _below(each, facts.workspace))]
        self._names = frozenset(names) if self._patterns else frozenset[str]()
        self._facts = facts

    def matches(self, name: str) -> bool:
        """Return True if a pattern matches the path below the workspace, from the top of it or of a repository in it.
        Paths that the command opened by name do not count.
        """
        if not self._patterns or any(inside(f"/{name}", f"/{each}") for each in self._opened):
            return False
        words = folded(name).split("/")
        return any(
            len(words) - start >= len(pattern)
            and all(map(glob, words[start:], pattern))
            and self._is_top("/".join(name.split("/")[:start]))
            for pattern in self._patterns
            for start in range(len(words))
        )

    def _is_top(self, folder: str) -> bool:
        """Return True for the workspace, and for a folder that is known to be the top of a repository."""
        if not folder:
            return True
        marks = tuple(f"{folder}/{mark}" for mark in (".git", *OTHERS))
        if any(inside(f"/{each}", f"/{mark}") for each in self._names for mark in marks):
            return True
        return any(self._facts.look(f"{self._facts.workspace}/{mark}").kind is not Kind.MISSING for mark in marks)


def _deletions(done: Mapping[str, object], files: Iterable[Mapping[str, object]], policy: Policy) -> str:
    """Return the reason if the other policy holds back so many deletions."""
    deleted = number(done.get("deleted"))  # not counted by older versions, and without a transaction
    count = deleted if deleted is not None else sum(beginning(each.get("how")) == "deleted" for each in files)
    return too_many(policy.most_deleted) if count > policy.most_deleted > 0 else ""


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
