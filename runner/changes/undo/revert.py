"""Undo and redo of actions, without the text of the report."""

import errno
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, Terms
from runner.changes.file_state import Change
from runner.changes.undo.apply import restore
from runner.changes.undo.change_scan import Rules
from runner.changes.undo.lock import UndoError
from runner.changes.undo.plan import Allowed, Item, Obstacle, plan
from runner.changes.undo.scope import SnapshotScope, below_root, inventory_of
from runner.changes.undo.snapshot import FULL, Bounds, Snapshotter, complete_interrupted
from runner.changes.undo.store import Roots, Store, UndoStep, undoable
from runner.state.lineage import SessionLineage
from runner.text.phrases import os_reason
from sandbox.linux.launch import known_trees, survey
from sandbox.workspace.autorun import Watch


class RevertRecord(Protocol):
    """A recorder of an undo: `begin` is called before the first file is restored, and `end` with what was restored."""

    def begin(self, changes: Sequence[Change], steps: int) -> None: ...

    def end(self, changes: Sequence[Change]) -> None: ...


@dataclass(frozen=True, slots=True)
class RevertRequest:
    """The request to undo the last `count` actions.

    Attributes:
        count: The number of actions.
        redo: True to undo the last undo instead.
        dry: True to return the plan without executing it.
        allowed: The options that permit more than a plain undo.
        session: The session that the undo is recorded for.
        lineage: The runs whose actions are undone, or None for all actions.
        record: The recorder of the undo, or None.
    """

    count: int = 1
    redo: bool = False
    dry: bool = False
    allowed: Allowed = Allowed()
    session: str = ""
    lineage: SessionLineage | None = None
    record: RevertRecord | None = None


@dataclass(frozen=True, slots=True)
class RevertResult:
    """The result of an undo.

    Attributes:
        steps: The undone steps.
        items: Every path of these steps that was not in its target state.
        step: The number of the undo, or None if nothing was done.
        aside: Files that had to be set aside, in words.
        dead: The steps of a killed runner that were ended first.
    """

    steps: tuple[UndoStep, ...]
    items: tuple[Item, ...]
    step: int | None
    aside: tuple[str, ...] = ()
    dead: tuple[UndoStep, ...] = ()

    @property
    def whole(self) -> bool:
        """Return True if every path was restored or loses nothing by staying as it is (`Item.mild`), and no file was
        set aside.
        """
        return all(item.obstacle is None or item.mild for item in self.items) and not self.aside


def revert(store: Store, scope: SnapshotScope, request: RevertRequest) -> RevertResult:
    """Restore the files. Raise UndoError if there is nothing to undo or an action runs, and OSError or sqlite3.Error if
    the state folder cannot be written at all.
    """
    with store.turns.locked():
        store.turns.refuse_running("nothing was undone")
        bounds = scope.choice.bounds
        try:
            return _reverted(store, bounds, scope, request)
        except OSError as error:
            if error.errno not in FULL:
                raise
        # The state folder is full: stored contents are restored, and the current ones are not stored.
        return _reverted(store, replace(bounds, bytes=0), scope, request)


def _reverted(store: Store, bounds: Bounds, scope: SnapshotScope, request: RevertRequest) -> RevertResult:
    snapshotter = Snapshotter(store, bounds, threading.Event(), may_drop=False)
    with store.transaction():
        dead = tuple(_recovered(store, snapshotter, scope))
    steps = _chosen(store, request)
    roots = _roots(store, steps)
    terms = scope.terms(tuple(root for root, _ in roots))
    rules = scope.rules(terms)
    with store.transaction():
        away = {root: _scanned(snapshotter, root, paths, below_root(rules, root)) for root, paths in roots}
        items = plan(
            store, steps, request.allowed, lambda root, changes: inventory_of(scope, terms, root).findings(changes)
        )
        items = tuple(
            replace(item, obstacle=Obstacle.UNREACHABLE, detail=away[item.root]) if away[item.root] else item
            for item in items
        )
        doable = [item for item in items if item.obstacle is None]
        if request.dry or not doable:
            if not request.dry and all(item.mild for item in items):
                _mark_undone(store, steps, request)
            return RevertResult(steps, items, None, dead=dead)
        ids = tuple(step.id for step in steps)
        kind, words = "redo" if request.redo else "undo", ", ".join(map(str, ids))
        changes = [Change(item.root, item.path, item.now, item.wanted) for item in doable]
        changes += [Change(item.root, item.moved, item.wanted, None) for item in doable if item.moved]
        if request.record is not None:
            request.record.begin(changes, len(ids))
        number = store.begin(kind, words, request.session, "", roots, ids)
        store.note(number, changes)
    items, aside = _restored(store, scope, request, terms, items, number)
    with store.transaction():
        reached = {item.root for item in items if item.obstacle is None}
        wanted = {(change.root, change.path) for change in store.changes(number)}
        store.delete_changes(number)
        for root, paths in roots:
            if root in reached:
                taken = snapshotter.take_paths(root, paths, below_root(rules, root))
                store.note(number, (each for each in taken.changes if (each.root, each.path) in wanted))
        failed = [item for item in items if item.obstacle is not None and not item.mild]
        store.end(number, tuple(f"`{item.path}`: {item.problem}" for item in failed))
        # The steps are undone unless a later undo can still restore a path of them.
        if all(item.obstacle is Obstacle.NOT_KEPT for item in failed):
            _mark_undone(store, steps, request, number)
    if request.record is not None:
        request.record.end(store.changes(number))
    return RevertResult(steps, items, number, aside, dead)


