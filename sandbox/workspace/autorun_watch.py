"""The watch for auto-run files while a command runs: they are set aside within milliseconds, and the command is ended.

An editor obeys `.vscode/settings.json`, and a prompt runs `git status`, while the command that made the files still
runs. So folders are watched from outside of the sandbox, by inotify(7). The workspace is also scanned after the command
(`sandbox/workspace/autorun.py`), which finds files beyond the limits of the watch.

A `git checkout` that is ended midway leaves an incomplete worktree. So while Git writes an index, the files that it
creates are set aside one by one, and the command is ended a moment later. A command can pretend that Git writes, and
so gains at most GRACE seconds.
"""

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from policy.model.frozen import dataclass
from policy.model.verdict import Terms
from sandbox.backend import Violation
from sandbox.workspace.autorun import Watch
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.folder_watch import FolderWatch
from sandbox.workspace.git_files import harmless
from sandbox.workspace.git_settings import (
    OTHERS,
    POINTERS,
    SHAPE,
    UncertainSettingsError,
    common,
    git_folders,
    inside_git,
    like_repository,
)
from sandbox.workspace.path_patterns import PatternIndex, appearing, marks
from sandbox.workspace.protected_paths import Scan

_TURN = 0.05  # seconds for new folders at one time: meanwhile the event loop handles no timeout and no signal
# Git and Mercurial write these files in steps, and the finished files may be harmless. Others are never harmless.
_WRITTEN = frozenset(("config", "config.worktree", "commondir", ".git", "hgrc"))
_MOST_READS = 32  # buffers of events that are read before a command; the kernel keeps 16,384 events (inotify(7))
_PATIENCE = 3  # checks after which a file that still changes is judged
GRACE = 30.0  # seconds for which a command may continue while Git writes
_SETTLED = 2.0  # seconds from the write of an index until Git has also written the files that follow: HEAD, a commit
_MOST_ASIDE = 200  # files that are set aside before the command is ended in any case


