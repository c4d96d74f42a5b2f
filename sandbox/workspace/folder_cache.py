"""Cache of the folders below one folder, and the rules for when it is valid without reading the folders again.

A folder that gains or loses a name gets a new ctime, which no process can set back (inode(7)). So a folder whose
device, number, mtime and ctime are unchanged contains the same names. Three kinds of folders are read again every time:

- Folders that changed less than MARGIN before they were read, because a later change may have the same time, as in
  Git's index. The margin is SHORT_MARGIN if the time has a fraction of a second, from a clock of a few milliseconds.
- Folders of file systems that are not on the list of local ones (network and FUSE).
- Closed folders, which could not be read or entered, or whose path is too long.

Link counts are not part of a folder: a new hard link elsewhere changes only the file itself. `due` returns True when
the links of all files must be counted again.

Targets of symbolic links are not part of a folder either. A result that depends only on the names in the folders is
valid while `version` is the same.

A process that asks again and again watches the folders from the `_OFTEN`th time on (`sandbox/workspace/tree_watch.py`).
Then only the folders that the kernel reports are examined, so that a command costs what changed and not what exists.
Without a watch, every folder is compared.
"""

import contextlib
import ctypes
import marshal
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.digest import sha256_hex
from policy.model.secret_names import sometimes
from sandbox.workspace.git_settings import SHAPE, like_repository

if TYPE_CHECKING:
    from sandbox.workspace.tree_watch import TreeWatch

MARGIN = 2_500_000_000  # nanoseconds: the coarsest clock of a local file system (FAT) ticks every two seconds
SHORT_MARGIN = 100_000_000
MANY = 30_000  # files: counting the links of fewer takes less than a tenth of a second
FEW = 500  # files: counting the links of fewer takes no noticeable time
# Seconds for which link counts are valid, in a tree of at most and of more than MANY files.
PATIENCE, LONG_PATIENCE = 1.0, 60.0
WORTH = 256  # folders: reading fewer takes less time than reading a cache file
KEPT = 32  # cache files, and trees in memory; older ones are removed
_OFTEN = 4  # the `renew` from which on a tree is watched; a process that runs one command needs fewer
# statfs(2), linux/magic.h: ext2-4, XFS, Btrfs, tmpfs, ramfs, F2FS, ZFS, overlayfs, bcachefs
_LOCAL = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x858458F6, 0xF2F52010, 0x2FC12FC1, 0x794C7630, 0xCA451A4E)
)
_FORMAT = 7
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # for open(2): a folder, and no link

# Bytes of the path of a folder. Deeper folders can exist and be entered, but no path can name them (PATH_MAX).
DEEPEST = 3000

HAS_GIT, IS_GIT, GIT_IS_FILE, CLOSED, HAS_LINK = 1, 2, 4, 8, 16
Link = tuple[str, int, int, int]  # name, device, number, link count
# device, number, mtime, ctime, is it settled (see `settled`); folders, secret names, HAS_GIT|..., linked files, number
# of files, sockets. The content of a CLOSED folder is unknown; its owner may open it.
Folder = tuple[int, int, int, int, bool, tuple[str, ...], tuple[str, ...], int, tuple[Link, ...], int, tuple[str, ...]]
Match = Callable[[str], bool]
FileStamp = tuple[int, ...]  # device, number, size, mtime, ctime; empty for a missing file
FileMark = tuple[str, int, int]  # path, number, birth
_versions = count(1)


