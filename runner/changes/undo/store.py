"""The state of one workspace's snapshots: the last scan, the steps with their changes, and the locations of contents.

SQLite provides transactions: a killed runner leaves the state before or after. The contents are in `packs`.
"""

import contextlib
import json
import marshal
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.changes.file_state import Change, Entry, FileKind, same
from runner.changes.undo.blobs import BlobPlace, BlobStore
from runner.changes.undo.change_scan import Index
from runner.changes.undo.database import connect
from runner.changes.undo.lock import Turns, UndoError, unusable
from runner.state.lineage import SessionLineage
from runner.text.phrases import os_reason

Roots = tuple[tuple[str, tuple[str, ...]], ...]
PARTLY = "\0partly"  # suffix of a root of which only single paths were scanned
_NAME = "workspace"  # name of the file with the path of the workspace
_GONE = 30 * 86_400.0  # seconds without use until the snapshots of a missing (perhaps unmounted) workspace are removed
_STEP = "id, kind, words, session, call, started, ended, undone, killed, notes, takes_back, roots"


@dataclass(frozen=True, slots=True)
class UndoStep:
    """One action that changed files, or one undo.

    Attributes:
        id: The number of the step.
        kind: `action`, `undo` or `redo`.
        words: The action in words.
        session: The session of the action.
        call: The key of the call.
        started: The start, in seconds since 1970.
        ended: The end, or None while the step runs or after the runner was killed.
        undone: The undo of this step, or None.
        killed: True if the runner was killed while the step ran, so other processes may have made some of its changes.
        notes: Files that could not be stored, in words.
        takes_back: The steps that this undo reverted.
        roots: The folders that the action could write, each with the only paths that count (none: all).
    """

    id: int
    kind: str
    words: str
    session: str
    call: str
    started: float
    ended: float | None
    undone: int | None
    killed: bool
    notes: tuple[str, ...]
    takes_back: tuple[int, ...]
    roots: Roots


