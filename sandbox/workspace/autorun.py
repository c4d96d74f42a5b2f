"""The auto-run files that a command created: they are reported, and moved to a folder where no program runs them.

Existing auto-run files are read-only inside. Missing ones cannot be masked without leaving artefacts on the host, so
the workspace is scanned before and after a command (a fixed list of names: a fraction of a millisecond). A repository
that a command created is scanned as well; harmless files that Git itself creates may stay.
"""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from policy.model.verdict import Rights, Terms
from sandbox.backend import Violation
from sandbox.inside import safe_rmtree
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.git_files import harmless
from sandbox.workspace.git_settings import POINTERS, inside_git
from sandbox.workspace.path_patterns import appearing, marks
from sandbox.workspace.protected_paths import Scan, ScanPlace, moment, scan, unchanged
from sandbox.workspace.secret_files import plain_names

Present = dict[str, str | tuple[int, int, int]]
_KEPT = 16
_before: dict[object, Present] = {}  # the auto-run files at a moment: facts about the disk, valid for all sessions


class Watch:
    """The auto-run files before a command; `settle` moves aside those that appeared."""

    def __init__(self, terms: Terms, protected: Scan, aside: Path | None, trees: FolderTrees | None = None) -> None:
        self.aside, self.terms, self.trees = aside, terms, trees
        self.working = terms.rights is Rights.WORKSPACE_WRITE
        self.found = protected
        self.moment = self._moment()
        self.before = self._first(protected) if self.working else {}
        # The folders of the repositories before the command, by identity, which stays the same when a folder is moved.
        self._roots = (
            {mark[1:]: mark[0] for mark in marks((*protected.roots, *protected.inner))} if self.working else {}
        )

    def settle(self) -> tuple[Violation, ...]:
        """Move every new auto-run file away, and return a violation for each, also if a file could not be moved."""
        if not self.working or self._unchanged():
            return ()
        now = self._look()
        if self.moment and self.moment == self._moment():
            return ()  # no name was added or removed in any folder
        # A command made folders unreadable: files hidden there would no longer be new when the folder is opened later.
        if pending := [path for path in now.closed if path not in self.found.closed]:
            while pending:
                path = pending.pop()
                with contextlib.suppress(OSError):
                    safe_rmtree.regain(path)
                    with os.scandir(path) as entries:
                        pending += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            now = self._look()
        roots = self._hits(now)
        new = {
            path
            for path, who in self._present(now).items()
            if self.before.get(path) != who
            and not (path in roots and all(self.moved(path, who, root) for root in roots[path]))
            and not harmless(path, self.terms.workspace, *self.terms.repository[:1])
        }
        outer = {path for path in new if not any(path.startswith(other + "/") for other in new)}
        return (*(self.set_aside(path) for path in sorted(outer)), *self._uncovered(now))

    def moved(self, path: str, who: str | tuple[int, int, int], root: str) -> bool:
        """Return True if the file at `path`, which counts because of the repository at `root`, was moved there together
        with that repository: it is the same, read-only file at the same place in it. A file that was moved alone, or
        with a folder that another repository obeys by its new name, is new."""
        was = next((self._roots.get(mark[1:]) for mark in marks((root,))), None)
        return was is not None and isinstance(who, tuple) and self.before.get(was + path[len(root) :]) == who

    def _hits(self, protected: Scan) -> dict[str, set[str]]:
        """Return the auto-run files by name, each with the repositories that obey it."""
        hits: dict[str, set[str]] = {}
        for roots, patterns in ((protected.roots, self.terms.locked), (protected.inner, inside_git(self.terms.locked))):
            for root in roots:
                for path in appearing(root, patterns):
                    hits.setdefault(path, set()).add(root)
        for pointer in (f"/{each}" for each in POINTERS):
            for path in protected.locked:
                if path.endswith(pointer):
                    hits.setdefault(path, set()).add(path.removesuffix(pointer))
        return hits

    def _uncovered(self, now: Scan) -> tuple[Violation, ...]:
        """Report files that were secret only because a link led to them, and whose link a command removed. The files
        stay masked (THREAT T04).
        """
        top = self.terms.workspace + "/"
        gone = {path for path in self.found.masked if path.startswith(top)} - {*now.masked}
        lost = [mark for mark in self.found.marks if mark[0] in gone and mark in marks((mark[0],))]
        if self.trees is not None and lost:
            self.trees.remember(self.terms.workspace, ((path, number, birth) for path, _, number, birth in lost))
        what = "stays masked: the command removed the link that marked it as secret"
        fix = "replace the file if it is no secret"
        return tuple(Violation(f"`{path}` {what}", path, fix, False, "watch") for path, *_ in lost)

    def _first(self, protected: Scan) -> Present:
        key = (self.moment, self.terms.locked, self.terms.write, self.terms.repository)
        if not self.moment or (before := _before.get(key)) is None:
            before = self._present(protected)
            if self.moment:
                _before[key] = before
                if len(_before) > _KEPT:
                    del _before[next(iter(_before))]
        return before

    def _unchanged(self) -> bool:
        """Return True if a scan would find the same files as the first scan; False if that is uncertain."""
        if self.trees is None or not self.moment:
            return False
        places = zip(_places(self.terms), self.moment, strict=True)
        return all(unchanged(place, self.trees, then) for place, then in places)

    def _moment(self) -> tuple[int, ...]:
        """Return the versions of the workspace and the other writable folders at their last scan; empty if they are
        unknown.
        """
        if not self.working or self.trees is None:
            return ()
        moments = [moment(place, self.trees) for place in _places(self.terms)]
        return tuple(moments) if all(moments) else ()

    def _look(self) -> Scan:
        workspace, *others = _places(self.terms)
        now = scan(*workspace, self.trees, count=False)
        for place in others:
            if os.path.isdir(place[0]):
                now = now.with_guarded(scan(*place, self.trees, count=False))
        return now

    def _present(self, protected: Scan) -> Present:
        """Map each path to the identity of its file, because a new file may have an old name, or to the target of
        its link.
        """
        paths = {*self._hits(protected)}
        top = self.terms.workspace
        # `found` has targets of links that did not exist before the command and that it may have created.
        places = {*protected.named, *self.found.named, *self.found.led}
        if places:
            from glob import escape  # few commands make such files

            paths |= {path for named in places for path in appearing(top, (escape(os.path.relpath(named, top)),))}
        paths -= set(self.terms.write)
        present: Present = {}
        for path, device, number, birth in marks(tuple(paths)):
            present[path] = (device, number, birth)
            # The path may be no link. One call only, because another command may change the path meanwhile.
            with contextlib.suppress(OSError):
                present[path] = os.readlink(path)
        return present

    def set_aside(self, path: str, *, quickly: bool = False) -> Violation:
        """Move one file or folder away, and return a violation with its new path. `quickly`: by one rename, while a
        command still runs."""
        what = f"`{path}` is a new auto-run file: other programs run or read it automatically"
        try:
            folder = self.aside or Path(tempfile.mkdtemp(prefix="ringfence-aside-"))
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = _moved(path, str(folder / f"{time.time_ns()}-{os.path.basename(path)}"), quickly=quickly)
        except OSError as error:
            what += f"; it could not be set aside ({error.strerror})"
            return Violation(what, path, "remove the file", False, "watch")
        fix = f"examine {place}, and copy it back if you want it"
        return Violation(f"{what}; it was set aside", path, fix, False, "watch")


