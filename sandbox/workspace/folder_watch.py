"""The folders that are watched while a command runs, and the names that appear in them.

Folders are watched by inotify(7). Folders beyond its limits are compared at intervals.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator

from sandbox.inside.safe_rmtree import closing
from sandbox.workspace.folder_cache import FOLDER, FolderTrees
from sandbox.workspace.inotify import CLOSE_WRITE, CREATE, EXCL_UNLINK, MOVED_TO, Inotify
from sandbox.workspace.inotify import FOLDER as IS_FOLDER

_WANTED = CREATE | MOVED_TO | CLOSE_WRITE | EXCL_UNLINK
MOST = 4096  # folders that are watched: the outermost ones. Each needs about 1 KB of kernel memory
MOST_POLLED = 16_384  # further folders, which are compared in each `poll`
SLICE = 128  # folders that are added between two checks of the command
_KEPT = 4  # inotify instances that are kept for the next commands; a user has 128 (inotify(7), max_user_instances)
_FRESH = 100_000_000  # nanoseconds: a folder that changed more recently may change again within the same timestamp
# Folders of installed packages, each with thousands of folders, in which editors and prompts do not start. They are
# examined after the command has ended.
_PACKAGES = frozenset(("node_modules", "bower_components", ".venv", "venv", "site-packages", ".tox", "__pycache__"))
LACKS = "auto-run files are set aside only after the end of a command, not at once: {why}"
SLOW = "auto-run files are set aside within about a second, not at once: {why}"

_idle: list[tuple[tuple[str, ...], Inotify]] = []  # instances of ended commands, with their top folders


class FolderWatch:
    """The watch over all folders below `tops`, for one command.

    Without an inotify instance (another command of the same user can hold all of them), all folders are polled.

    Attributes:
        lacks: The reason why new files are found late, in words; empty if they are found at once.
        lost: True if events were lost since the last `poll`.
    """

    def __init__(self, tops: tuple[str, ...], trees: FolderTrees) -> None:
        self.lacks = ""
        self.lost = False
        self._tops = tops
        self._trees = trees
        self._inotify: Inotify | None = None
        self._left: list[tuple[str, bool]] = []  # folders that are not watched yet; True for a new folder
        self._polled: dict[str, tuple[int, ...]] = {}  # folders that cannot be watched, with their stamps

    @property
    def handle(self) -> int:
        """Return the descriptor that is readable after an event; -1 if nothing is watched."""
        return self._inotify.handle if self._inotify is not None else -1

    @property
    def pending(self) -> bool:
        """Return True if folders are left that `grow` has to add."""
        return bool(self._left)

    @property
    def new_pending(self) -> bool:
        """Return True if the next folder that `grow` adds is new, and so may already contain files."""
        return bool(self._left) and self._left[-1][1]

    def begin(self) -> bool:
        """Take an inotify instance. Return True if an earlier command left it, with its folders and old events."""
        idle = next((each for each in reversed(_idle) if each[0] == self._tops), None)
        if idle is not None:
            _idle.remove(idle)
            self._inotify = idle[1]
            return True
        try:
            self._inotify = Inotify(_WANTED)
        except OSError as error:
            self.lacks = SLOW.format(why=f"inotify cannot be used ({os.strerror(error.errno or 0).lower()})")
        return False

    def add_known(self) -> None:
        """Have `grow` add the folders that the last scan found, the outermost ones first."""
        watched = self._inotify if self._inotify is not None else ()
        folders = [path for top in self._tops for path in self._trees.folders(top)]
        new = [path for path in folders if path not in watched and self._counts(path)]
        self._left = [(path, False) for path in sorted(new, key=lambda path: path.count("/"), reverse=True)]

    def close(self) -> None:
        """Keep the instance for the next command."""
        watched, self._inotify = self._inotify, None
        if watched is not None:
            _idle.append((self._tops, watched))
            if len(_idle) > _KEPT:
                _idle.pop(0)[1].close()

    def events(self) -> Iterator[tuple[str, str, bool, bool]]:
        """Yield one buffer of events as (folder, name in it, is the name a folder, is it complete). A file is complete
        when it was moved there or closed by its writer. An empty folder means that events were lost. New folders are
        left for `grow`.
        """
        for folder, name, mask in self._inotify.read() if self._inotify is not None else ():
            is_folder = bool(mask & IS_FOLDER)
            if not folder:
                self.lost = True
            elif not name:
                continue  # of the folder itself
            elif is_folder:
                self._leave(f"{folder}/{name}")
            yield folder, name, is_folder, not mask & CREATE

    def grow(self) -> Iterator[tuple[str, str, bool]]:
        """Watch up to SLICE more folders. Yield each name in those that are new or changed, as (folder, name,
        is a folder).
        """
        for _ in range(min(SLICE, len(self._left))):
            path, new = self._left.pop()
            if not self._add(path):
                return
            if not new and not self._changed(path):
                continue
            try:
                with closing(os.open(path, FOLDER)) as handle, os.scandir(handle) as entries:
                    for entry in entries:
                        is_folder = entry.is_dir(follow_symlinks=False)
                        if is_folder:
                            self._leave(f"{path}/{entry.name}")
                        yield path, entry.name, is_folder
            except OSError:
                continue  # removed, a link now, or unreadable: the scan after the command opens such folders

    def poll(self) -> None:
        """Have `grow` examine changed folders that cannot be watched, and all folders after a loss of events."""
        if self.lost:
            self.lost = False
            self._left += [(top, True) for top in self._tops]
        for path, stamp in list(self._polled.items()):
            if (seen := _folder_stamp(path)) != stamp:
                del self._polled[path]
                self._left += [(path, True)] if seen else []

    def _leave(self, path: str) -> None:
        if self._counts(path):
            self._left.append((path, True))

    def _counts(self, path: str) -> bool:
        """Return True if the folder is to be watched. Of a folder of packages, only the folder itself and its `.git`
        are watched, because editors search a workspace for repositories."""
        if "/.git/objects/" in f"{path}/":
            return False
        top = next((each for each in self._tops if path.startswith(each)), "")
        names = path[len(top) :].split("/")
        at = next((count for count, name in enumerate(names) if name in _PACKAGES), len(names))
        return at >= len(names) - 1 or names[at + 1] == ".git"

    def _add(self, path: str) -> bool:
        """Watch a folder, or poll it if that is impossible. Return False if neither is possible."""
        watched = self._inotify
        why = f"there are more than {MOST_POLLED + (MOST if watched is not None else 0)} folders"
        if watched is not None and (len(watched) < MOST or path in watched):
            try:
                if watched.add(path):
                    return True
            except OSError:
                why = "your user has no inotify watches left (`fs.inotify.max_user_watches`)"
        if len(self._polled) >= MOST_POLLED:
            self.lacks = LACKS.format(why=why)
            self._left.clear()
            return False
        if stamp := _folder_stamp(path):  # an unreadable folder is polled too, because it may become readable
            self._polled[path] = stamp
        return True

    def _changed(self, path: str) -> bool:
        """Return True if the folder may have new names since it was last read."""
        for top in self._tops:
            folder = self._trees.folders(top).get(path)
            if folder is not None:
                try:
                    status = os.lstat(path)
                except OSError:
                    return False
                return not folder[4] or (status.st_mtime_ns, status.st_ctime_ns) != (folder[2], folder[3])
        return True


def _folder_stamp(path: str) -> tuple[int, ...]:
    """Return a value that changes when a name is added to the folder at `path`; empty if there is no folder."""
    with contextlib.suppress(OSError):
        status, now = os.lstat(path), time.time_ns()
        if stat.S_ISDIR(status.st_mode):
            fresh = now if now - status.st_ctime_ns < _FRESH else 0
            return (status.st_dev, status.st_ino, status.st_ctime_ns, fresh)
    return ()
