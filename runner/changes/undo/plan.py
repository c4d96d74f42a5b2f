"""The plan of an undo: each path, its target state, and the obstacles. Nothing is changed."""

from collections.abc import Callable, Mapping, Sequence

from policy.model.frozen import dataclass
from runner.changes.undo import file_state as entry
from runner.changes.undo.file_state import Entry, FileKind, same
from runner.changes.undo.store import Store, UndoStep
from sandbox.workspace.inventory import Changes, Finding, TreeNode

AUTO_RUN = "it is an auto-run file; `--auto-run` restores it"
CHANGED = "another process changed it since; `--force` overwrites that"
UNSURE = "the runner was killed, so another process may have made this change; `--force` takes it back"
BETWEEN = "another process changed it between these actions; `--force` overwrites that"
UNSAFE = "its current content could not be stored; `--force` overwrites it permanently"
STAYS = "it is not removed: it was not stored, because a tool can make it again"


@dataclass(frozen=True, slots=True)
class Item:
    """One path of a plan. An entry of None means that the path does not exist.

    Attributes:
        root: The folder that `path` is relative to.
        path: The path.
        now: The current entry.
        wanted: The entry to restore.
        problem: The reason why the path is not restored, or an empty string.
        moved: The current path of the same file, if its content was not stored but the file was only moved.
        mild: True if nothing is lost by leaving the path as it is.
    """

    root: str
    path: str
    now: Entry | None
    wanted: Entry | None
    problem: str = ""
    moved: str = ""
    mild: bool = False

    @property
    def deed(self) -> str:
        """Return the operation in one or two words."""
        if self.moved:
            return "move back"
        if self.wanted is None:
            return "remove"
        if self.now is None or self.now.kind != self.wanted.kind:
            return "bring back"
        return "change back" if self.now.content != self.wanted.content else "mode"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The options that permit more than a plain undo.

    Attributes:
        force: True if changes of others may be overwritten.
        auto_run: True if files may be written that other programs run by themselves.
    """

    force: bool = False
    auto_run: bool = False


Judge = Callable[[str, Changes], Mapping[str, Finding]]


def plan(store: Store, steps: Sequence[UndoStep], allowed: Allowed, judge: Judge) -> tuple[Item, ...]:
    """Return the plan that undoes `steps`, newest first, as one.

    `judge(root, changes)` returns the changes below `root` that would create files which other programs run by
    themselves. A path that is already in its target state is not an item. The caller has just scanned every path of
    these steps.
    """
    first: dict[tuple[str, str], Entry | None] = {}
    last: dict[tuple[str, str], Entry | None] = {}
    broken: set[tuple[str, str]] = set()
    unsure = any(step.kind == "action" and any("was killed" in note for note in step.notes) for step in steps)
    for step in reversed(steps):
        for change in store.changes(step.id):
            key = (change.root, change.path)
            if key in last and not same(last[key], change.before):
                broken.add(key)
            first.setdefault(key, change.before)
            last[key] = change.after
    there = {key: now for key in sorted(first) if not same(now := store.last_entry(*key), first[key])}
    obeyed: dict[tuple[str, str], Finding] = {}
    for root in {root for root, _ in there if not allowed.auto_run}:
        changes = {path: _node(first[root, path]) for each, path in there if each == root}
        obeyed |= {(root, path): finding for path, finding in judge(root, changes).items()}
    items = []
    for key, now in there.items():
        objection = BETWEEN if key in broken else "" if same(now, last[key]) else CHANGED
        objection = objection or (UNSURE if unsure else "")
        items.append(_item(key, now, first[key], objection, allowed, obeyed.get(key)))
    again = all(step.kind == "undo" for step in steps)
    return _with_moves(items, lambda item: (item.root, item.path) not in obeyed, again)


def _node(entry: Entry | None) -> TreeNode | None:
    if entry is None:
        return None
    if entry.kind == FileKind.LINK:
        return TreeNode("link", entry.content)
    return TreeNode("folder" if entry.kind == FileKind.FOLDER else "file")


def _item(
    key: tuple[str, str],
    now: Entry | None,
    wanted: Entry | None,
    objection: str,
    allowed: Allowed,
    obeyed: Finding | None,
) -> Item:
    def item(problem: str, mild: bool = False) -> Item:
        return Item(*key, now, wanted, problem, mild=mild)

    if wanted is None and now is not None and now.kind == FileKind.FOLDER and now.unkept == entry.LEFT_OUT:
        return item(STAYS, mild=True)
    folders = now is not None and wanted is not None and now.kind == wanted.kind == FileKind.FOLDER
    if wanted is not None and wanted.unkept and not folders:
        return item(f"it was not kept: {wanted.unkept}")
    if entry.SECRET in ((now.unkept if now else ""), (wanted.unkept if wanted else "")):
        return item(f"it is left alone: {entry.SECRET}")
    # A file that the action itself created may be removed, since that starts nothing. No file is created there.
    if obeyed is not None and (obeyed.completes or wanted is not None or objection):
        return item(f"{obeyed.why}; {AUTO_RUN}")
    if not allowed.force and now is not None and now.unkept and now.kind != FileKind.FOLDER:
        return item(UNSAFE)
    return item(objection if not allowed.force else "")


def _with_moves(items: list[Item], free: Callable[[Item], bool], again: bool) -> tuple[Item, ...]:
    """Replace items whose content was not stored by moves, if the same file or folder now lies elsewhere.

    SAFETY: a stored content comes from the store, unless an undo that moved it is undone (`again`). A folder that an
    action moved was not scanned at its new place, and may contain further files of the action.
    """
    sources = {
        item.now[2:4]: item
        for item in items
        if item.wanted is None and item.now is not None and item.problem in ("", UNSAFE, STAYS)
    }
    moved: dict[str, Item] = {}
    for item in items:
        wanted = item.wanted
        if wanted is not None and item.now is None:
            source = sources.get(wanted[2:4])
            if source is None or source.now is None or source.root != item.root or source.now.kind != wanted.kind:
                continue
            forth = again and not item.problem and source.problem == STAYS
            if not (item.problem.startswith("it was not kept") or forth) or not free(item):
                continue
            if wanted.kind == FileKind.FOLDER or (source.now.size, source.now.mtime) == (wanted.size, wanted.mtime):
                moved[source.path] = Item(item.root, item.path, None, wanted, moved=source.path)
    targets = {item.path for item in moved.values()}
    kept = [item for item in items if item.path not in moved and item.path not in targets]
    return tuple(sorted((*kept, *moved.values()), key=lambda item: (item.root, item.path)))