def _places(terms: Terms) -> list[ScanPlace]:
    """Return the folders in which files may appear, the workspace first, each with the patterns for a scan of it."""
    names = plain_names(terms.hidden) if terms.writable else ()
    hidden = [(terms.workspace, terms.hidden), *((folder, names) for folder in terms.writable)]
    return [(folder, patterns, terms.shown, terms.locked) for folder, patterns in hidden]


def _moved(path: str, place: str, *, quickly: bool) -> str:
    """Move `path` to `place` or, if that fails, to a name in the same folder that no program runs. Return the new path.
    `quickly`: do not copy, because a running process may still write to the file. Raises OSError.

    THREAT T18: a process may replace the folder of `path` by a link meanwhile, so the folder is opened once.
    """
    from sandbox.workspace.opened_folder import opened_folder  # most commands create no such file

    above, name = os.path.split(path)
    with opened_folder(above) as folder:
        with contextlib.suppress(OSError):
            os.rename(name, place, src_dir_fd=folder)
            return place
        with contextlib.suppress(OSError):  # a command may have removed this user's rights
            safe_rmtree.restore(folder)
            safe_rmtree.regain(name, folder)
        if not quickly:
            here = f"/proc/self/fd/{folder}/{name}"
            with contextlib.suppress(OSError):  # copies the file if `place` is on another file system
                shutil.move(here if os.path.lexists(here) else path, place)
                return place
        beside = f"{name}.set-aside-{time.time_ns()}"
        os.rename(name, beside, src_dir_fd=folder, dst_dir_fd=folder)
        return f"{above}/{beside}"