class FolderTree:
    """The folders below `top`, by path. A folder whose own name matches is not entered."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.folders: dict[str, Folder] = {}
        self.counted = float("-inf")  # on the clock of `now`
        self.odd: frozenset[tuple[int, int, int]] = frozenset()  # files with hard links elsewhere, when last counted
        self.counted_now = False  # True if the last `renew` counted the links of all files
        self.read = 0  # folders that the last `renew` had to read
        self.files = 0
        self.version = 0  # a new number after every `renew` that found, or may have missed, a changed name
        self.answers: dict[object, object] = {}  # results that were computed from this tree, by their inputs
        self.linked: tuple[str, ...] = ()  # the folders that contain files with several hard links
        self.sockets: tuple[str, ...] = ()  # the sockets below the top, outside of secret folders
        # True if no folder has to be read again while its stamp is unchanged, or, with a watch, if it has all folders.
        self._believed = False
        self._single: tuple[str, ...] | None = None  # all files, if the tree has few and each has one hard link
        self._kinds: dict[int, int] = {}  # device -> the kind of its file system, see `_LOCAL`
        self._names: dict[str, list[str]] = {}  # the files of each folder, in a tree of few files
        self._renewing = threading.Lock()  # the events of a watch are read once, by one thread
        self._renewed = 0  # calls of `renew`
        self._watch: TreeWatch | None = None

    def due(self) -> bool:
        """Return True if the links of all files must be counted again."""
        age = now() - self.counted
        return self.files <= FEW or not 0 <= age <= (PATIENCE if self.files <= MANY else LONG_PATIENCE)

    def renew(self, secret: Match, *, everything: bool) -> None:
        """Update `folders` from the disk. `everything`: count the links of all files as well."""
        with self._renewing:
            started, self.read = now(), 0
            self.counted_now = everything
            self._renewed += 1
            certain = self._watching()
            if not self._unchanged(everything, certain):
                self._walk(secret, everything, certain)
            if everything:
                self.counted = started

    def _watching(self) -> bool:
        """Begin to watch the folders when it is time for that. Return True if the watch knows which ones changed."""
        if self._watch is not None and not self._watch.open:  # this is a forked process
            self._watch = None
        if self._watch is not None:
            return self._watch.renew()
        if self._renewed == _OFTEN:
            from sandbox.workspace.tree_watch import TreeWatch  # a process that runs one command needs none

            with contextlib.suppress(OSError):  # then every folder is compared
                self._watch = TreeWatch()
        return False

    def _walk(self, secret: Match, everything: bool, certain: bool) -> None:
        """Examine the folders that may have changed: if `certain`, those that the watch reported, else all."""
        known: dict[str, Folder] = self.folders
        renewed: dict[str, Folder] = {}
        pending, status_of, changed, watch, alone = [self.top], os.lstat, False, self._watch, 0
        moved = {*watch.moved} if watch is not None else set[str]()
        sure, doubted = watch.folders if watch is not None and certain and not everything else {}, {self.top, *moved}
        if watch is not None:
            doubted |= watch.changed
        if not certain:
            self._kinds.clear()  # another file system may have the number of one that was unmounted
        while pending:
            path = pending.pop()
            folder = before = known.get(path)
            if folder is not None and path in sure and path not in doubted and self._watch is not None:
                renewed[path] = folder
                if folder[5]:
                    pending += [f"{path}/{name}" for name in folder[5]]
                continue
            self._watch_folder(path)
            if folder is not None:
                try:
                    status = status_of(path)
                except OSError:
                    continue
                device, number, mtime, ctime, settled = folder[:5]
                same = status.st_ctime_ns == ctime and status.st_mtime_ns == mtime and status.st_ino == number
                if not (settled and same and status.st_dev == device):
                    folder = None
                elif everything and not self._counted(path, folder):
                    folder = None  # a file in it has more or fewer hard links now
            read = folder is None
            if folder is None:
                folder = self._read(path, secret)
                if folder is None:
                    continue
                self.read += 1
            told = self._tells(path, folder)
            alone += not told
            if read:
                changed = changed or not (folder[4] or told) or folder != before
            renewed[path] = folder
            inner = [f"{path}/{name}" for name in folder[5]]
            pending += inner
            if path in moved or before is None or before[:2] != folder[:2]:
                # What is known about the paths below it is about another folder.
                moved.update(inner)
                doubted.update(inner)
        if changed or len(renewed) != len(known):
            self.version = next(_versions)
            self.files = sum(folder[9] for folder in renewed.values())
            self._names = {path: names for path, names in self._names.items() if path in renewed}
        if self.files > FEW:
            self._names.clear()
        self.folders = renewed
        self.linked = tuple(path for path, folder in renewed.items() if folder[8])
        self.sockets = tuple(f"{path}/{name}" for path, folder in renewed.items() for name in folder[10])
        # A subfolder that was not found may exist at the next walk.
        whole = bool(renewed) and len(renewed) == 1 + sum(len(folder[5]) for folder in renewed.values())
        few = not self.linked and self._names.keys() == renewed.keys()
        self._single = tuple(f"{path}/{name}" for path in renewed for name in self._names[path]) if few else None
        watch = self._watch
        self._believed = whole and (not alone if watch is not None else all(folder[4] for folder in renewed.values()))
        if watch is not None:
            watch.settle(renewed)

    def _watch_folder(self, path: str) -> None:
        """Watch a folder that is about to be examined. End all watches at a limit."""
        if self._watch is not None:
            try:
                self._watch.add(path)
            except OSError:
                self._watch.close()
                self._watch = None

    def _tells(self, path: str, folder: Folder) -> bool:
        """Return True if the watch will report the changes of an examined folder. Else end the watch of it."""
        if (watch := self._watch) is None or path not in watch:
            return False
        from sandbox.workspace.tree_watch import REPORTING

        if not folder[7] & CLOSED and self._kind(folder[0], path) in REPORTING:
            return True
        watch.remove(path)
        return False

    def _unchanged(self, everything: bool, certain: bool) -> bool:
        """Return True if a walk would find what the last one found; False if that is uncertain. `certain` is as for
        `_walk`.

        Every command calls this, most of them twice, so it is one pass over the known folders, or only over the first
        one if all are watched.
        """
        if not self._believed or (everything and self._single is None):
            return False
        folders, watch = self.folders, self._watch
        if watch is not None:
            if not certain or watch.changed or watch.moved:
                return False
            folders = {self.top: folders[self.top]}
        status_of = os.lstat
        try:
            for path, folder in folders.items():
                status = status_of(path)
                if (
                    status.st_ctime_ns != folder[3]
                    or status.st_mtime_ns != folder[2]
                    or status.st_ino != folder[1]
                    or status.st_dev != folder[0]
                ):
                    return False
            if everything and self._single:
                for path in self._single:
                    if status_of(path).st_nlink != 1:
                        return False
        except OSError:
            return False
        return True

    def stamp(self, path: str) -> FileStamp:
        """Return a value that changes with the content of the file at `path`, if the file was `settled` before it
        was read.
        """
        try:
            status = os.stat(path)
        except OSError:
            return ()
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def settled(self, stamp: FileStamp, path: str, before: int) -> bool:
        """Return True if changes from the time `before` on (nanoseconds, `time.time_ns`) get another stamp."""
        return not stamp or self._apart(stamp[4], stamp[0], path, before)

    def _apart(self, ctime: int, device: int, path: str, before: int) -> bool:
        if ctime >= before - (min(MARGIN, SHORT_MARGIN) if ctime % 10**9 else MARGIN):
            return False
        return self._kind(device, path) in _LOCAL

    def _kind(self, device: int, path: str) -> int:
        """Return the kind of the file system that has the folder or file at `path`; 0 if it is unknown."""
        if (kind := self._kinds.get(device)) is None:
            kind = self._kinds[device] = _kind_of(path)
        return kind

    def _counted(self, path: str, folder: Folder) -> bool:
        """Return True if the link counts of the files in an unchanged folder are unchanged too."""
        names = self._names.get(path)
        if names is None:
            return False
        linked = list[Link]()
        try:
            for name in names:
                about = os.lstat(f"{path}/{name}")
                linked += _links_of(name, about)
        except OSError:
            return False
        return tuple(linked) == folder[8]

    def _read(self, path: str, secret: Match) -> Folder | None:
        if len(path) > DEEPEST // 4 and len(os.fsencode(path)) > DEEPEST:
            return _UNKNOWN
        try:
            handle = os.open(path, FOLDER)
        except PermissionError:
            return _UNKNOWN
        except OSError:
            return None  # removed, or replaced by a link
        try:
            status, before = os.fstat(handle), time.time_ns()
            os.stat(".", dir_fd=handle)  # fails if the folder may be listed but not entered
            folders, secrets, files, sockets, links, names = [], [], [], [], False, set()
            linked = list[Link]()
            here = path.rpartition("/")[2]
            with os.scandir(handle) as entries:
                for entry in entries:
                    name = entry.name
                    links = links or entry.is_symlink()
                    named = secret(f"{here}/{name}")
                    if named or sometimes(name):  # the scan reads files that are secret only with a login in them
                        secrets.append(name)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if named and is_folder:
                        continue
                    if named:  # its second name may be in a folder that did not change (`protected_paths.py`)
                        files.append(name)
                        with contextlib.suppress(OSError):  # removed meanwhile
                            linked += _links_of(name, entry.stat(follow_symlinks=False))
                        continue
                    if name == ".git" and not is_folder and not entry.is_symlink():
                        names.add("file")
                    elif (known := _GIT.get(name.lower())) is not None:
                        names.add(known)
                    if is_folder:
                        folders.append(name)
                        continue
                    files.append(name)
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # removed meanwhile
                    linked += _links_of(name, about)
                    if stat.S_ISSOCK(about.st_mode):
                        sockets.append(name)
        except OSError:
            return _UNKNOWN
        finally:
            os.close(handle)
        flags = HAS_GIT if ".git" in names or "file" in names else 0
        flags |= GIT_IS_FILE if "file" in names else 0
        flags |= IS_GIT if like_repository(names) else 0
        flags |= HAS_LINK if links else 0
        settled = self._apart(status.st_ctime_ns, status.st_dev, path, before)
        if len(files) <= FEW:
            self._names[path] = files
        return (
            *(status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, settled),
            *(tuple(folders), tuple(secrets), flags, tuple(linked), len(files), tuple(sockets)),
        )


def is_local(path: str) -> bool:
    """Return True if the file system of `path` is one that this machine keeps, so that its times are of the clock here.

    Other machines and programs (NFS, SMB, 9p, FUSE) use a clock of their own.
    """
    return _kind_of(path) in _LOCAL


def _kind_of(path: str) -> int:
    """Return the kind of the file system that has the folder or file at `path` (statfs(2)); 0 if it is unknown."""
    answer = ctypes.create_string_buffer(256)
    asked = ctypes.CDLL(None).statfs(os.fsencode(path), answer)
    return int.from_bytes(answer.raw[:8], sys.byteorder) if asked == 0 else 0


def _links_of(name: str, about: os.stat_result) -> tuple[Link, ...]:
    """Return the link count of a file if it has several names."""
    if about.st_nlink > 1 and stat.S_ISREG(about.st_mode):
        return ((name, about.st_dev, about.st_ino, about.st_nlink),)
    return ()


_UNKNOWN: Folder = (0, 0, 0, 0, False, (), (), CLOSED, (), 0, ())

# Names of a repository or of its inside, by their lower-case form, because some file systems ignore case.
_GIT = {name.lower(): name for name in (".git", *SHAPE)}


class FolderTrees:
    """The known trees by folder and patterns, in memory and, if they are large, in files of `cache` for the next
    process.

    An incomplete cache file is ignored, and so is a tree of another version or of another boot.
    """

    def __init__(self, cache: Path | None) -> None:
        self._cache = cache
        self._uncovered: dict[str, frozenset[FileMark]] = {}
        self._held: dict[tuple[str, tuple[tuple[str, ...], ...]], FolderTree] = {}

    def take(self, top: str, patterns: tuple[tuple[str, ...], ...]) -> FolderTree:
        """Return the tree below `top`. `patterns` are the further inputs on which its content depends."""
        tree = self._held.pop((top, patterns), None) or self._load(top, patterns) or FolderTree(top)
        self._held[top, patterns] = tree  # least recently used first
        if len(self._held) > KEPT:
            del self._held[next(iter(self._held))]
        return tree

    def folders(self, top: str) -> dict[str, Folder]:
        """Return the folders that were last found below `top`; empty if it was never searched."""
        return next((tree.folders for (each, _), tree in reversed(self._held.items()) if each == top), {})

    def keep(self, tree: FolderTree) -> None:
        """Write the tree to the cache folder if that saves time for the next process."""
        if self._cache is None or len(tree.folders) < WORTH or tree.read < WORTH // 4:
            return
        top, patterns = next(key for key, held in self._held.items() if held is tree)
        body = marshal.dumps((tree.counted if boot() else float("-inf"), tuple(tree.odd), tree.folders))
        with contextlib.suppress(OSError):  # without a cache file the next process only needs more time
            write_sealed(self._cache / _name(top, patterns), body)
            files = sorted(self._cache.glob("tree-*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
            for path in files[KEPT:]:
                path.unlink()

    def uncovered(self, top: str) -> frozenset[FileMark]:
        """Return (path, number, birth) of secret files below `top` that no name or link marks as secret any more."""
        if top not in self._uncovered:
            body = self._sealed(top, None)
            # SAFETY: our own private folder, and the digest shows that we wrote the file.
            marks = marshal.loads(body) if body is not None else ()  # noqa: S302  # the line above
            self._uncovered[top] = frozenset(marks)
        return self._uncovered[top]

    def remember(self, top: str, marks: Iterable[FileMark]) -> None:
        """Remember files as secret after a command removed what marked them as secret."""
        self._uncovered[top] = self.uncovered(top) | {*marks}
        if self._cache is None:
            return
        body = marshal.dumps(tuple(sorted(self._uncovered[top])))
        with contextlib.suppress(OSError):  # this process remembers the files even if they cannot be written
            write_sealed(self._cache / _name(top, None), body)

    def _sealed(self, top: str, patterns: tuple[tuple[str, ...], ...] | None) -> bytes | None:
        return read_sealed(self._cache / _name(top, patterns)) if self._cache else None

    def _load(self, top: str, patterns: tuple[tuple[str, ...], ...]) -> FolderTree | None:
        body = self._sealed(top, patterns)
        if body is None:
            return None
        tree = FolderTree(top)
        # SAFETY: our own private folder, and the digest shows that we wrote the file.
        tree.counted, odd, tree.folders = marshal.loads(body)  # noqa: S302  # the line above
        tree.odd = frozenset(odd)
        tree.files = sum(folder[9] for folder in tree.folders.values())
        return tree


def read_sealed(path: Path) -> bytes | None:
    """Return the content of a file of the cache folder; None if the file is missing or incomplete."""
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    return blob[32:] if sha256_hex(blob[32:]) == blob[:32].hex() else None


def write_sealed(path: Path, body: bytes) -> None:
    """Write a file of the cache folder in one step, with the digest of its content. Raises OSError."""
    import tempfile  # a file is written only after much was read

    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name.partition('-')[0]}-")
    with os.fdopen(handle, "wb") as file:
        file.write(bytes.fromhex(sha256_hex(body)) + body)
    os.replace(draft, path)


def now() -> float:
    """Return the seconds since the machine started, sleep included: a clock that no process can set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _name(top: str, patterns: tuple[tuple[str, ...], ...] | None) -> str:
    """Return the name of the file for the tree below `top` or, without `patterns`, for its uncovered secret files."""
    seed = top if patterns is None else repr((_FORMAT, sys.version_info, boot(), top, patterns))
    digest = sha256_hex(seed.encode("utf-8", "surrogatepass"))[:32]
    return f"{'uncovered' if patterns is None else 'tree'}-{digest}"


def boot() -> str:
    """Return the identity of the present start of the machine; empty if the kernel does not show it."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""