class Live:
    """The watch over one command that may write. Call `begin` when the command runs, and `close` when it has ended.

    Attributes:
        folders: The folders that are watched.
        found: A violation for each file that was set aside.
    """

    def __init__(self, watch: Watch, protected: Scan, trees: FolderTrees, *, sockets: bool) -> None:
        self.found: list[Violation] = []
        self._watch = watch
        self._terms: Terms = watch.terms
        self._tops = (self._terms.workspace, *self._terms.writable)
        self._places = (self._terms.workspace, *self._terms.repository[:1])  # of a worktree's files and Git's
        self._named = (*protected.named, *protected.led)
        # In readable folders only sockets matter.
        readable = tuple(filter(os.path.isdir, self._terms.read)) if sockets else ()
        self.folders = FolderWatch((*self._tops, *readable), trees)
        self._sockets = sockets  # True if the command could connect to a socket by its path
        self._masked = frozenset(protected.sockets)
        self._unbound: dict[str, int] = {}  # sockets that no program has bound yet, with the number of checks
        self._aside: set[str] = set()  # the paths of the files that were set aside
        self._again = False  # True if a file appeared again at one of those paths
        self._git: set[str] = set()  # Git's folders of the repositories in which something was set aside
        self._since = time.time()
        self._until = 0.0  # time at which the command is ended in any case, by `time.monotonic`
        self._waiting: dict[str, _Steps] = {}  # files that Git writes in steps
        self._inner = inside_git(self._terms.locked)
        self._first = PatternIndex(self._terms.locked)
        self._inner_first = PatternIndex(self._inner)

    def fileno(self) -> int:
        """Return the descriptor that is readable after an event; -1 if all folders are polled."""
        return self.folders.handle

    def begin(self) -> None:
        """Start to watch, first the folders of an earlier command. `grow` adds the others."""
        if self.folders.begin():
            # Events since the last command come from other programs, or from setting its files aside.
            for _ in range(_MOST_READS):
                if not self._take_in(happened=False):
                    break
            self._grow_new()
        self.folders.add_known()

    def attach(self, over: Callable[[], bool], alert: Callable[[], None]) -> None:
        """Watch in the event loop until `detach`, and call `alert` when the command has to end.

        The folders that are not watched yet are added meanwhile, until `over` returns True.
        """
        loop = asyncio.get_running_loop()

        def on_event() -> None:
            self.look()
            if self.raised:
                alert()

        def grow() -> None:
            more = not over() and self.grow()
            if self.raised:
                alert()
            elif more:
                loop.call_soon(grow)

        if self.fileno() >= 0:
            loop.add_reader(self.fileno(), on_event)
        grow()

    def detach(self) -> None:
        if self.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.fileno())

    def grow(self) -> bool:
        """Watch some more folders, and judge the names that they already contain. Return True if more are left."""
        for folder, name, is_folder in self.folders.grow():
            self._judge(folder, name, is_folder)
        return self.folders.pending

    @property
    def raised(self) -> bool:
        """Return True if the command must end now."""
        if not self.found or self._again or len(self.found) > _MOST_ASIDE or time.monotonic() > self._until:
            return bool(self.found)
        return not self._git_writes()

    def look(self) -> None:
        """Judge the events that are available."""
        self._take_in(happened=True)
        self._grow_new()

    def _take_in(self, *, happened: bool) -> bool:
        """Judge one buffer of events. Return False if there was none. `happened`: the events are from this command."""
        some = False
        for folder, name, is_folder, complete in self.folders.events():
            some = True
            if folder:
                self._judge(folder, name, complete or is_folder, happened=happened)
                continue
            for top in self._tops:
                self._candidates(top, self._terms.locked, complete=False)
        return some

    def _grow_new(self) -> None:
        """Judge the content of new folders for at most _TURN seconds; the rest is left for `tick`."""
        until = time.monotonic() + _TURN
        while self.folders.new_pending and not self.raised:
            self.grow()
            if time.monotonic() > until:
                break

    def tick(self) -> None:
        """Check again the files that Git writes in steps (they may never be closed), the folders that cannot be
        watched, and all folders after a loss of events."""
        for path, steps in list(self._waiting.items()):
            now = _stamp(path)
            steps.turns += 1
            if now != steps.judged and (now == steps.seen or steps.turns > _PATIENCE):
                self._candidate(path, complete=True)
                steps.judged, steps.turns = now, 0
            steps.seen = now
        for path in list(self._unbound):
            self._socket(path)
        self.folders.poll()
        self._grow_new()

    def close(self) -> None:
        self.folders.close()

    # ---- the files that count

    def _judge(self, folder: str, name: str, complete: bool, *, happened: bool = False) -> None:
        """Set aside the files that count because `name` appeared in `folder`. `happened`: an event reported the name,
        which may be gone again; else the name was found there."""
        path = f"{folder}/{name}"
        if self._sockets and (happened or path not in self._masked):
            self._socket(path)
        if not any(path.startswith(f"{each}/") for each in self._tops):
            return  # in a folder that is only readable
        gone = happened and not os.path.lexists(path)
        plain = name.lower()  # some file systems ignore case
        if plain == ".git" or plain in OTHERS:
            self._candidates(folder, self._terms.locked, complete=complete)
        elif plain in _SHAPE and _repository(folder):
            self._inside(folder, complete)
        for named in self._named:
            if path == named or path.startswith(f"{named}/") or named.startswith(f"{path}/"):
                self._candidate(named, complete=True)
        top = next((each for each in self._tops if path.startswith(f"{each}/")), "")
        if not top:
            return
        names = path[len(top) + 1 :].split("/")
        for count, each in enumerate(names):
            patterns, inner = self._first.of(each), self._inner_first.of(each)
            if not patterns and not inner:
                continue  # true for most names, for which `root` need not be built
            root = "/".join((top, *names[:count]))
            # The top of a repository of any kind.
            if patterns and (root == top or any(os.path.lexists(f"{root}/{other}") for other in (".git", *OTHERS))):
                self._candidates(root, patterns, complete=complete)
                parts = [pattern.strip("/").split("/") for pattern in patterns if gone]
                below = names[count:]
                if any(len(each) == len(below) and all(map(fnmatchcase, below, each)) for each in parts):
                    self._passed(path)
            if inner and _repository(root):
                self._inside(root, complete)

    def _inside(self, folder: str, complete: bool) -> None:
        """Judge a folder that Git takes for the inside of a repository, and the folder with its shared settings."""
        self._candidates(folder, self._inner, complete=complete)
        shared = common(folder)
        if shared != folder and shared.startswith(f"{self._terms.workspace}/"):
            self._candidates(shared, self._inner, complete=complete)

    def _candidates(self, root: str, patterns: tuple[str, ...], *, complete: bool) -> None:
        for path in appearing(root, patterns):
            self._candidate(path, root, complete=complete)
        for pointer in POINTERS:
            if patterns is not self._inner and os.path.isfile(f"{root}/{pointer}"):
                # The pointer file names the folder with the settings.
                self._candidate(f"{root}/{pointer}", root, complete=complete)

    def _candidate(self, path: str, root: str = "", *, complete: bool) -> None:
        """Set aside the file at `path`, unless it existed before, or was moved there with the repository at `root`."""
        now = marks((path,))
        if not now or path in self._terms.write:
            return
        try:
            who: str | tuple[int, int, int] = os.readlink(path)
        except OSError:
            who = now[0][1:]
        if self._watch.before.get(path) == who or (root and self._watch.moved(path, who, root)):
            return
        steps = os.path.basename(path) in _WRITTEN and not os.path.islink(path)
        if steps and path not in self._waiting:
            self._waiting[path] = _Steps(_stamp(path))
        # An empty file has no effect, and may be about to be written.
        unfinished = steps and (not complete or _stamp(path)[1:2] == (0,))
        if unfinished or harmless(path, *self._places):
            return
        self._waiting.pop(path, None)
        self._set_aside(path)

    def _set_aside(self, path: str) -> None:
        """Set a file or folder aside; if Git is filling the folder, the files in it."""
        self._git |= self._git_around(path)
        filled = os.path.isdir(path) and not os.path.islink(path) and self._git_writes()
        for each in _files(path) if filled else (path,):
            if not self.found:
                self._until = time.monotonic() + GRACE
            self._again = self._again or each in self._aside
            self._aside.add(each)
            self.found.append(self._watch.set_aside(each, quickly=True))

    def _passed(self, path: str) -> None:
        """Report a file whose name counts and that was removed before it could be judged: another program may have run
        it. Files that Git writes are not reported, because they may have been harmless."""
        known = path in self._watch.before or any(f"{path}/".startswith(f"{each}/") for each in self._aside)
        if known or "/.git/" in path or os.path.basename(path) in _WRITTEN:
            return
        self._aside.add(path)
        what = f"`{path}`, an auto-run file, appeared and was gone again: a program may have run it automatically"
        self.found.append(Violation(what, path, "do not create files of this name", False, "watch"))

    def _socket(self, path: str) -> None:
        """End the command if a program outside of the sandbox has bound a socket at `path`.

        THREAT T151: the command sees the path, and could connect.
        """
        turns = self._unbound.pop(path, 0)
        try:
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                return  # true for nearly all names
            from sandbox.workspace.host_sockets import in_use, is_foreign  # most commands make no socket
            from sandbox.workspace.opened_folder import opened_folder

            above, name = os.path.split(path)
            # A link may have replaced the folder: its target is watched if the command can reach that.
            with opened_folder(above) as folder:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISSOCK(status.st_mode):
                    return
                foreign, unbound = is_foreign(path, status), not in_use(name, folder)
        except OSError:  # the file or its folder is gone, or was replaced
            return
        if foreign:
            what = f"another program opened the socket `{path}`, which this command could have reached"
            self.found.append(Violation(what, path, "run the command again: the socket is hidden now", False, "watch"))
            self._again = True  # at once, also while Git writes
        elif turns < _PATIENCE and unbound:
            self._unbound[path] = turns + 1  # the file appears a moment before its program has bound it

    # ---- the state of Git

    def _git_around(self, path: str) -> set[str]:
        """Return Git's folders of the repository that contains `path`; empty if there is none."""
        top = next((each for each in self._tops if path.startswith(f"{each}/")), "")
        while top and len(path) > len(top):
            path = os.path.dirname(path)
            if os.path.lexists(f"{path}/.git"):
                with contextlib.suppress(UncertainSettingsError):
                    return {each.path for each in git_folders(path)}
                break
        return set()

    def _git_writes(self) -> bool:
        """Return True if Git writes an index, or wrote one a moment ago while this command ran.

        Files that Git writes after the index, such as HEAD, may still be missing then.
        """
        for folder in self._git:
            if os.path.lexists(f"{folder}/index.lock"):
                return True
            with contextlib.suppress(OSError):
                written = os.lstat(f"{folder}/index").st_ctime
                if written > self._since and abs(time.time() - written) < _SETTLED:
                    return True
        return False


@dataclass(slots=True)
class _Steps:
    """A file that Git writes in steps: its stamps at the last check and when last judged, and the checks since then."""

    seen: tuple[int, ...]
    judged: tuple[int, ...] = ()
    turns: int = 0


_SHAPE = frozenset(map(str.lower, SHAPE))


def _files(folder: str) -> Iterator[str]:
    """Yield the paths of all files and links in `folder`, at any depth."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:  # removed, or unreadable
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            else:
                yield entry.path


def _repository(folder: str) -> bool:
    if not os.path.lexists(f"{folder}/HEAD"):
        return False
    return like_repository([name for name in SHAPE if os.path.lexists(f"{folder}/{name}")])


def _stamp(path: str) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ()
