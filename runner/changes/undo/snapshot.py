"""The snapshot of one root: scan, read and store changed files, and return the changes since the last snapshot."""

import contextlib
import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from policy.model.frozen import dataclass
from runner.changes import file_state, safe_open
from runner.changes.file_state import Change, Entry, FileKind, clock_margin, entry_of, same, stamp
from runner.changes.undo.blobs import LARGE, BlobPlace
from runner.changes.undo.change_scan import Index, Rules, ScanResult, ScanStopped, TooMany, scan, scan_paths
from runner.changes.undo.store import PARTLY, Store, UndoStep
from runner.secrets.secret import holds_masked, longest_masked
from sandbox.inside.regular_file import read_descriptor

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of writing to the store; reading never causes them
_KILLED = "the runner was killed while it ran; what anybody else changed until"
DRAFT = ".ringfence-undo-"  # prefix of temporary files that will be renamed to their final names


class _HoldsSecret(Exception):
    """An error for a content with a registered secret. Such a content is not stored."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the store: the number of steps, the bytes of all contents, and the bytes of one file."""

    steps: int = 100
    bytes: int = 2 << 30
    file: int = 500 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of a snapshot.

    Attributes:
        changes: The changes since the last snapshot.
        unkept: The changes whose new content is not stored.
    """

    changes: tuple[Change, ...]
    unkept: tuple[Change, ...]


class Snapshotter:
    """A writer of snapshots to `store`. The store must be locked with a transaction open whenever a method runs."""

    def __init__(self, store: Store, bounds: Bounds, stop: threading.Event, *, may_drop: bool = True) -> None:
        self._may_drop = may_drop  # True if older steps may be deleted to make room
        self._store = store
        self._bounds = bounds
        self._stop = stop

    def take(self, root: str, paths: tuple[str, ...], rules: Rules) -> Snapshot:
        """Take a snapshot of `paths` below the folder `root`, or of everything below it if there are none. Raise
        OSError, TooMany, or ScanStopped.

        If the root has grown too large, take a snapshot of all paths of the last scan, so that new files cannot hide a
        deletion.
        """
        if paths:
            return self.take_paths(root, paths, rules)
        known = self._store.index(root)
        try:
            return self._store_changes(root, root, known, scan(root, known, rules, self._stop))
        except TooMany:
            if not known:
                raise
            every = (f"{folder}/{name}" if folder else name for folder, names in known.items() for name in names)
            return self.take_paths(root, tuple(every), rules)

    def take_paths(self, root: str, paths: tuple[str, ...], rules: Rules) -> Snapshot:
        """Take a snapshot of `paths` below `root` and the folders above them. Raise OSError."""
        # A scan of single paths must never be used as a scan of the whole root.
        key = root if self._store.index(root) else f"{root}{PARTLY}"
        known = self._store.index(key)
        return self._store_changes(root, key, known, scan_paths(root, known, rules, paths))

    def recover(self, rules: Callable[[str], Rules]) -> list[UndoStep]:
        """End the steps of killed runners, store their changes, and return the steps.

        No action may run, since its step would be open as well. Changes of a command that were being applied are
        completed first, or taken back (THREAT T305).
        """
        self._store.notices += complete_interrupted(self._store.folder)
        dead = self._store.open_steps()
        for step in dead:
            noted = self._store.changes(step.id)
            if step.kind != "action":
                self._store.delete_changes(step.id)
            for root, paths in step.roots:
                with contextlib.suppress(OSError):  # the root no longer exists, so its changes cannot be stored
                    _clean(root, paths, step.id)
                    if step.kind == "action":
                        self._store.note(step.id, self.take(root, paths, rules(root)).changes)
                    else:
                        self.take_paths(root, paths, rules(root))
            if step.kind != "action":
                now = (replace(each, after=self._store.last_entry(each.root, each.path)) for each in noted)
                self._store.note(step.id, now)
            until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            self._store.end(step.id, (*step.notes, f"{_KILLED} {until} may be among it"), killed=True)
        return dead

    def _store_changes(self, root: str, key: str, known: Index, seen: ScanResult) -> Snapshot:
        store = self._store
        self._read(root, known, seen.index, seen.fresh)
        changed = [folder for folder, names in seen.index.items() if known.get(folder) != names]
        changes = tuple(_differences(root, known, seen.index, (*changed, *seen.gone)))
        if changed or seen.gone:
            store.store_scan(key, seen.index, changed, seen.gone)
        unkept = tuple(each for each in changes if each.after is not None and each.after.unkept)
        return Snapshot(changes, unkept)

    def _read(self, root: str, known: Index, index: Index, fresh: dict[str, list[str]]) -> None:
        """Store the contents of the fresh files, as far as there is room."""
        small = self._without_room(known, index, fresh) if fresh else {}
        places: dict[bytes, BlobPlace] = {}
        try:
            with safe_open.opened_root(root) as top:
                for folder, names in fresh.items():
                    if self._stop.is_set():
                        raise ScanStopped
                    try:
                        with safe_open.folder(top, folder) as above:
                            for name in names:
                                entry = index[folder][name]
                                if (folder, name) in small:
                                    index[folder][name] = entry._replace(unkept=small[folder, name], settled=False)
                                    continue
                                index[folder][name] = self._file(name, above, entry, places)
                    except OSError as error:
                        if error.errno in FULL:
                            raise
                        continue  # the folder was removed meanwhile, so its files are not stored
            self._store.packs.flush()
        except BaseException:
            self._store.packs.give_up()
            raise
        if places:
            self._store.keep(places)

    def _file(self, name: str, above: int, entry: Entry, places: dict[bytes, BlobPlace]) -> Entry:
        """Return the entry of one file with its stored content, or with the reason why it is not stored."""
        for _ in range(3):
            try:
                handle, status = safe_open.open_file(name, above)
            except OSError:
                return entry  # with the reason CLOSED, which the scan set
            try:
                settled = status.st_ctime_ns < time.time_ns() - clock_margin(status.st_ctime_ns)
                digest = self._content(handle, status.st_size, places)
                after = os.fstat(handle)
            except _HoldsSecret:
                return entry_of(status, settled, b"", file_state.SECRET)
            finally:
                os.close(handle)
            if digest is not None and stamp(after) == stamp(status):
                return entry_of(status, settled, digest)
        return entry_of(after, False, b"", file_state.MOVING)

    def _content(self, handle: int, size: int, places: dict[bytes, BlobPlace]) -> bytes | None:
        """Store the content and return its hash, or None if it changed or is too large. Raise _HoldsSecret."""
        if size > self._bounds.file:
            return None
        store = self._store
        if size >= LARGE:
            digest = _hashed(handle, size)
            if digest is None or digest in places or store.place(digest) is not None:
                return digest
            cloned = store.packs.clone(handle, size)
            if cloned is None or cloned[1] != digest:
                return None
            places[digest] = cloned[0]
            return digest
        data = read_descriptor(handle, size + 1)
        if len(data) != size:
            return None
        if holds_masked(data):
            raise _HoldsSecret
        digest = hashlib.sha256(data).digest()
        if digest not in places and store.place(digest) is None:
            places[digest] = store.packs.add(data)
        return digest

    def _without_room(self, known: Index, index: Index, fresh: dict[str, list[str]]) -> dict[tuple[str, str], str]:
        """Return the fresh files that are not stored, with the reasons. Older steps are dropped first, then the largest
        files.
        """
        sizes = [(index[folder][name].size, folder, name) for folder, names in fresh.items() for name in names]
        unkept = {(folder, name): file_state.TOO_BIG for size, folder, name in sizes if size > self._bounds.file}
        left = sorted((each for each in sizes if each[0] <= self._bounds.file), reverse=True)
        # A file that has the size of its stored content is usually unchanged, and then needs no room.
        new = [each for each in left if not _kept_already(known, *each)]
        need = sum(size for size, *_ in new)
        store = self._store
        if need > self._bounds.bytes - store.size():
            store.sweep()
        room = self._bounds.bytes - store.size()
        while need > room and self._may_drop and (count := sum(step.ended is not None for step in store.steps())):
            store.lost += store.drop_oldest(count // 2)
            store.sweep()
            room = self._bounds.bytes - store.size()
        for size, folder, name in new:
            if need <= room:
                break
            need -= size
            unkept[folder, name] = file_state.NO_ROOM
        return unkept


def complete_interrupted(store: Path) -> tuple[str, ...]:
    """Complete or take back the changes whose runner was killed while it applied them to the workspace of the folder
    `store` with its snapshots. Return reports for the user. The caller holds the lock of the workspace.
    """
    above = store.parent.parent / "transactions" / store.name
    if not above.is_dir():
        return ()
    from runner.changes.transaction.transaction import complete_abandoned  # only after a transaction

    return complete_abandoned(above)


def _differences(root: str, known: Index, index: Index, folders: Iterable[str]) -> Iterable[Change]:
    """Yield the changes in `folders`, without the content of folders that existed before and were not scanned."""
    unscanned: dict[str, bool] = {}
    hidden: set[tuple[int, int]] | None = None
    for folder in folders:
        old, new = known.get(folder), index.get(folder, {})
        if old is None and folder:
            if hidden is None:
                hidden = {found[2:4] for names in known.values() for found in names.values() if found.unkept}
            # The folder existed before and was not scanned, so its content is not new.
            above, name = safe_open.split(folder)
            unscanned[folder] = unscanned.get(above, False) or index[above][name][2:4] in hidden
            if unscanned[folder]:
                continue
        old = old or {}
        for name in old.keys() | new.keys():
            before, after = old.get(name), new.get(name)
            if before is not after and not same(before, after):
                yield Change(root, f"{folder}/{name}" if folder else name, before, after)


def _kept_already(known: Index, size: int, folder: str, name: str) -> bool:
    entry = known.get(folder, {}).get(name)
    return entry is not None and entry.kind == FileKind.FILE and not entry.unkept and entry.size == size


def _hashed(handle: int, size: int) -> bytes | None:
    digest, left = hashlib.sha256(), size + 1
    before, overlap = b"", max(longest_masked() - 1, 0)
    while left and (data := os.read(handle, min(left, 1 << 20))):
        if overlap and holds_masked(before + data):
            raise _HoldsSecret
        before = (before + data)[-overlap:] if overlap else b""
        digest.update(data)
        left -= len(data)
    os.lseek(handle, 0, os.SEEK_SET)
    return digest.digest() if left == 1 else None


def _clean(root: str, paths: tuple[str, ...], step: int) -> None:
    """Remove the temporary files of an undo, or of a patch that was being applied."""
    with safe_open.opened_root(root) as top:
        for folder in {safe_open.split(path)[0] for path in paths}:
            with contextlib.suppress(OSError), safe_open.folder(top, folder) as above:
                for name in os.listdir(above):
                    if name.startswith(f"{DRAFT}{step}-"):
                        os.unlink(name, dir_fd=above)
