"""The plan for applying a patch to a workspace: each file, and the obstacles. Nothing is changed."""

import os
import stat
from collections.abc import Callable, Sequence

from policy.model.frozen import dataclass
from runner.changes import safe_open
from runner.changes.review import tree_diff
from runner.changes.review.hunk_match import Moved, Unfit, fitted
from runner.changes.review.patch_format import Hunk, Side
from runner.changes.review.patch_parser import Section

_LONGEST = 4000  # characters of a path
# The same text for every reason, so that a patch cannot test guesses about the content of a secret.
HIDDEN_UNFIT = "it is a secret, and the patch does not fit its content"
HIDDEN_SOURCE = "it is a secret, and a patch must not copy or move a secret"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One path of a plan.

    Attributes:
        path: The path below the workspace.
        old: The current state, or None if the path does not exist. For a rename, the content of `was`.
        new: The target state, or None if the path is deleted.
        was: The current path of a renamed file, or an empty string.
        moved: Hunks that fit at another line than stated (number, stated line, actual line).
        only: For an existing secret, the hunks of the patch, which are all that may be shown. None for other files.
    """

    path: str
    old: Side | None
    new: Side | None
    was: str = ""
    moved: Moved = ()
    only: tuple[Hunk, ...] | None = None

    @property
    def how(self) -> str:
        if self.was:
            return "renamed"
        return "added" if self.old is None else "deleted" if self.new is None else "modified"


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """The paths of a patch. `problems` are paths with a reason, in words; a plan with a problem must not be applied."""

    items: tuple[PlannedChange, ...]
    problems: tuple[tuple[str, str], ...]


def plan(workspace: str, sections: Sequence[Section], secret: Callable[[str], bool]) -> PatchPlan:
    """Return the plan of all sections, each applied to the result of those before it.

    `secret(path)` returns True for a path that no command may read: nothing is copied or moved from it. Raise OSError
    if the workspace cannot be read.
    """
    with safe_open.opened_root(workspace) as top:
        work = _Work(top, secret)
        for section in sections:
            work.take(section)
        return work.plan()


def refused(path: str) -> str:
    """Return the reason why no patch may name this path, or an empty string if it may."""
    names = path.split("/")
    if path.startswith("/") or "\0" in path or len(path) > _LONGEST:
        return "it is not a path in the workspace"
    if ".." in names:
        return "it points out of the workspace"
    if "" in names or "." in names:
        return "it is not a plain path"
    if any(tree_diff.like_git(name) for name in names):
        return "it is in Git's own folder"
    return ""


class _Work:
    def __init__(self, top: int, secret: Callable[[str], bool]) -> None:
        self._top = top
        self._secret = secret
        self._before: dict[str, Side | None] = {}
        self._after: dict[str, Side | None] = {}
        self._moved: dict[str, Moved] = {}
        self._was: dict[str, str] = {}
        self._said: dict[str, tuple[Hunk, ...]] = {}
        self._problems: dict[str, str] = {}

    def take(self, section: Section) -> None:
        """Apply one section to the planned state, or record its problem."""
        for path in {section.old, section.new} - {None}:
            assert path is not None  # excluded above
            if why := refused(path):
                self._problems.setdefault(path, why)
                return
        if section.old is not None and section.new not in (None, section.old) and self._secret(section.old):
            self._problems.setdefault(section.old, HIDDEN_SOURCE)
            return
        try:
            old = self._source(section)
            side, moved = fitted(section, old)
            fresh = section.new is not None and section.new != section.old
            if fresh and section.new is not None and self._planned(section.new) is not None:
                raise Unfit("the file exists already")
        except (Unfit, tree_diff.UnreadableFile) as error:
            gone = section.old is not None and self._after.get(section.old) is None
            why = self._blocked(section.old) if gone and section.old is not None else ""
            if not why and not gone and self._secret(section.path):
                why = HIDDEN_UNFIT
            self._problems.setdefault(section.path, why or str(error))
            return
        self._said[section.path] = (*self._said.get(section.path, ()), *section.hunks)
        if section.old is not None and section.old != section.new and not section.same:
            self._after[section.old] = None
        if section.new is not None:
            self._after[section.new] = side
            self._moved[section.new] = moved
            if section.old is not None and section.old != section.new and not section.same:
                self._was[section.new] = section.old

    def _source(self, section: Section) -> Side | None:
        """Return the content that a section starts from. Raise UnreadableFile.

        A copy starts from the state before the patch, whatever comes earlier in the patch (git-diff(1), "generating
        patch text with -p").
        """
        if section.old is None:
            return None
        now = self._planned(section.old)
        before = self._before[section.old]
        return before if section.same and before is not None else now

    def _planned(self, path: str) -> Side | None:
        """Return the planned state of `path` after the sections so far. Raise UnreadableFile."""
        if path not in self._after:
            self._after[path] = self._before[path] = tree_diff.side(self._top, path)
        return self._after[path]

    def _blocked(self, path: str) -> str:
        """Return the first parent of `path` that would not be a folder, in words, or an empty string."""
        names = path.split("/")[:-1]
        for count in range(1, len(names) + 1):
            above = "/".join(names[:count])
            if above in self._after:
                side = self._after[above]
                if side is not None:
                    return f"its folder `{above}` is a file or link of this patch"
                if self._before[above] is not None:
                    return ""  # the patch removes it, so the folders below are new
                continue
            status = safe_open.status(self._top, above)
            if status is None:
                return ""
            if not stat.S_ISDIR(status.st_mode):
                return f"its folder `{above}` is a {'link' if stat.S_ISLNK(status.st_mode) else 'file'}"
        return ""

    def plan(self) -> PatchPlan:
        for path, side in self._after.items():
            if side is None or path in self._problems:
                continue
            if why := self._blocked(path) or self._in_the_way(path):
                self._problems[path] = why
        items = []
        for path in sorted(self._after, key=os.fsencode):
            old, new = self._before.get(path), self._after[path]
            if old == new and path not in self._was:
                continue
            if new is None and path in self._was.values() and path not in self._problems:
                continue  # part of the item with the new name
            was = self._was.get(path, "")
            source = self._before.get(was) if was and old is None else old
            only = self._said.get(path, ()) if old is not None and self._secret(path) else None
            items.append(PlannedChange(path, source, new, was if old is None else "", self._moved.get(path, ()), only))
        return PatchPlan(tuple(items), tuple(sorted(self._problems.items())))

    def _in_the_way(self, path: str) -> str:
        """Return the reason why an existing folder at `path` cannot be replaced, or an empty string."""
        status = safe_open.status(self._top, path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return ""
        left = [path]
        while left:
            above = left.pop()
            with safe_open.folder(self._top, above) as handle:
                for name in os.listdir(handle):
                    inner = f"{above}/{name}"
                    if stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                        left.append(inner)
                    elif self._after.get(inner, self) is not None:
                        return "there is a folder with other files"
        return ""