class Store:
    """The snapshots in the private folder `folder`, which is created if it is missing. One process scans at a time: use
    `turns`.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            self.folder = folder
            self.turns = Turns(folder)
        except OSError as error:
            raise unusable(folder, os_reason(error)) from None
        self.lost = 0  # steps that were deleted to make room and not reported to the user yet
        try:
            with self.turns.locked():
                self._db, self.notices = connect(folder)
                self._drop_strays()
                self.packs = BlobStore(folder, self._pack)
        except BaseException:
            self.turns.close()
            raise
        self._index: tuple[int, dict[str, Index]] | None = None
        self._dead: list[int] = []

    def close(self) -> None:
        self.packs.give_up()
        self._db.close()
        self.turns.close()

    @property
    def _pack(self) -> int:
        return int(self._db.value("pack", 0))

    # ---- the last scan

    def index(self, root: str) -> Index:
        """Return the entries of `root` at the last scan by any process."""
        version = int(self._db.value("version", 0))
        if self._index is None or self._index[0] != version:
            self._index = (version, {})
        known = self._index[1]
        if root not in known:
            rows = self._db.execute("SELECT folder, body FROM names WHERE root = ?", (os.fsencode(root),))
            known[root] = {
                os.fsdecode(folder): {name: Entry(*row) for name, row in marshal.loads(body).items()}  # noqa: S302  # written by us, in our private folder
                for folder, body in rows
            }
        return known[root]

    def last_entry(self, root: str, path: str) -> Entry | None:
        """Return the entry of `path` at the last scan, of the whole root or of single paths; None if it is unknown."""
        index, folder = self.index(root) or self.index(f"{root}{PARTLY}"), ""
        *above, last = path.split("/")
        for name in above:
            entry = index.get(folder, {}).get(name)
            if entry is None or entry.kind != FileKind.FOLDER:
                return None
            folder = f"{folder}/{name}" if folder else name
        return index.get(folder, {}).get(last)

    def roots(self) -> list[str]:
        """Return the folders that were scanned as a whole."""
        rows = self._db.execute("SELECT DISTINCT root FROM names")
        return [root for (raw,) in rows if "\0" not in (root := os.fsdecode(raw))]

    def forget(self) -> None:
        """Delete the results of all scans."""
        with self.transaction():
            self._db.execute("DELETE FROM names")
        self._index = None

    def store_scan(self, root: str, index: Index, changed: Iterable[str], gone: Iterable[str]) -> None:
        """Store the result of a scan: the folders `changed` have the entries in `index`, the folders `gone` no longer
        exist.
        """
        key = os.fsencode(root)
        bodies = ((folder, {name: _plain(entry) for name, entry in index[folder].items()}) for folder in changed)
        rows = ((key, os.fsencode(folder), marshal.dumps(body)) for folder, body in bodies)
        self._db.executemany("INSERT OR REPLACE INTO names VALUES(?, ?, ?)", rows)
        removed = ((key, os.fsencode(folder)) for folder in gone)
        self._db.executemany("DELETE FROM names WHERE root = ? AND folder = ?", removed)
        version = time.time_ns()
        left = {*gone}
        merged = {folder: names for folder, names in self.index(root).items() if folder not in left} | index
        known = self._index[1] if self._index else {}
        self._db.set_value("version", version)
        self._index = (version, {**known, root: merged})

    # ---- steps

    def begin(
        self, kind: str, words: str, session: str, call: str, roots: Roots, takes_back: tuple[int, ...] = ()
    ) -> int:
        """Begin a step and return its number. The arguments are attributes of UndoStep."""
        row = (kind, words, session, call, time.time(), json.dumps(takes_back), json.dumps(roots))
        made = self._db.execute(
            "INSERT INTO step(kind, words, session, call, started, takes_back, roots) VALUES(?, ?, ?, ?, ?, ?, ?)", row
        )
        return int(made.lastrowid or 0)

    def note(self, step: int, changes: Iterable[Change]) -> None:
        """Add changes to a step. For a path that changed twice, the first and the last state are stored."""
        for change in changes:
            key = (step, os.fsencode(change.root), os.fsencode(change.path))
            row = self._db.execute("SELECT was FROM change WHERE step = ? AND root = ? AND path = ?", key).fetchone()
            before = change.before if row is None else _entry(row[0])
            if same(before, change.after):
                self._db.execute("DELETE FROM change WHERE step = ? AND root = ? AND path = ?", key)
                continue
            entries = (before, change.after)
            bodies = (None if entry is None else marshal.dumps(_plain(entry)) for entry in entries)  # type: ignore[arg-type]  # plain values
            values = (*bodies, *map(_hash, entries))
            self._db.execute("INSERT OR REPLACE INTO change VALUES(?, ?, ?, ?, ?, ?, ?)", (*key, *values))

    def delete_changes(self, step: int) -> None:
        """Delete the changes of a step."""
        self._db.execute("DELETE FROM change WHERE step = ?", (step,))

    def end(self, step: int, notes: tuple[str, ...], *, killed: bool = False) -> None:
        """End a step. A step without changes and notes is deleted. `killed` is an attribute of UndoStep."""
        values = (time.time(), json.dumps(notes), killed, step)
        self._db.execute("UPDATE step SET ended = ?, notes = ?, killed = ? WHERE id = ?", values)
        if not notes:
            unchanged = "NOT EXISTS(SELECT 1 FROM change WHERE step = id)"
            self._db.execute(f"DELETE FROM step WHERE id = ? AND {unchanged}", (step,))  # noqa: S608  # a constant

    def mark(self, steps: tuple[int, ...], undo: int) -> None:
        """Mark the steps as undone by `undo`."""
        self._db.executemany("UPDATE step SET undone = ? WHERE id = ?", ((undo, each) for each in steps))

    def changed(self, step: int) -> int:
        """Return the number of paths that a step changed."""
        return int(self._db.execute("SELECT count(*) FROM change WHERE step = ?", (step,)).fetchone()[0])

    def free_undone(self, undo: int) -> None:
        """Mark the steps that `undo` reverted as not undone."""
        self._db.execute("UPDATE step SET undone = NULL WHERE undone = ?", (undo,))

    def steps(self) -> list[UndoStep]:
        """Return all steps, newest first."""
        return [_step(row) for row in self._db.execute(f"SELECT {_STEP} FROM step ORDER BY id DESC")]  # noqa: S608  # names of ours

    def open_steps(self) -> list[UndoStep]:
        """Return the steps that have not ended, newest first."""
        return [step for step in self.steps() if step.ended is None]

    def changes(self, step: int) -> list[Change]:
        """Return the changes of a step."""
        rows = self._db.execute("SELECT root, path, was, became FROM change WHERE step = ?", (step,))
        return [Change(os.fsdecode(row[0]), os.fsdecode(row[1]), _entry(row[2]), _entry(row[3])) for row in rows]

    # ---- contents

    def place(self, digest: bytes) -> BlobPlace | None:
        """Return the location of a content, or None if it is not stored."""
        row = self._db.execute("SELECT pack, start, size FROM content WHERE hash = ?", (digest,)).fetchone()
        return None if row is None else BlobPlace(*row)

    def keep(self, places: dict[bytes, BlobPlace]) -> None:
        """Store the locations of new contents, by their SHA-256."""
        rows = ((digest, each.pack, each.offset, each.size) for digest, each in places.items())
        self._db.executemany("INSERT OR IGNORE INTO content VALUES(?, ?, ?, ?)", rows)
        self._db.set_value("pack", max((place.pack for place in places.values()), default=self._pack))

    def size(self) -> int:
        """Return the number of bytes of all stored contents."""
        return int(self._db.execute("SELECT coalesce(sum(size), 0) FROM content").fetchone()[0])

    def drop_oldest(self, keep: int) -> int:
        """Delete the ended steps that are not among the newest `keep` steps, and return their number."""
        ids = [step.id for step in self.steps()[keep:] if step.ended is not None]
        self._db.executemany("DELETE FROM change WHERE step = ?", ((each,) for each in ids))
        self._db.executemany("DELETE FROM step WHERE id = ?", ((each,) for each in ids))
        return len(ids)

    def sweep(self) -> None:
        """Delete the contents that no step and no scan refers to."""
        live = {row[0] for row in self._db.execute("SELECT hash_was FROM change UNION SELECT hash_became FROM change")}
        for (root,) in self._db.execute("SELECT DISTINCT root FROM names").fetchall():
            for names in self.index(os.fsdecode(root)).values():
                live.update(each.content for each in names.values() if each.kind == "file")
        rows = self._db.execute("SELECT hash, pack, start, size FROM content").fetchall()
        self._db.executemany("DELETE FROM content WHERE hash = ?", ((row[0],) for row in rows if row[0] not in live))
        used: dict[int, list[tuple[bytes, BlobPlace]]] = {}
        whole: dict[int, int] = {}
        for digest, number, start, size in rows:
            whole[number] = max(whole.get(number, 0), start + size)
            if digest in live:
                used.setdefault(number, []).append((digest, BlobPlace(number, start, size)))
        for number, places in used.items():
            if sum(place.size for _, place in places) * 2 < whole[number]:
                whole[number] = -1
                for digest, place in places:
                    moved = self.packs.add(b"".join(self.packs.read(place, digest)))
                    row = (moved.pack, moved.offset, digest)
                    self._db.execute("UPDATE content SET pack = ?, start = ? WHERE hash = ?", row)
                    self._db.set_value("pack", moved.pack)
        self.packs.flush()
        self._dead = [number for number in whole if number not in used or whole[number] < 0]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the context, or none. Packs that `sweep` emptied are removed after the commit."""
        self._db.execute("BEGIN IMMEDIATE")
        self.packs.resume(self._pack)
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            self._index, self._dead = None, []
            self.packs.give_up()
            self._drop_strays()
            raise
        self._db.execute("COMMIT")
        for number in self._dead:
            self.packs.drop(number)
        self._dead = []

    def use_rules(self, rules: str) -> None:
        """Delete the results of scans made under other rules about secrets, so that all files are read again under
        `rules`.
        """
        if self._db.value("rules", "") != rules:
            self.forget()
            with self.transaction():
                self._db.set_value("rules", rules)

    def _drop_strays(self) -> None:
        """Remove the packs of interrupted snapshots."""
        packs = BlobStore(self.folder, 0)
        for number in packs.numbers() - {row[0] for row in self._db.execute("SELECT DISTINCT pack FROM content")}:
            packs.drop(number)


