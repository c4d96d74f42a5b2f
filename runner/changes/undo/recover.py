"""After a runner was killed: what its last step did is noted now, and what an undo left lying about is removed."""

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


def recover(store: Store, taker: Snapshotter, rules: Callable[[str], Rules]) -> list[Step]:
    """Bring the steps that never ended to an end; answers them. The store is locked, with a transaction open, and no
    action runs: else they are not dead."""
    dead = store.open_steps()
    for step in dead:
        if step.kind != "action":
            _finish_undo(store, taker, rules, step)
        else:
            for root, paths in step.roots:
                with contextlib.suppress(OSError):  # the folder itself is gone: then nothing of it can be noted
                    _clean(root, paths, step.id)  # of a patch that was being applied
                    taken = taker.take_paths(root, paths, rules(root)) if paths else taker.take(root, rules(root))
                    store.note(step.id, taken.changes)
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time.time()))
        store.end(step.id, (*step.notes, f"{KILLED} {until} may be among it"))
    return dead


def _finish_undo(store: Store, taker: Snapshotter, rules: Callable[[str], Rules], step: Step) -> None:
    planned = store.changes(step.id)
    store.unnote(step.id)
    for root, paths in step.roots:
        with contextlib.suppress(OSError):  # as above
            _clean(root, paths, step.id)
            taker.take_paths(root, paths, rules(root))
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
    """What was known of `root` at the last look, whole or of single paths."""
    return store.index(root) or store.index(f"{root}{PARTLY}")


def last_entry(store: Store, root: str, path: str) -> Entry | None:
    """What was at `path` at the last look."""
    index, folder = last_index(store, root), ""
    *above, last = path.split("/")
    for name in above:
        entry = index.get(folder, {}).get(name)
        if entry is None or entry.kind != Kind.FOLDER:
            return None
        folder = f"{folder}/{name}" if folder else name
    return index.get(folder, {}).get(last)
