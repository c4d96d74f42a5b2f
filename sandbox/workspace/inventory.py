"""Inventory of the files in one tree that other programs run or obey without being asked.

The tree is judged as it will be: the files on the disk, together with the changes that are about to be made. A file
counts if its name matches a pattern of the profile (`Profile.locked`), at any depth; if links or the settings of a
repository lead to it (`Scan.locked`, `named`, `led`); or if Git takes a folder around it for the inside of a repository
(gitrepository-layout(5)) and obeys the file there. A change also counts if it completes such a repository around
existing files, or is a link with a name that makes the files behind it count.

`agent apply`, `--review` and `agent undo` ask before they write files or output a patch. Commands are judged by the
files that they left on the disk (`sandbox/workspace/protected_paths.py`, `sandbox/workspace/autorun.py`), with the same
patterns and the same rule for repositories (`git_settings.like_repository`).

Names that only one user's programs obey, such as the folder that `core.hooksPath` of that user's own settings names,
are added to `Profile.personal` (`runner/config/personal_settings.py`) before `Facts` and `Terms` are made: the policy,
the sandbox, undo and patches all read them from there. Places that no pattern can describe are passed as `places`.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from policy.model.frozen import dataclass
from policy.model.glob import glob
from policy.model.secret_paths import Secrets, folded, inside
from sandbox.inside.regular_file import read_start, real_path
from sandbox.workspace.git_settings import POINTERS, SHAPE, inside_git, like_repository

_LONGEST = 4096  # bytes of HEAD and `commondir` that are read
_REF = re.compile(rb"(?:ref:\s*refs/|[0-9a-f]{40})")  # setup.c, validate_headref()

BY_NAME = "it is an auto-run file: other programs run or read it automatically"
_LINKED = "it is a link, and other programs automatically run files behind a link of this name"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A file, folder or link at one path. `data`: the beginning of a file's content, or the target of a link."""

    kind: Literal["file", "folder", "link"]
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Finding:
    """The reason why a change matters. `completes`: the change makes programs obey other files, not the file itself."""

    why: str
    completes: bool = False


Changes = Mapping[str, TreeNode | None]  # path below the top -> its future node; None if the path will be removed