def _step(row: tuple[object, ...]) -> UndoStep:
    *plain, killed, notes, takes_back, roots = row
    places = tuple((root, tuple(paths)) for root, paths in json.loads(str(roots)))
    values = (*plain, bool(killed), tuple(json.loads(str(notes))), tuple(json.loads(str(takes_back))), places)
    return UndoStep(*values)  # type: ignore[arg-type]  # our own table


def _plain(entry: Entry) -> tuple[object, ...]:
    """Return the entry as plain values, from which `Entry` is created again."""
    return (str(entry.kind), *entry[1:])


def _entry(body: bytes | None) -> Entry | None:
    return None if body is None else Entry(*marshal.loads(body))  # noqa: S302  # written by us, in our private folder


def _hash(entry: Entry | None) -> bytes | None:
    return entry.content if entry is not None and entry.kind == "file" and not entry.unkept else None


def undoable(store: Store, lineage: SessionLineage | None = None) -> tuple[UndoStep, ...]:
    """Return the actions that changed files and were not undone, newest first: all of them, or those of `lineage`."""
    actions = (step for step in store.steps() if step.kind == "action" and step.undone is None)
    own = (step for step in actions if lineage is None or lineage.holds(step.session, step.id))
    return tuple(step for step in own if store.changed(step.id))


@contextlib.contextmanager
def convert_failures(folder: Path) -> Iterator[None]:
    """Convert errors of the system and of SQLite while the store in `folder` is used to UndoError."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        why = os_reason(error)
        raise unusable(folder, why) from None


def clear(folder: Path) -> int:
    """Remove everything stored in `folder` and return its size in bytes. Raise UndoError while an action runs."""
    store = Store(folder)
    try:
        with store.turns.locked():
            if not store.turns.alone():
                why = "an action of an agent is running in this workspace"
                raise UndoError(Problem("nothing was cleared", why, "wait until it is done"))
            size = sum(path.stat().st_size for path in folder.iterdir())
            # The held lock files are removed last, so that no other process uses a partly removed store.
            for path in sorted(folder.iterdir(), key=lambda path: path.name in ("lock", "active")):
                path.unlink()
            folder.rmdir()
    finally:
        store.close()
    return size


def sign(folder: Path, workspace: str) -> None:
    """Write the path of the workspace into a new `folder`, and remove the folders of workspaces that no longer exist
    and were not used for 30 days.
    """
    name = folder / _NAME
    if name.exists():
        return
    name.write_bytes(os.fsencode(workspace))
    for other in folder.parent.iterdir():
        with contextlib.suppress(OSError):  # another process removes the folder, or it has no file _NAME
            whose = os.fsdecode((other / _NAME).read_bytes())
            if not os.path.isdir(whose) and time.time() - (other / "steps.db").stat().st_mtime > _GONE:
                shutil.rmtree(other)
