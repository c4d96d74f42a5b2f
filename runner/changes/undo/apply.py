"""Execution of an undo plan. Whenever the process is stopped, every path is either restored or unchanged.

THREAT T18: a file is written under a temporary name and renamed into place below a descriptor of its folder. Nothing is
written through a link, into a file with other hard links (the path gets a file of its own), or outside the root.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from runner.changes import safe_open
from runner.changes.file_state import Entry, FileKind
from runner.changes.undo.blobs import Lost
from runner.changes.undo.plan import Item, Obstacle
from runner.changes.undo.snapshot import DRAFT
from runner.changes.undo.store import Store
from runner.text.phrases import os_reason


class _Blocked(Exception):
    """An error for an operation that the current state of its path or folder prevents."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.value)
        self.obstacle = obstacle


def restore(store: Store, items: Sequence[Item], step: int) -> tuple[Item, ...]:
    """Restore all items without an obstacle, and return all items, each with its obstacle if it was not restored. The
    failure of a path is an obstacle, not an exception.
    """
    done: dict[tuple[str, str], Item] = {(item.root, item.path): item for item in items}
    for root in {item.root for item in items}:
        mine = [item for item in items if item.root == root and item.obstacle is None]
        try:
            top = safe_open.open_root(root)
        except OSError as error:
            done |= {(root, item.path): _failed(item, error) for item in mine}
            continue
        try:
            for item, work in _ordered(mine):
                if done[root, item.path].obstacle is not None:
                    continue  # an earlier operation on this item failed
                try:
                    work(_Hand(top, store, step), item)
                except _Blocked as blocked:
                    done[root, item.path] = replace(item, obstacle=blocked.obstacle)
                except (OSError, Lost) as error:
                    done[root, item.path] = _failed(item, error)
        finally:
            os.close(top)
    os.sync()  # once for all files: a rename may reach the disk before the content; a sync of each file is much slower
    return tuple(done.values())


def _failed(item: Item, error: Exception) -> Item:
    return replace(item, obstacle=Obstacle.FAILED, detail=os_reason(error))


class _Hand:
    """The operations on one path below the open root `top`."""

    def __init__(self, top: int, store: Store, step: int) -> None:
        self._top = top
        self._store = store
        self._draft = f"{DRAFT}{step}-{os.urandom(4).hex()}"

    def make_folder(self, item: Item) -> None:
        with self._above(item) as (above, name):
            if item.now is not None:
                _unchanged(above, name, item.now)
                os.unlink(name, dir_fd=above)
            os.mkdir(name, 0o700, dir_fd=above)

    def move(self, item: Item) -> None:
        source_folder, source = safe_open.split(item.moved)
        with safe_open.folder(self._top, source_folder) as source_above, _writable(source_above), self._above(item) as (
            above,
            name,
        ):  # fmt: skip
            if _exists(above, name):
                raise _Blocked(Obstacle.JUST_NOW)
            os.rename(source, name, src_dir_fd=source_above, dst_dir_fd=above)

    def remove(self, item: Item) -> None:
        with self._above(item) as (above, name):
            assert item.now is not None  # a plan removes existing files only
            _unchanged(above, name, item.now)
            os.unlink(name, dir_fd=above)

    def remove_folder(self, item: Item) -> None:
        with self._above(item) as (above, name):
            try:
                os.rmdir(name, dir_fd=above)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise _Blocked(Obstacle.NOT_EMPTY) from None

    def write(self, item: Item) -> None:
        now, wanted = item.now, item.wanted
        assert wanted is not None  # `_ordered` passes only items with a target state
        if now is not None and now.kind == wanted.kind == FileKind.FILE and now.content == wanted.content:
            with self._above(item) as (above, name):
                if safe_open.change_mode(above, name, wanted.mode):
                    return
        place = self._store.place(wanted.content) if wanted.kind == FileKind.FILE else None
        if wanted.kind == FileKind.FILE and place is None:
            raise Lost("its content is not stored any more")
        with self._above(item) as (above, name):
            try:
                if place is None:
                    os.symlink(wanted.content, self._draft, dir_fd=above)
                else:
                    _fill(above, self._draft, self._store.packs.read(place, wanted.content), wanted)
                if now is not None and now.kind != FileKind.FOLDER:
                    _unchanged(above, name, now)
                elif _exists(above, name):
                    raise _Blocked(Obstacle.JUST_NOW)
                os.rename(self._draft, name, src_dir_fd=above, dst_dir_fd=above)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._draft, dir_fd=above)
                raise

    def set_mode(self, item: Item) -> None:
        wanted = item.wanted
        assert wanted is not None  # `_ordered` passes only folders with a target state
        above, name = safe_open.split(item.path)
        with safe_open.folder(self._top, above) as folder:
            try:
                handle = safe_open.open_folder(name, folder)
            except PermissionError:  # a folder of this user without the right to read it
                safe_open.change_mode(folder, name, wanted.mode)
                return
            try:
                os.fchmod(handle, wanted.mode)
                os.utime(handle, ns=(wanted.mtime, wanted.mtime))
            finally:
                os.close(handle)

    @contextlib.contextmanager
    def _above(self, item: Item) -> Iterator[tuple[int, str]]:
        folder, name = safe_open.split(item.path)
        with safe_open.folder(self._top, folder) as above, _writable(above):
            yield above, name


def _ordered(items: Sequence[Item]) -> Iterator[tuple[Item, Callable[[_Hand, Item], None]]]:
    """Yield the operations in order: a folder is made before its content, emptied before it is removed, and gets its
    mode last.
    """

    def is_folder(entry: Entry | None) -> bool:
        return entry is not None and entry.kind == FileKind.FOLDER

    folders = [item for item in items if is_folder(item.wanted) and not item.moved]
    yield from ((item, _Hand.make_folder) for item in folders if not is_folder(item.now))
    yield from ((item, _Hand.move) for item in items if item.moved)
    rest = [item for item in items if not item.moved and not is_folder(item.wanted)]
    yield from ((item, _Hand.remove) for item in rest if item.wanted is None and not is_folder(item.now))
    yield from ((item, _Hand.remove_folder) for item in reversed(rest) if is_folder(item.now))
    yield from ((item, _Hand.write) for item in rest if item.wanted is not None)
    yield from ((item, _Hand.set_mode) for item in reversed(folders))


def _fill(above: int, name: str, content: Iterator[bytes], wanted: Entry) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=above)
    try:
        for piece in content:
            safe_open.write_all(handle, piece)
        with contextlib.suppress(PermissionError):  # only root gives files away
            os.fchown(handle, wanted.uid, wanted.gid)
        os.fchmod(handle, wanted.mode & 0o777)  # never setuid
        os.utime(handle, ns=(wanted.mtime, wanted.mtime))
    finally:
        os.close(handle)


@contextlib.contextmanager
def _writable(above: int) -> Iterator[None]:
    """Make a write-protected folder of this user writable for the duration of the context."""
    mode = os.fstat(above)
    closed = mode.st_uid == os.geteuid() and mode.st_mode & 0o300 != 0o300
    if closed:
        os.fchmod(above, stat.S_IMODE(mode.st_mode) | 0o300)
    try:
        yield
    finally:
        if closed:
            os.fchmod(above, stat.S_IMODE(mode.st_mode))


def _exists(above: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _unchanged(above: int, name: str, known: Entry) -> None:
    status = os.stat(name, dir_fd=above, follow_symlinks=False)
    if (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) != (*known[2:6],):
        raise _Blocked(Obstacle.JUST_NOW)