class AutorunInventory:
    """The judge of changes below one folder.

    `top` is a real path, `workspace` the same or a parent folder, to which patterns are relative. `places` are absolute
    paths of files and folders that programs obey with all their content, `repositories` absolute paths of folders that
    Git is known to take for the inside of a repository.
    """

    def __init__(
        self,
        secrets: Secrets,
        top: str,
        workspace: str,
        places: Iterable[str] = (),
        repositories: Iterable[str] = (),
    ) -> None:
        self._secrets = secrets
        self._top = top.rstrip("/")
        self._workspace = workspace
        self._places = frozenset(map(folded, places))
        self._repositories = tuple(each for each in repositories if inside(each, top))
        self._known = {folded(each) for each in self._repositories}
        locked = (*secrets.profile.locked, *secrets.profile.personal)
        self._deep = tuple(pattern for pattern in (folded(each).split("/") for each in locked) if len(pattern) > 1)
        self._obeyed = tuple(folded(pattern).split("/") for pattern in inside_git(locked))

    def named(self, path: str) -> bool:
        """Return True if `path` counts by its name or its place, independent of the files around it."""
        whole = f"{self._top}/{path}"
        if self._secrets.locked_in(whole, self._workspace):
            return True
        whole = folded(whole)
        return whole in self._places or any(f"/{above}" in self._places for above in _above(whole[1:]))

    def findings(self, changes: Changes) -> dict[str, Finding]:
        """Return the paths of `changes` that count, each with the reason."""
        before, after = _Tree(self._top, {}), _Tree(self._top, changes)
        findings = {
            path: Finding(BY_NAME) for path, node in changes.items() if self.named(path) or _pointer(path, node)
        }
        findings |= {path: Finding(_LINKED) for path, node in changes.items() if self._leads(path, node, after)}
        below: dict[str, list[str]] = {}
        for path in changes:
            for folder in _above(path):
                below.setdefault(folder, []).append(path)
        for folder, paths in below.items():
            obeyed: dict[str, Finding] = {}
            mine = before.repository(folder) or after.repository(folder)
            if mine or folded(f"{self._top}/{folder}".rstrip("/")) in self._known:
                obeyed |= self._inside(folder, paths)
            if mine:
                for shared in {before.common(folder), after.common(folder)} - {None, folder}:
                    obeyed |= self._inside(str(shared), below.get(str(shared), ()))
            if after.repository(folder) and not before.certain(folder) and self._holds_obeyed(folder, before):
                completing = (path for path in paths if _rest(path, folder)[0] in _SHAPE)
                obeyed = {**{path: Finding(_completed(folder), True) for path in completing}, **obeyed}
            for path, finding in obeyed.items():
                findings.setdefault(path, finding)
        return {**self._led(changes, before), **findings}

    def _leads(self, path: str, node: TreeNode | None, after: "_Tree") -> bool:
        """Return True for a link above the last name of a pattern (`.hg` of `.hg/hgrc`) that is hidden, or whose target
        contains a matching path."""
        if node is None or node.kind != "link":
            return False
        names, target = folded(path).split("/"), after.target(path)
        for pattern in self._deep:
            for count in range(1, min(len(names), len(pattern) - 1) + 1):
                if all(map(glob, names[-count:], pattern)) and (
                    pattern[0].startswith((".", "_")) or after.holds("/".join((target, *pattern[count:])))
                ):
                    return True
        return False

    def _led(self, changes: Changes, before: "_Tree") -> dict[str, Finding]:
        """Return changes that complete a repository because one of its names is a link that leads to them."""
        findings: dict[str, Finding] = {}
        for folder in (_below(self._top, place) for place in self._repositories):
            if before.certain(folder) or not self._holds_obeyed(folder, before):
                continue
            for place in (before.led(f"{folder}/{name}") for name in SHAPE):
                near = (path for path in changes if place and (inside(path, place) or inside(place, path)))
                findings |= {path: Finding(_completed(folder), True) for path in near}
        return findings

    def _inside(self, folder: str, paths: Iterable[str]) -> dict[str, Finding]:
        """Return the members of `paths` that Git obeys if `folder` is the inside of a repository."""
        why = f"Git treats {_shown(folder)} as a repository, and applies this file in it"
        rests = ((path, _rest(path, folder)) for path in paths if not path.endswith(".sample"))  # githooks(5)
        return {path: Finding(why) for path, rest in rests if any(_begins(rest, each) for each in self._obeyed)}

    def _holds_obeyed(self, folder: str, tree: "_Tree") -> bool:
        """Return True if `folder`, or the folder with its shared settings, contains a file that Git would obey."""
        folders = {folder, tree.common(folder)} - {None}
        return any(tree.holds(f"{each}/{'/'.join(pattern)}") for each in folders for pattern in self._obeyed)


