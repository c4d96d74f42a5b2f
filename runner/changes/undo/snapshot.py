"""The snapshot of one root: scan, read and store changed files, and return the changes since the last snapshot."""

import errno
import hashlib
import os
import threading
import time
from collections.abc import Iterable

from policy.model.frozen import dataclass
from runner.changes import safe_open
from runner.changes.undo import file_state
from runner.changes.undo.blobs import LARGE, BlobPlace
from runner.changes.undo.change_scan import Index, Rules, Seen, Stopped, TooMany, scan, scan_paths
from runner.changes.undo.file_state import Change, Entry, Kind, entry_of, same
from runner.changes.undo.store import Store
from runner.secrets.secret import holds_masked, longest_masked
from sandbox.workspace.folder_cache import SHORT_MARGIN


class _HoldsSecret(Exception):
    """An error for a content with a registered secret. Such a content is not stored."""


PARTLY = "\0partly"  # after a root: what is known of single paths in it


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
        files: The number of files that were read.
        bytes: The number of bytes that were read.
        unkept: The changes whose new content is not stored.
    """

    changes: tuple[Change, ...]
    files: int
    bytes: int
    unkept: tuple[Change, ...]


class Snapshotter:
    """A writer of snapshots to `store`. The store must be locked with a transaction open whenever a method runs."""

    def __init__(self, store: Store, bounds: Bounds, stop: threading.Event, *, may_drop: bool = True) -> None:
        self._may_drop = may_drop  # older steps, to make room
        self._store = store
        self._bounds = bounds
        self._stop = stop

    def take(self, root: str, rules: Rules) -> Snapshot:
        """Take a snapshot of everything below the folder `root`. Raise OSError, TooMany, or Stopped.

        If the root has grown too large, take a snapshot of all paths of the last scan, so that new files cannot hide a
        deletion.
        """
        known = self._store.index(root)
        try:
            return self._kept(root, root, known, scan(root, known, rules, self._stop))
        except TooMany:
            if not known:
                raise
            paths = (f"{folder}/{name}" if folder else name for folder, names in known.items() for name in names)
            return self.take_paths(root, tuple(paths), rules)

    def take_paths(self, root: str, paths: tuple[str, ...], rules: Rules) -> Snapshot:
        """Take a snapshot of `paths` below `root` and the folders above them. Raise OSError."""
        # What is known of single paths must never pass for all that there was.
        key = root if self._store.index(root) else f"{root}{PARTLY}"
        known = self._store.index(key)
        return self._kept(root, key, known, scan_paths(root, known, rules, paths))

    def _kept(self, root: str, key: str, known: Index, seen: Seen) -> Snapshot:
        store = self._store
        files, size = self._read(root, known, seen.index, seen.fresh)
        changed = [folder for folder, names in seen.index.items() if known.get(folder) != names]
        changes = tuple(_differences(root, known, seen.index, (*changed, *seen.gone)))
        if changed or seen.gone:
            store.saw(key, seen.index, changed, seen.gone)
        unkept = tuple(each for each in changes if each.after is not None and each.after.unkept)
        return Snapshot(changes, files, size, unkept)

    def _read(self, root: str, known: Index, index: Index, fresh: dict[str, list[str]]) -> tuple[int, int]:
        """Store the contents of the fresh files, as far as there is room."""
        small = self._fitting(known, index, fresh) if fresh else {}
        places: dict[bytes, BlobPlace] = {}
        files = size = 0
        top = safe_open.open_root(root)
        try:
            for folder, names in fresh.items():
                if self._stop.is_set():
                    raise Stopped
                try:
                    with safe_open.folder(top, folder) as above:
                        for name in names:
                            found = index[folder][name]
                            if (folder, name) in small:
                                index[folder][name] = found._replace(unkept=small[folder, name], settled=False)
                                continue
                            index[folder][name] = self._file(name, above, found, places)
                            files, size = files + 1, size + found.size
                except OSError as error:
                    if error.errno in FULL:
                        raise
                    continue  # the folder went meanwhile, and its files are not kept
            self._store.packs.flush()
        except BaseException:
            self._store.packs.give_up()
            raise
        finally:
            os.close(top)
        if places:
            self._store.keep(places)
        return files, size

    def _file(self, name: str, above: int, found: Entry, places: dict[bytes, BlobPlace]) -> Entry:
        """Return the entry of one file with its stored content, or with the reason why it is not stored."""
        for _ in range(3):
            try:
                handle, status = safe_open.open_file(name, above)
            except OSError:
                return found  # CLOSED, which the walk put there
            try:
                now = time.time_ns()
                digest = self._content(handle, status.st_size, places)
                after = os.fstat(handle)
            except _HoldsSecret:
                return entry_of(status, status.st_ctime_ns < now - _margin(status.st_ctime_ns), b"", file_state.SECRET)
            finally:
                os.close(handle)
            if digest is not None and _stamp(after) == _stamp(status):
                return entry_of(status, status.st_ctime_ns < now - _margin(status.st_ctime_ns), digest)
        return entry_of(after, False, b"", file_state.MOVING)

    def _content(self, handle: int, size: int, places: dict[bytes, BlobPlace]) -> bytes | None:
        """Store the content and return its hash, or None if its size is no longer `size`. Raise _HoldsSecret."""
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
        data = os.read(handle, size + 1) if size else os.read(handle, 1)
        while len(data) < size and (more := os.read(handle, size + 1 - len(data))):
            data += more
        if len(data) != size:
            return None
        if holds_masked(data):
            raise _HoldsSecret
        digest = hashlib.sha256(data).digest()
        if digest not in places and store.place(digest) is None:
            places[digest] = store.packs.add(data)
        return digest

    def _fitting(self, known: Index, index: Index, fresh: dict[str, list[str]]) -> dict[tuple[str, str], str]:
        """Return the fresh files that are not stored, with the reasons. Older steps are dropped first, then the largest
        files.
        """
        sizes = [(index[folder][name].size, folder, name) for folder, names in fresh.items() for name in names]
        unkept = {(folder, name): file_state.TOO_BIG for size, folder, name in sizes if size > self._bounds.file}
        left = sorted((each for each in sizes if each[0] <= self._bounds.file), reverse=True)
        # Most of what is young is read a second time only to be sure that it is what it was.
        need = sum(size for size, folder, name in left if not _kept_already(known, folder, name, size))
        store = self._store
        room = self._bounds.bytes - store.size()
        if need > room:
            store.sweep()
            room = self._bounds.bytes - store.size()
        while need > room and self._may_drop and (count := sum(step.ended is not None for step in store.steps())):
            self._store.lost += store.drop_oldest(count // 2)
            store.sweep()
            room = self._bounds.bytes - store.size()
        for size, folder, name in left:
            if need <= room:
                break
            if _kept_already(known, folder, name, size):
                continue
            need -= size
            unkept[folder, name] = file_state.NO_ROOM
        return unkept


def _differences(root: str, known: Index, index: Index, folders: Iterable[str]) -> Iterable[Change]:
    strangers: dict[str, bool] = {}
    hidden: set[tuple[int, int]] | None = None
    for folder in folders:
        old, new = known.get(folder), index.get(folder, {})
        if old is None and folder:
            if hidden is None:
                hidden = {found[2:4] for names in known.values() for found in names.values() if found.unkept}
            # It was there before, and nobody looked into it: what is in it was not made by anybody just now.
            above, name = safe_open.split(folder)
            strangers[folder] = strangers.get(above, False) or index[above][name][2:4] in hidden
            if strangers[folder]:
                continue
        old = old or {}
        for name in old.keys() | new.keys():
            before, after = old.get(name), new.get(name)
            if before is not after and not same(before, after):
                yield Change(root, f"{folder}/{name}" if folder else name, before, after)


def _kept_already(known: Index, folder: str, name: str, size: int) -> bool:
    found = known.get(folder, {}).get(name)
    return found is not None and found.kind == Kind.FILE and not found.unkept and found.size == size


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


def _margin(ctime: int) -> int:
    # The coarsest clock of a local file system ticks every two seconds (sandbox/workspace/folder_cache.py).
    return SHORT_MARGIN if ctime % 10**9 else 2_500_000_000


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of our own store: reading answers none of them
