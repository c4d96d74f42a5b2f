"""The changes in the layer of a command as a patch, for the user who looks at them before they are applied."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence

from runner.changes import safe_open
from runner.changes.review import tree_diff
from runner.changes.review.gitignore import Ignored, kept_by_git
from runner.changes.review.patch import LARGEST_PATCH, STEPS, Patch, sections
from runner.changes.review.patch_format import Side
from runner.secrets.secret import holds_masked
from sandbox.inside.files.diff import Effort
from sandbox.workspace.layer import ChangeLayer, LayerChange, LayerKind

_OWN = "Git's own files are not compared"


def layer_patch(layer: ChangeLayer, changes: Sequence[LayerChange], secret: Callable[[str], bool]) -> Patch:
    """Return the difference between the workspace and the view of the command.

    `secret` returns True for a path below the workspace that must not be shown. Raise OSError if the workspace or the
    layer no longer exists.
    """
    with safe_open.opened_root(layer.workspace) as old, safe_open.opened_root(layer.upper) as new:
        return _LayerComparison(old, new, secret).patch(changes)


class _LayerComparison:
    """The state of a comparison of the open folders `old`, the workspace, and `new`, the upper folder of the layer."""

    def __init__(self, old: int, new: int, secret: Callable[[str], bool]) -> None:
        self._old, self._new = old, new
        self._secret = secret
        self._sides: dict[str, tuple[Side | None, Side | None]] = {}
        self._size = 0
        self._secrets: list[str] = []
        self._left: list[str] = []
        self._unfit: dict[str, str] = {}

    def patch(self, changes: Sequence[LayerChange]) -> Patch:
        found = {change.path: change for change in changes}
        ignored = self._ignored(found)
        empty = []
        for change in changes:
            names = change.path.split("/")
            if tree_diff.GIT in names:
                self._unfit["/".join(names[: names.index(tree_diff.GIT) + 1])] = _OWN
                continue
            if content := change.kind not in (LayerKind.FOLDER, None):
                self._look(change.path, ignored, new=True)
            if change.kind is not LayerKind.FOLDER or change.whole:
                for path in self._below(change.path):
                    if path not in found or (path == change.path and not content):
                        self._look(path, None, new=False)
            if change.whole and not any(path.startswith(f"{change.path}/") for path in found):
                empty.append(change.path)
        text, files = sections(dict(sorted(self._sides.items(), key=lambda each: os.fsencode(each[0]))), Effort(STEPS))
        return Patch(
            text,
            files,
            tuple(self._left),
            tuple(self._secrets),
            tuple(self._unfit.items()),
            tuple(empty),
            bounds=tuple(ignored.bounds),
        )

    def _below(self, path: str) -> Iterator[str]:
        """Yield the file at `path` of the workspace, or the files below the folder there, without Git's own."""
        status = safe_open.status(self._old, path)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            yield path
            return
        with safe_open.folder(self._old, path) as folder:
            scan = tree_diff.scan_tree(f"/proc/self/fd/{folder}/.")
        self._unfit.update((f"{path}/{each}" if each else path, why) for each, why in scan.closed.items())
        yield from (f"{path}/{each}" for each in sorted(scan.files, key=os.fsencode))

    def _look(self, path: str, ignored: "Ignored | None", *, new: bool) -> None:
        """Compare one path. `new` is False if the layer has no file there."""
        if self._secret(path):
            self._secrets.append(path)
            return
        if ignored is not None and safe_open.status(self._old, path) is None and ignored(path):
            self._left.append(path)
            return
        try:
            before = tree_diff.side(self._old, path)
            after = tree_diff.side(self._new, path) if new else None
        except tree_diff.UnreadableFile as error:
            self._unfit[path] = str(error)
            return
        if before == after:
            return
        if any(holds_masked(side.data) for side in (before, after) if side is not None):
            self._secrets.append(path)
            return
        self._size += sum(len(side.data) for side in (before, after) if side is not None)
        if self._size > LARGEST_PATCH:
            self._unfit[path] = f"a patch contains at most {LARGEST_PATCH >> 20} MiB"
            return
        self._sides[path] = before, after

    def _ignored(self, found: dict[str, LayerChange]) -> Ignored:
        """Return the rules of the view of the command for files that Git ignores. The tracked files are those of the
        workspace.
        """

        def view(path: str) -> bytes | None:
            return tree_diff.content(self._new if path in found else self._old, path)

        own = tree_diff.content(self._old, f"{tree_diff.GIT}/info/exclude")
        kept = kept_by_git(tree_diff.content(self._old, f"{tree_diff.GIT}/index"))
        return Ignored(view, kept, (own,) if own else ())