class _Tree:
    """The tree below `top` as it will be once `changes` are made."""

    def __init__(self, top: str, changes: Changes) -> None:
        self._top = top
        self._changes = {folded(path): node for path, node in changes.items()}
        made = (path for path, node in changes.items() if node is not None)
        self._folders = {folded(folder) for path in made for folder in _above(path)}

    def repository(self, folder: str) -> bool:
        """Return True if Git may take `folder` for the inside of a repository. Only names are examined, because the
        content of HEAD and the targets of links may change later, by changes that are not judged here."""
        return like_repository({name for name in SHAPE if self._kind(f"{folder}/{name}")})

    def certain(self, folder: str) -> bool:
        """Return True if Git surely takes `folder` for the inside of a repository (setup.c, is_git_directory())."""
        head = f"{folder}/HEAD"
        data = self._data(head)
        valid = data.startswith(b"refs/") if self._kind(head) == "link" else _REF.match(data) is not None
        shared = self.common(folder)
        return valid and shared is not None and all(self._entered(f"{shared}/{name}") for name in ("objects", "refs"))

    def common(self, folder: str) -> str | None:
        """Return the folder with the settings of the repository whose inside is `folder`; None if it is not below the
        top (gitrepository-layout(5), `commondir`)."""
        text = os.fsdecode(self._data(f"{folder}/commondir").rstrip(b"\r\n"))
        if not text or "\0" in text:
            return folder
        place = real_path(os.path.join(self._top, folder, text))
        return _below(self._top, place) if inside(place, self._top) else None

    def led(self, path: str) -> str:
        """Return the target of a link on the disk, below the top; empty if `path` is no link, or leads elsewhere."""
        place = real_path(f"{self._top}/{path}")
        return _below(self._top, place) if self._kind(path) == "link" and inside(place, self._top) else ""

    def target(self, path: str) -> str:
        """Return the target of a link, below the top, from the text of the link and the links on the disk; empty if it
        leads elsewhere."""
        above = os.path.dirname(f"{self._top}/{path}")
        place = real_path(os.path.join(above, os.fsdecode(self._data(path)).replace("\0", "")))
        return _below(self._top, place) if inside(place, self._top) else ""

    def holds(self, path: str) -> bool:
        """Return True if `path` is a file or link, or a folder that contains more than sample hooks."""
        if self._kind(path) != "folder":
            return self._kind(path) is not None
        try:
            return any(not name.endswith(".sample") for name in os.listdir(f"{self._top}/{path}"))
        except OSError:
            return True

    def _entered(self, path: str) -> bool:
        return self._kind(path) == "folder" and os.access(f"{self._top}/{path}", os.X_OK)

    def _kind(self, path: str) -> str | None:
        short = folded(path.lstrip("/"))
        if short in self._folders:
            return "folder"
        if short in self._changes:
            node = self._changes[short]
            return node.kind if node is not None else None
        try:
            mode = os.lstat(f"{self._top}/{path}").st_mode
        except (OSError, ValueError):
            return None
        return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "file"

    def _data(self, path: str) -> bytes:
        """Return the start of a file, or the target of a link; empty for other kinds."""
        node = self._changes.get(folded(path.lstrip("/")))
        if node is not None:
            return node.data[:_LONGEST]
        kind, whole = self._kind(path), f"{self._top}/{path}"
        try:
            if kind == "link":
                return os.fsencode(os.readlink(whole))
        except OSError:
            return b""
        return read_start(whole, _LONGEST, follow=False) if kind == "file" else b""


def _completed(folder: str) -> str:
    return f"with it, Git treats {_shown(folder)} as a repository, and applies its existing settings or hooks"


_SHAPE = frozenset(map(str.casefold, SHAPE))
_POINTERS = tuple(f"/{each}" for each in POINTERS)


def _pointer(path: str, node: TreeNode | None) -> bool:
    """Return True for a `.git` file or link, which names the folder with the settings (gitrepository-layout(5))."""
    return node is not None and node.kind != "folder" and f"/{folded(path)}".endswith(_POINTERS)


def _below(top: str, place: str) -> str:
    return place[len(top) :].strip("/")


def _above(path: str) -> Iterator[str]:
    """Yield the folders that contain `path`, from the top (empty) on."""
    yield ""
    for count, char in enumerate(path):
        if char == "/":
            yield path[:count]


def _rest(path: str, folder: str) -> list[str]:
    """Return the names of `path` below `folder`, case-folded for comparison."""
    return folded(path[len(folder) :].lstrip("/")).split("/")


def _begins(names: list[str], pattern: list[str]) -> bool:
    return len(names) >= len(pattern) and all(map(glob, names, pattern))


def _shown(folder: str) -> str:
    return f"`{folder}`" if folder else "the workspace"
