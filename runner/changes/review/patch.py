"""The changes in a copy of a workspace as a patch for `agent apply` and `git apply`.

The patch is made without Git, so no program that settings of the workspace name (filters, hooks, drivers, file system
monitors) can run.
"""

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from policy.model.frozen import dataclass
from runner.changes import safe_open
from runner.changes.file_state import SECRET, Stamp, clock_margin, stamp
from runner.changes.review import tree_diff
from runner.changes.review.gitignore import Ignored, kept_by_git
from runner.changes.review.patch_format import LINK, Side, changed, node_of, renamed
from runner.changes.review.tree_diff import never
from runner.changes.review.workspace_copy import Copy
from runner.secrets.secret import holds_masked
from runner.text.sanitize import visible
from sandbox.inside.files.diff import Effort
from sandbox.workspace.inventory import Changes

STEPS = 20_000_000  # of comparing lines, in all files together
_SHOWN = 5  # paths in a line
LARGEST_PATCH = 512 << 20  # bytes of all contents in one patch


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """One path of a patch. `how` is added, modified, deleted or renamed; `was` is the old path of a renamed file."""

    path: str
    how: str
    was: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch and the changes that it does not contain.

    Attributes:
        text: The patch, empty if nothing changed.
        files: The paths of the patch.
        ignored: Changed files that Git ignores, left out unless requested.
        secrets: Changed paths that are never in a patch because their content is secret.
        unfit: Changed paths that a patch cannot represent, with the reason.
        empty: New empty folders, which a patch cannot represent.
        moved: Paths that also changed in the original; the patch applies to their current content.
        obeyed: Paths that other programs run by themselves after the patch is applied, or that make them run existing
            files.
        bounds: A sentence for each limit that was reached.
        cut: True if the time was over before every path was compared.
    """

    text: bytes
    files: tuple[PatchedFile, ...]
    ignored: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    empty: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    obeyed: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    cut: bool = False

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Return every path whose change is not in the patch, with the reason."""
        secret = ((path, SECRET) for path in self.secrets)
        ignored = ((path, "Git ignores it") for path in self.ignored)
        empty = ((path, "it is an empty folder") for path in self.empty)
        return (*secret, *self.unfit, *empty, *ignored)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the changes that are not in the patch, in a few lines."""
        unfit = tuple(f"{path} ({why})" for path, why in self.unfit)
        groups = (
            ("not in the patch, because they are secrets", self.secrets),
            ("not in the patch", unfit),
            ("not in the patch, because they are empty folders", self.empty),
            ("not in the patch, because Git ignores them (see `--patch-ignored`)", self.ignored),
            ("auto-run files, which other programs run: check them carefully", self.obeyed),
            ("changed in the workspace meanwhile: check them carefully", self.moved),
        )
        return (*(f"{words}: {listed(paths)}" for words, paths in groups if paths), *self.bounds)


def listed(paths: Sequence[str]) -> str:
    """Return the first few paths, and the number of the others."""
    shown = ", ".join(visible(path, lines=False) for path in paths[:_SHOWN])
    return shown if len(paths) <= _SHOWN else f"{shown} and {len(paths) - _SHOWN:,} more"


def patch_of(
    copy: Copy,
    secret: Callable[[str], bool],
    *,
    with_ignored: bool = False,
    excludes: Iterable[bytes] = (),
    judge: Callable[[Changes], Iterable[str]] = tuple,
    over: Callable[[], bool] = never,
) -> Patch:
    """Return the difference between the original and the copy, without changes that were made only in the original.

    `secret(path)` returns True for a path below the workspace that must not be shown. `excludes` are the user's own
    ignore lists. `judge(changes)` returns the changes that other programs obey by themselves. If `over()` becomes true,
    the paths not yet compared are in `unfit`. Raise OSError if either folder no longer exists.
    """
    with safe_open.opened_root(copy.original) as old, safe_open.opened_root(copy.path) as new:
        work = _Comparison(copy, secret, over, old, new)
        ignored = work.ignored(excludes)
        now = tree_diff.scan_tree(copy.path, over)
        if not with_ignored:
            work.leave_out = ignored
        for path in sorted(_touched(copy, now), key=os.fsencode):
            work.look(path)
        work.unfit += now.closed.items()
        empty = tuple(sorted(path for path in now.empty if path not in copy.stamps))
        made = work.patch(empty, judge)
        cut = work.cut or tree_diff.OVERTIME in now.closed.values()
        return replace(made, bounds=tuple(ignored.bounds), cut=cut)


def _touched(copy: Copy, now: tree_diff.TreeScan) -> set[str]:
    """Return the paths of files and links that may have changed in the copy."""
    touched = set()
    for path, status in now.files.items():
        known = copy.stamps.get(path)
        if known is None or known[1] != stamp(status):
            touched.add(path)
        elif known[1][4] > copy.whole - clock_margin(known[1][4]) and status.st_size <= tree_diff.LARGEST:
            touched.add(path)  # a change just after the copy may leave the same time
    missing = (path for path in copy.stamps if path not in now.files and not now.unseen(path))
    return touched | {path for path in missing if tree_diff.GIT not in path.split("/")}


class _Comparison:
    """The state of a comparison of the open folders `old`, the original, and `new`, the copy."""

    def __init__(self, copy: Copy, secret: Callable[[str], bool], over: Callable[[], bool], old: int, new: int) -> None:
        self._copy = copy
        self._over = over
        self.cut = False
        self._secret = secret
        self.leave_out: Callable[[str], bool] = lambda path: False
        self._old, self._new = old, new
        self._changes: dict[str, tuple[Side | None, Side | None]] = {}
        self._size = 0
        self.secrets: list[str] = []
        self.left: list[str] = []
        self.unfit: list[tuple[str, str]] = []
        self.moved: list[str] = []

    def ignored(self, excludes: Iterable[bytes]) -> Ignored:
        """Return the ignore rules of the copy, so that files ignored by a list of the model are ignored. The tracked
        files are those of the original.
        """

        own = tree_diff.content(self._old, f"{tree_diff.GIT}/info/exclude")
        kept = kept_by_git(tree_diff.content(self._old, f"{tree_diff.GIT}/index"))
        first = (*excludes, *((own,) if own else ()))
        return Ignored(lambda path: tree_diff.content(self._new, path), kept, first, self._over)

    def look(self, path: str) -> None:
        """Compare one path, and add it to the changes or to one of the lists."""
        if self._late(path):
            return
        secret = self._secret(path)
        if not secret and path not in self._copy.stamps and self.leave_out(path):
            self.left.append(path)  # not read, since an installation may create thousands of such files
            return
        try:
            new = tree_diff.side(self._new, path)
            old = tree_diff.side(self._old, path)
        except tree_diff.UnreadableFile as error:
            if secret:
                self.secrets.append(path)
            else:
                self.unfit.append((path, str(error)))
            return
        if old == new or self._others(path, secret):
            return
        if secret or any(holds_masked(side.data) for side in (old, new) if side is not None):
            self.secrets.append(path)
        elif any(tree_diff.like_git(name) for name in path.split("/")):
            self.unfit.append((path, "on some systems this name means Git's own folder"))
        elif self.leave_out(path):
            self.left.append(path)
        else:
            self._size += sum(len(side.data) for side in (old, new) if side is not None)
            if self._size > LARGEST_PATCH:
                self.unfit.append((path, f"a patch contains at most {LARGEST_PATCH >> 20} MiB"))
                return
            self._changes[path] = old, new

    def _late(self, path: str) -> bool:
        """Return True if the time is over, and record then that `path` was not compared."""
        if not self._over():
            return False
        self.cut = True
        self.unfit.append((path, tree_diff.OVERTIME))
        return True

    def _others(self, path: str, secret: bool) -> bool:
        """Return True if only the original changed. A change in both is recorded."""
        known = self._copy.stamps.get(path)
        then = known[0] if known else None
        if then == _stamp(path, self._old):
            return False
        if known is not None and known[1] == _stamp(path, self._new):
            return True
        if not secret:
            self.moved.append(path)
        return False

    def patch(self, empty: tuple[str, ...], judge: Callable[[Changes], Iterable[str]]) -> Patch:
        """Return the changes found so far as a patch."""
        obeyed = judge({path: node_of(new) for path, (_, new) in self._changes.items()})
        text, files = sections(self._changes, Effort(STEPS, self._over), self._late)
        return Patch(
            text,
            files,
            tuple(self.left),
            tuple(self.secrets),
            tuple(self.unfit),
            empty,
            tuple(self.moved),
            tuple(sorted(obeyed)),
        )


def sections(
    changes: Mapping[str, tuple[Side | None, Side | None]],
    effort: Effort,
    late: Callable[[str], bool] = lambda path: False,
) -> tuple[bytes, tuple[PatchedFile, ...]]:
    """Return the text of a patch, and its paths. `changes` has the old and the new file of each path, None for none.

    A path for which `late` returns True is left out.
    """
    gone: dict[tuple[str, bool], list[str]] = {}
    for path, (old, new) in changes.items():
        if new is None and old is not None and old.data:
            gone.setdefault((old.blob, old.mode == LINK), []).append(path)
    parts: dict[str, tuple[bytes, PatchedFile]] = {}
    sources: set[str] = set()
    for path, (old, new) in changes.items():
        if late(path):
            continue
        if old is None and new is not None and (before := gone.get((new.blob, new.mode == LINK))):
            was = before.pop(0)
            source = changes[was][0]
            assert source is not None  # `gone` has only files of the original
            sources.add(was)
            text = renamed(os.fsencode(was), os.fsencode(path), source, new)
            parts[path] = text, PatchedFile(path, "renamed", was)
            continue
        how = "added" if old is None else "deleted" if new is None else "modified"
        parts[path] = changed(os.fsencode(path), old, new, effort), PatchedFile(path, how)
    kept = [part for path, part in parts.items() if path not in sources]
    return b"".join(text for text, _ in kept), tuple(file for _, file in kept)


def _stamp(path: str, top: int) -> Stamp | None:
    """Return the stamp of a file or link, or None if there is none."""
    status = safe_open.status(top, path)
    return None if status is None or stat.S_ISDIR(status.st_mode) else stamp(status)
