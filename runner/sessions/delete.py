"""Deletion of a session with the outputs that were stored for it alone."""

import shutil
from pathlib import Path

from runner.sessions.entries import Unsound
from runner.sessions.store import Store
from runner.sessions.tree import Tree


def remove_session(state: Path, store: Store, id: str) -> None:
    """Delete the file and the outputs of the session's own runs. Raise SessionError, also if a process uses the
    session.
    """
    with store.reading(id) as file:
        try:
            runs = _runs(Tree(file), id)
        except Unsound:  # damaged: its first run, which has the name of the session, is what is known
            runs = [id]
    store.remove(id)
    for name in runs:
        outputs = state / "outputs" / name
        if outputs.is_dir() and not outputs.is_symlink():
            shutil.rmtree(outputs)  # SAFETY: openat(2), unlinkat(2): it follows no link inside


def _runs(tree: Tree, id: str) -> list[str]:
    """Return the runs that worked on this session: 16 hex digits each, so they name no other path. Raise Unsound.

    The first of them has the session's own name. Runs before it are a fork's copy of another session's.
    """
    names = [str(entry.body["audit"]) for _, entry in tree.entries(range(len(tree)), ("run",))]
    return list(dict.fromkeys(names[names.index(id) :])) if id in names else [id]