def recovered(store: Store, scope: SnapshotScope) -> list[UndoStep]:
    """End the steps of a killed runner, if there are any, and return them."""
    with store.turns.locked():
        if not store.turns.alone():
            return []
        with store.transaction():
            return _recovered(store, Snapshotter(store, scope.choice.bounds, threading.Event()), scope)


def _recovered(store: Store, snapshotter: Snapshotter, scope: SnapshotScope) -> list[UndoStep]:
    roots = {root for step in store.open_steps() for root, _ in step.roots}
    if not roots:
        store.notices += complete_interrupted(store.folder)
        return []
    rules = scope.rules(scope.terms(tuple(sorted(roots))))
    return snapshotter.recover(lambda root: below_root(rules, root))


def _restored(
    store: Store, scope: SnapshotScope, request: RevertRequest, terms: Terms, items: tuple[Item, ...], number: int
) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Execute the plan. Return its items with their obstacles, and the files that were set aside, in words."""
    trees = known_trees(scope.cache)
    # THREAT T16: a restored auto-run file is checked as if a command had created it, also if it is an auto-run file
    # only because of another file (a `HEAD` beside `hooks`).
    found = survey(terms, "", scope.cache)
    # A path that is masked only because this user could not open it is not a secret.
    found = replace(found, masked=tuple(path for path in found.masked if path not in found.closed))
    watch = None if request.allowed.auto_run else Watch(terms, found, scope.aside, trees)
    items = _mark_mild(restore(store, items, number))
    return items, tuple(f"{each.what}: {each.fix}" for each in watch.settle()) if watch is not None else ()


def _mark_mild(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Mark a folder as mild if it stays only because it contains a mild item."""
    stay = [f"{item.root}/{item.path}" for item in items if item.mild]

    def mild(item: Item) -> bool:
        inner = f"{item.root}/{item.path}/"
        return item.obstacle is Obstacle.NOT_EMPTY and any(path.startswith(inner) for path in stay)

    return tuple(replace(item, mild=True) if mild(item) else item for item in items)


def _scanned(snapshotter: Snapshotter, root: str, paths: tuple[str, ...], rules: Rules) -> str:
    """Scan the paths. Return the reason if they cannot be scanned, else an empty string."""
    try:
        snapshotter.take_paths(root, paths, rules)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            raise
        return os_reason(error)
    return ""


def _mark_undone(store: Store, steps: tuple[UndoStep, ...], request: RevertRequest, number: int | None = None) -> None:
    """Mark these steps as undone, including the paths that could not be restored."""
    if request.redo:
        for step in steps:
            store.free_undone(step.id)
    store.mark(tuple(step.id for step in steps), number or -1)


def _chosen(store: Store, request: RevertRequest) -> tuple[UndoStep, ...]:
    if request.redo:
        undos = tuple(step for step in store.steps() if step.kind == "undo" and step.undone is None)
        if not undos:
            raise _nothing("there is no undo here that could be reversed")
        return undos[:1]
    own = undoable(store, request.lineage)
    of, undo = ("of an agent", "agent undo") if request.lineage is None else ("of this session", "/undo")
    if not own:
        raise _nothing(f"no action {of} changed a file here, or all of them were undone already")
    if len(own) < request.count:
        stored = "1 stored action can" if len(own) == 1 else f"{len(own)} stored actions can"
        why = f"only {stored} be undone{'' if request.lineage is None else ', of this session'}"
        raise _nothing(why, f"write {undo} {len(own)}", what=f"{request.count} actions cannot be undone")
    return own[: request.count]


def _nothing(
    why: str, fix: str = "`agent undo --list` shows the stored actions", what: str = "there is nothing to undo"
) -> UndoError:
    return UndoError(Problem(what, why, fix))


def _roots(store: Store, steps: tuple[UndoStep, ...]) -> Roots:
    paths_by_root: dict[str, set[str]] = {}
    for step in steps:
        for change in store.changes(step.id):
            paths_by_root.setdefault(change.root, set()).add(change.path)
    return tuple((root, tuple(sorted(paths))) for root, paths in sorted(paths_by_root.items()))
