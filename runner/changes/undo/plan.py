"""The plan of an undo: each path, its target state, and the obstacles. Nothing is changed."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from policy.model.frozen import dataclass
from runner.changes import file_state as entry
from runner.changes.file_state import Entry, FileKind, same
from runner.changes.undo.store import Store, UndoStep
from sandbox.workspace.inventory import Changes, Finding, TreeNode


class Obstacle(Enum):
    """Reason why a path is not restored. The value is the text for the user; `{}` in it stands for a detail."""

    NOT_KEPT = "it was not kept: {}"
    SECRET = "it is left alone: {}"  # noqa: S105  # words for the user
    AUTO_RUN = "{}; it is an auto-run file; `--auto-run` restores it"
    CHANGED = "another process changed it since; `--force` overwrites that"
    UNSURE = "the runner was killed, so another process may have made this change; `--force` takes it back"
    BETWEEN = "another process changed it between these actions; `--force` overwrites that"
    UNSAFE = "its current content could not be stored; `--force` overwrites it permanently"
    STAYS = "it is not removed: it was not stored, because a tool can make it again"
    UNREACHABLE = "its folder cannot be reached: {}"
    NOT_EMPTY = "other files are in it"
    JUST_NOW = "another process changed it just now"
    FAILED = "{}"


@dataclass(frozen=True, slots=True)
class Item:
    """One path of a plan. An entry of None means that the path does not exist.

    Attributes:
        root: The folder that `path` is relative to.
        path: The path.
        now: The current entry.
        wanted: The entry to restore.
        obstacle: The reason why the path is not restored, or None.
        detail: The part of the reason that depends on the case, in words.
        moved: The current path of the same file, if its content was not stored but the file was only moved.
        mild: True if nothing is lost by leaving the path as it is.
    """

    root: str
    path: str
    now: Entry | None
    wanted: Entry | None
    obstacle: Obstacle | None = None
    detail: str = ""
    moved: str = ""
    mild: bool = False

    @property
    def problem(self) -> str:
        """Return the reason why the path is not restored, in words, or an empty string."""
        return "" if self.obstacle is None else self.obstacle.value.format(self.detail)

    @property
    def operation(self) -> str:
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
    unsure = any(step.kind == "action" and step.killed for step in steps)
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
        objection = Obstacle.BETWEEN if key in broken else None if same(now, last[key]) else Obstacle.CHANGED
        objection = objection or (Obstacle.UNSURE if unsure else None)
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
    objection: Obstacle | None,
    allowed: Allowed,
    obeyed: Finding | None,
) -> Item:
    def item(obstacle: Obstacle | None, detail: str = "", *, mild: bool = False) -> Item:
        return Item(*key, now, wanted, obstacle, detail, mild=mild)

    if wanted is None and now is not None and now.kind == FileKind.FOLDER and now.unkept == entry.LEFT_OUT:
        return item(Obstacle.STAYS, mild=True)
    folders = now is not None and wanted is not None and now.kind == wanted.kind == FileKind.FOLDER
    if wanted is not None and wanted.unkept and not folders:
        return item(Obstacle.NOT_KEPT, wanted.unkept)
    if entry.SECRET in ((now.unkept if now else ""), (wanted.unkept if wanted else "")):
        return item(Obstacle.SECRET, entry.SECRET)
    # A file that the action itself created may be removed, since that starts nothing. No file is created there.
    if obeyed is not None and (obeyed.completes or wanted is not None or objection):
        return item(Obstacle.AUTO_RUN, obeyed.why)
    if not allowed.force and now is not None and now.unkept and now.kind != FileKind.FOLDER:
        return item(Obstacle.UNSAFE)
    return item(objection if not allowed.force else None)


def _with_moves(items: list[Item], free: Callable[[Item], bool], again: bool) -> tuple[Item, ...]:
    """Replace items whose content was not stored by moves, if the same file or folder now lies elsewhere.

    SAFETY: a stored content comes from the store, unless an undo that moved it is undone (`again`). A folder that an
    action moved was not scanned at its new place, and may contain further files of the action.
    """
    sources = {
        item.now[2:4]: item
        for item in items
        if item.wanted is None and item.now is not None and item.obstacle in (None, Obstacle.UNSAFE, Obstacle.STAYS)
    }
    moved: dict[str, Item] = {}
    for item in items:
        wanted = item.wanted
        if wanted is not None and item.now is None:
            source = sources.get(wanted[2:4])
            if source is None or source.now is None or source.root != item.root or source.now.kind != wanted.kind:
                continue
            forth = again and item.obstacle is None and source.obstacle is Obstacle.STAYS
            if not (item.obstacle is Obstacle.NOT_KEPT or forth) or not free(item):
                continue
            if wanted.kind == FileKind.FOLDER or (source.now.size, source.now.mtime) == (wanted.size, wanted.mtime):
                moved[source.path] = Item(item.root, item.path, None, wanted, moved=source.path)
    targets = {item.path for item in moved.values()}
    kept = [item for item in items if item.path not in moved and item.path not in targets]
    return tuple(sorted((*kept, *moved.values()), key=lambda item: (item.root, item.path)))
