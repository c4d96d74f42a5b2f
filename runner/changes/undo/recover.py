"""Recovery after a killed runner: the changes of its last step are stored, and temporary files of an undo are
removed.
"""

import contextlib
import os
import time
from collections.abc import Callable

from runner.changes import safe_open
from runner.changes.undo.change_scan import Index, Rules
from runner.changes.undo.file_state import Change, Entry, Kind
from runner.changes.undo.snapshot import PARTLY, Snapshotter
from runner.changes.undo.store import Step, Store

KILLED = "the runner was killed while it ran; what anybody else changed until"
DRAFT = ".ringfence-undo-"  # the names of files that are about to be put in place


def recover(store: Store, snapshotter: Snapshotter, rules: Callable[[str], Rules]) -> list[Step]:
    """End the steps that never ended, and return them.

    The store must be locked with a transaction open, and no action may run, since its step would be open as well.
    """
    dead = store.open_steps()
    for step in dead:
        if step.kind != "action":
            _finish_undo(store, snapshotter, rules, step)
        else:
            for root, paths in step.roots:
                with contextlib.suppress(OSError):  # the folder itself is gone: then nothing of it can be noted
                    _clean(root, paths, step.id)  # of a patch that was being applied
                    taken = (
                        snapshotter.take_paths(root, paths, rules(root))
                        if paths
                        else snapshotter.take(root, rules(root))
                    )
                    store.note(step.id, taken.changes)
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time.time()))
        store.end(step.id, (*step.notes, f"{KILLED} {until} may be among it"))
    return dead


def _finish_undo(store: Store, snapshotter: Snapshotter, rules: Callable[[str], Rules], step: Step) -> None:
    planned = store.changes(step.id)
    store.unnote(step.id)
    for root, paths in step.roots:
        with contextlib.suppress(OSError):  # as above
            _clean(root, paths, step.id)
            snapshotter.take_paths(root, paths, rules(root))
    now = [Change(each.root, each.path, each.before, last_entry(store, each.root, each.path)) for each in planned]
    store.note(step.id, now)


def _clean(root: str, paths: tuple[str, ...], step: int) -> None:
    top = safe_open.open_root(root)
    try:
        for folder in {safe_open.split(path)[0] for path in paths}:
            with contextlib.suppress(OSError), safe_open.folder(top, folder) as above:
                for name in os.listdir(above):
                    if name.startswith(f"{DRAFT}{step}-"):
                        os.unlink(name, dir_fd=above)
    finally:
        os.close(top)


def last_index(store: Store, root: str) -> Index:
    """Return the entries of `root` at the last scan, of the whole root or of single paths."""
    return store.index(root) or store.index(f"{root}{PARTLY}")


def last_entry(store: Store, root: str, path: str) -> Entry | None:
    """Return the entry of `path` at the last scan, or None."""
    index, folder = last_index(store, root), ""
    *above, last = path.split("/")
    for name in above:
        entry = index.get(folder, {}).get(name)
        if entry is None or entry.kind != Kind.FOLDER:
            return None
        folder = f"{folder}/{name}" if folder else name
    return index.get(folder, {}).get(last)
