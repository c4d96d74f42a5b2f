"""Application of a patch plan: all files of it, or none. The previous state is stored for `agent undo`."""

import hashlib
import os
import stat
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.changes import safe_open
from runner.changes.file_state import Entry, FileKind, entry_of
from runner.changes.review import tree_diff
from runner.changes.review.apply_plan import PatchPlan, PlannedChange
from runner.changes.review.patch_format import LINK, PROGRAM, Side
from runner.changes.review.patch_parser import PatchError
from runner.changes.review.risk_flags import changes_of
from runner.changes.undo.apply import restore
from runner.changes.undo.blobs import BlobPlace
from runner.changes.undo.plan import Item, Obstacle
from runner.changes.undo.scope import SnapshotScope, below_root, inventory_of
from runner.changes.undo.snapshot import Snapshotter
from runner.changes.undo.store import Store


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an application.

    Attributes:
        step: The number for `agent undo`, or None if no stored file changed.
        lasting: The paths that `agent undo` cannot restore: secrets, and files in folders whose content is not stored.
    """

    step: int | None
    lasting: tuple[str, ...]


def apply(
    plan: PatchPlan, scope: SnapshotScope, store: Store, words: str, session: str, warned: Collection[str] | None = None
) -> Applied:
    """Apply all of `plan`, which must have no problem.

    `warned` are the auto-run files that the user was warned about; None to apply without this check. Raise
    PatchError after a failure: then every file is unchanged, or the error names changed files (at most five). Raise
    UndoError if an action runs, and OSError or sqlite3.Error.
    """
    root = scope.workspace
    with store.turns.locked():
        store.turns.refuse_running("nothing was applied")
        terms = scope.terms(())
        rules = scope.rules(terms)
        store.use_rules(scope.digest(terms))
        snapshotter = Snapshotter(store, scope.choice.bounds, threading.Event())
        items = tuple(_items(root, plan.items))
        paths = tuple(item.path for item in items)
        with store.transaction():
            snapshotter.recover(lambda each: below_root(rules, each))
            snapshotter.take_paths(root, paths, below_root(rules, root))
            _keep(store, plan.items)
        _require_unchanged(root, plan.items)
        # New auto-run files that the user was not warned about.
        news = inventory_of(scope, terms, root).findings(changes_of(plan.items)) if warned is not None else {}
        for path in news.keys() - set(warned or ()):
            raise PatchError(Problem("nothing was applied", f"`{path}`: now, {news[path].why}", "check it again"))
        with store.transaction():
            step = store.begin("action", words, session, "", ((root, paths),))
        done = restore(store, items, step)
        if failed := [item for item in done if item.obstacle not in (None, Obstacle.NOT_EMPTY)]:
            with safe_open.opened_root(root) as top:
                reverse = [
                    Item(root, item.path, _now(top, item.path), item.now) for item in done if item.obstacle is None
                ]
            left = [item.path for item in restore(store, reverse, step) if item.obstacle is not None]
        with store.transaction():
            after = snapshotter.take_paths(root, paths, below_root(rules, root))
            store.note(step, after.changes)
            changes = store.changes(step)
            unkept = {each.path for each in changes for entry in (each.before, each.after) if entry and entry.unkept}
            kept = {each.path for each in changes} - unkept
            lasting = tuple(item.path for item in done if item.path not in kept)
            store.end(step, tuple(f"not kept: {path}" for path in lasting) if kept else ())
    if failed:
        raise PatchError(_failure(failed, left))
    return Applied(step if kept else None, lasting)


def _failure(failed: list[Item], left: list[str]) -> Problem:
    first = failed[0]
    why = f"`{first.path}`: {first.problem}"
    if left:
        named = ", ".join(f"`{each}`" for each in left[:5])
        return Problem("the patch was applied in part", f"{why}; not put back: {named}", "check these files yourself")
    return Problem("nothing was applied", why, "no file was changed; try again")


def _items(root: str, planned: Iterable[PlannedChange]) -> list[Item]:
    """Return every path that changes, with the folders to create and the folders that become empty."""
    mask = os.umask(0)
    os.umask(mask)
    after: dict[str, Side | None] = {}
    for each in planned:
        if each.was:
            after[each.was] = None
        after[each.path] = each.new
    with safe_open.opened_root(root) as top:
        before = {path: _now(top, path) for path in after}
        items = {
            path: Item(root, path, before[path], _wanted(side, before[path], mask)) for path, side in after.items()
        }
        for path, side in after.items():
            if side is not None:
                _make(top, root, path, items, mask)
        for path in sorted(after, key=lambda path: -path.count("/")):
            now = before[path]
            if after[path] is None or (now is not None and now.kind == FileKind.FOLDER):
                _drop(top, root, path, items)
    return [items[path] for path in sorted(items)]


def _make(top: int, root: str, path: str, items: dict[str, Item], mask: int) -> None:
    above = safe_open.split(path)[0]
    while above:
        known = items.get(above)
        if known is None or known.wanted is None:
            now = _now(top, above)
            if now is not None and now.kind == FileKind.FOLDER:
                return
            folder = Entry(FileKind.FOLDER, 0o777 & ~mask, 0, 0, 0, time.time_ns(), 0, False)
            items[above] = Item(root, above, now, folder)
        above = safe_open.split(above)[0]


def _drop(top: int, root: str, path: str, items: dict[str, Item]) -> None:
    """Add the folders that become empty to `items`, from the inside out."""
    inner = _now(top, path)
    above = path if inner is not None and inner.kind == FileKind.FOLDER else safe_open.split(path)[0]
    while above:
        now = _now(top, above)
        if now is None or now.kind != FileKind.FOLDER:
            return
        names = set()
        with suppress(OSError), safe_open.folder(top, above) as handle:
            names = set(os.listdir(handle))
        for name in names:
            item = items.get(f"{above}/{name}")
            if item is None or item.wanted is not None:
                return
        if any(item.wanted is not None and item.path.startswith(f"{above}/") for item in items.values()):
            return
        if above not in items:
            items[above] = Item(root, above, now, None)
        above = safe_open.split(above)[0]


def _now(top: int, path: str) -> Entry | None:
    above, name = safe_open.split(path)
    try:
        with safe_open.folder(top, above) as folder:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(name, dir_fd=folder))
    except OSError:
        return None
    side = tree_diff.side(top, path) if stat.S_ISREG(status.st_mode) else None
    return entry_of(status, False, _digest(side.data) if side is not None else content)


def _wanted(side: Side | None, now: Entry | None, mask: int) -> Entry | None:
    """Return the target state of a file. The owner and all rights except execution, which a patch does not state,
    stay.
    """
    if side is None:
        return None
    if side.mode == LINK:
        return Entry(FileKind.LINK, 0o777, 0, 0, len(side.data), time.time_ns(), 0, False, side.data)
    if now is not None and now.kind == FileKind.FILE:
        mode, uid, gid = now.mode, now.uid, now.gid
    else:
        mode, uid, gid = 0o666 & ~mask, -1, -1
    if side.mode == PROGRAM and not mode & 0o100:
        mode |= (mode & 0o444) >> 2
    elif side.mode != PROGRAM:
        mode &= ~0o111
    size, content = len(side.data), _digest(side.data)
    return Entry(FileKind.FILE, mode, 0, 0, size, time.time_ns(), 0, False, content, "", uid, gid)


def _keep(store: Store, planned: Iterable[PlannedChange]) -> None:
    """Store the old and the new content of every file, also of files that `agent undo` does not store, so that a
    failure can be reverted.
    """
    places: dict[bytes, BlobPlace] = {}
    for each in planned:
        for side in (each.old, each.new):
            if side is None or side.mode == LINK:
                continue
            digest = _digest(side.data)
            if digest not in places and store.place(digest) is None:
                places[digest] = store.packs.add(side.data)
    store.packs.flush()
    if places:
        store.keep(places)


def _require_unchanged(root: str, planned: Iterable[PlannedChange]) -> None:
    """Raise PatchError if a file is no longer in the state that the plan was made for."""
    with safe_open.opened_root(root) as top:
        for each in planned:
            for path, side in ((each.was, each.old), (each.path, None)) if each.was else ((each.path, each.old),):
                try:
                    same = tree_diff.side(top, path) == side
                except tree_diff.UnreadableFile:
                    same = False
                if not same:
                    why = f"`{path}`: {Obstacle.JUST_NOW.value}"
                    raise PatchError(Problem("nothing was applied", why, "try again"))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
