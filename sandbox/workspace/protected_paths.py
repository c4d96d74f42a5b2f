"""The scan of the workspace for paths that must be masked, read-only or pinned before a command may run there."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from policy.model.frozen import dataclass, replace
from sandbox.inside.regular_file import real_path
from sandbox.workspace.folder_cache import (
    CLOSED,
    GIT_IS_FILE,
    HAS_GIT,
    HAS_LINK,
    IS_GIT,
    FileMark,
    FileStamp,
    FolderTree,
    FolderTrees,
)
from sandbox.workspace.git_settings import (
    OTHERS,
    POINTERS,
    UncertainSettingsError,
    common,
    git_folders,
    inside_git,
    named,
)
from sandbox.workspace.path_patterns import (
    candidates,
    existing,
    expanded_pattern,
    folders_between,
    links_to,
    marks,
)
from sandbox.workspace.secret_files import login_at, plain_names, secret_names

# Special paths of one kind. More mounts would take longer than the command, and no user reviews such a list.
MOST = 4000
# Files with hard links elsewhere. Most are objects of a repository that was cloned from a neighbouring folder: Git
# packs them when there are 6,700 (git-gc(1), gc.auto). Each needs a mount if the workspace is writable.
MOST_SHARED = 10_000


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan. Paths are absolute.

    Attributes:
        masked: Secret files and folders.
        locked: Files that are read-only even when the workspace is writable.
        pinned: Folders that must not be renamed: `.git`, and parents of paths that are secret by place or by a link.
        shared: Files with hard links outside of the workspace.
        roots: The workspace and every repository nested in it.
        inner: Folders that Git takes for the inside of a repository.
        closed: Masked folders that cannot be read.
        sockets: Sockets that a program outside of the sandbox has bound, or one in another sandbox.
        named: Places of hooks and further settings that repositories name, existing or not, and missing targets of
            links with locked names.
        led: Targets of links with locked names or in `named`, and all links on the way to them: a change of one of
            them changes the files that other programs obey.
        marks: Identity of each file of the first four and of `sockets` (path, device, number, birth), because editors
            replace files.
        truncated: True if there are more than MOST paths of one kind. The scan is then incomplete; nothing may run.
        crowded: True if there are more than MOST_SHARED shared files. Then no command that may write may run.
    """

    masked: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    led: tuple[str, ...] = ()
    marks: tuple[tuple[str, int, int, int], ...] = ()
    truncated: bool = False
    crowded: bool = False

    def lacks(self, later: "Scan") -> str:
        """Return a path that mounts made from this scan do not cover at the time of a `later` one: a secret file that
        is new or was replaced, or a protected file that was moved. Empty if there is none.
        """
        known, masked = {*self.marks}, {*later.masked}
        moved = {mark[1:] for mark in self.marks}
        new = (mark for mark in later.marks if mark not in known)
        return next((mark[0] for mark in new if mark[0] in masked or mark[1:] in moved), "")

    def with_masked(self, other: "Scan") -> "Scan":
        """Return a copy with the secret files of the scan of a further folder."""
        return self._joined(other, "masked", "closed", "sockets")

    def with_guarded(self, other: "Scan") -> "Scan":
        """Return a copy with the secret and auto-run files of the scan of a further writable folder."""
        fields = ("masked", "closed", "sockets", "locked", "pinned", "roots", "inner", "named", "led")
        return self._joined(other, *fields)

    def with_repository(self, other: "Scan", foreign: tuple[str, ...], pinned: tuple[str, ...]) -> "Scan":
        """Return a copy with the scan of a repository outside of the workspace. `foreign` are its paths that belong to
        other worktrees and are read-only, and `pinned` the folders above them.
        """
        guarded = replace(
            other,
            locked=tuple(sorted({*other.locked, *foreign})),
            pinned=tuple(sorted({*other.pinned, *pinned})),
            marks=tuple(sorted({*other.marks, *marks((*foreign, *pinned))})),
        )
        crowded = self.crowded or other.crowded
        return replace(self.with_guarded(guarded)._joined(guarded, "shared"), crowded=crowded)

    def _joined(self, other: "Scan", *fields: str) -> "Scan":
        both = {name: tuple(sorted({*getattr(self, name), *getattr(other, name)})) for name in fields}
        truncated = self.truncated or other.truncated or any(len(both.get(name, ())) > MOST for name in _COVERED)
        cut: dict[str, Any] = {name: all_ if name in _WHOLE else all_[:MOST] for name, all_ in both.items()}
        return replace(self, **cut, marks=tuple(sorted({*self.marks, *other.marks})), truncated=truncated)


_COVERED = ("masked", "locked", "pinned", "sockets")  # fields whose paths need a mount each
_WHOLE = ("roots", "inner", "shared")  # fields that are never truncated


@dataclass(frozen=True, slots=True)
class _KnownScan:
    """The result of an earlier scan, with everything that it depends on.

    Attributes:
        version: Version of the tree.
        leads: Target of each link and named place.
        read: Stamps of the files that were read.
        sockets: The sockets that were in use.
    """

    version: int
    scan: Scan
    shared: list[tuple[str, int, int, int]]
    leads: dict[str, str]
    read: dict[str, FileStamp]
    sockets: tuple[str, ...]


# A folder, and the patterns of hidden, shown and locked files below it: the first arguments of `scan`.
ScanPlace = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def scan(
    workspace: str,
    hidden: tuple[str, ...],
    shown: tuple[str, ...],
    locked: tuple[str, ...],
    trees: FolderTrees | None = None,
    *,
    count: bool = True,
) -> Scan:
    """Scan `workspace` without following links.

    A folder that cannot be read is masked: otherwise one command could make it unreadable, and the next one could make
    it readable again and find its content without a mask.

    Args:
        hidden: Patterns of secrets. A pattern is a name, or `FOLDER/NAME`; one that begins with `/` is one place in the
            workspace.
        trees: Cache of folders. Folders that did not change since they were read are not read again; the result is the
            same (`sandbox/workspace/folder_cache.py` has the limits).
        count: False to skip counting the hard links of files in unchanged folders, unless a file appeared. The count is
            needed because a second name of a secret file is secret.
    """
    trees = trees or FolderTrees(None)
    names = plain_names(hidden)
    secret = secret_names(names, shown)
    tree = trees.take(workspace, (names, shown))
    tree.renew(secret, everything=count and tree.due())
    shared, odd = _shared(tree, secret)
    if not odd <= tree.odd:
        # A new file with hard links elsewhere since the last count: other files may have new links as well, and one of
        # them may be the second name of a secret file, in a folder that did not change.
        tree.renew(secret, everything=True)
        shared, odd = _shared(tree, secret)
    if tree.counted_now:
        tree.odd = odd
    trees.keep(tree)
    uncovered = _still_there(trees.uncovered(workspace))
    key = (hidden, locked, uncovered)
    known = tree.answers.get(key)
    if isinstance(known, _KnownScan) and _holds(known, tree, shared):
        return known.scan
    started = time.time_ns()
    placed = tuple(place[1:] for place in hidden if place[:1] == "/")
    # Existing paths, at the places in the workspace to which their links lead.
    at_places = {real_path(path) for place in placed for path in expanded_pattern(workspace, place)}
    masked = {path for path in at_places if path.startswith(workspace + "/") and os.path.lexists(path)} | uncovered
    linked = {*masked}  # paths that are secret by their place or by a link: renaming a parent folder would uncover them
    roots, inner, closed = [], [], []
    settings: set[str] = set()  # files that are secret while they hold a login
    git = inside_git(locked)
    for path, folder in tree.folders.items():
        if not folder[6] and not folder[7] and path != workspace:
            continue
        if folder[7] & CLOSED:
            closed.append(path)
            continue
        for name in folder[6]:
            named_so = secret(f"{path}/{name}")
            if not named_so:
                settings.add(f"{path}/{name}")
                if not login_at(f"{path}/{name}"):
                    continue
            real = real_path(f"{path}/{name}")
            # A dangling link (`.env` before `.env.local` exists) or a circle of links has no content to mask.
            if real.startswith(workspace + "/") and os.path.lexists(real) and not os.path.islink(real):
                masked.add(real)
                by_folder = named_so and not secret(name)
                if real != f"{path}/{name}" or by_folder:  # else its own name makes it secret
                    linked.add(real)
        if path == workspace or folder[7] & HAS_GIT or not OTHERS.isdisjoint(folder[5]):
            roots.append(path)
        if git and folder[7] & IS_GIT:
            inner.append(path)
            shared_by = common(path)
            if shared_by != path and (shared_by + "/").startswith(workspace + "/"):
                inner.append(shared_by)
    masked |= {*closed}
    named_places, mentioned = set[str](), set[str]()
    insides = {(folder, root) for root in roots if git for folder in _insides(root, tree)}
    for inside, top in (*sorted(insides), *((path, path) for path in inner)):
        places = named(inside, top.removesuffix("/.git"))
        mentioned |= places
        # A place that contains the repository itself cannot be made read-only.
        below = {path for path in places if path.startswith(workspace + "/")}
        named_places |= {path for path in below if not f"{inside}/".startswith(f"{path}/")}
    hits = {hit for root in roots for _, hit in candidates(root, locked)}
    hits |= {hit for root in inner for _, hit in candidates(root, git)}
    behind = {hit: real for hit in (*hits, *named_places) if (real := real_path(hit)) != hit}
    # Missing targets of such links: a file that is created there counts.
    named_places |= {real for real in behind.values() if real.startswith(workspace + "/") and not os.path.lexists(real)}
    led = {each for hit, real in behind.items() for each in (real, *links_to(hit)) if each.startswith(workspace + "/")}
    fixed = {path for root in roots for path in existing(root, locked, workspace)}
    fixed |= {path for root in inner for path in existing(root, git, workspace)}
    if git:  # a `.git` file names the folder with the settings: changing the file changes all settings
        fixed |= {f"{root}/.git" for root in roots if tree.folders[root][7] & GIT_IS_FILE}
        fixed |= {path for root in roots for path in existing(root, POINTERS[1:], workspace) if os.path.isfile(path)}
    targets = {real_path(path) for path in named_places}
    fixed |= {path for path in targets if os.path.lexists(path) and path.startswith(workspace + "/")}
    masked |= _twins(tree, masked)
    fixed |= _twins(tree, fixed)
    pinned = {path for root in roots for path in existing(root, (".git",)) if os.path.isdir(path)}
    pinned |= {above for path in linked for above in folders_between(workspace, path)}
    sockets = _in_use(tree)
    answer = Scan(
        masked=tuple(sorted(masked))[:MOST],
        locked=tuple(sorted(fixed))[:MOST],
        pinned=tuple(sorted(pinned))[:MOST],
        shared=tuple(sorted(path for path, *_ in shared))[:MOST_SHARED],
        roots=tuple(sorted(roots)),
        inner=tuple(sorted(set(inner))),
        closed=tuple(sorted(closed)),
        sockets=sockets[:MOST],
        named=tuple(sorted(named_places)),
        led=tuple(sorted(led)),
        marks=tuple(sorted({*marks((*masked, *fixed, *pinned, *sockets)[: 4 * MOST]), *shared})),
        truncated=max(len(masked), len(fixed), len(pinned), len(sockets)) > MOST,
        crowded=len(shared) > MOST_SHARED,
    )
    tree.answers.pop(key, None)
    if _certain(tree, answer, locked) and not any(c in place for place in placed for c in "/*?["):
        folders = {*(f"{root}/.git" for root in roots), *(folder for folder, _ in insides), *inner}
        read = {f"{folder}/{name}" for folder in folders for name in _SETTINGS}
        read |= mentioned
        # A missing file needs no stamp if the tree has its folder: creating the file changes that folder.
        for path in tuple(read):
            above = tree.folders.get(os.path.dirname(path))
            if above is not None and above[4] and not os.path.lexists(path):
                read.remove(path)
        stamps = {path: tree.stamp(path) for path in (*(read if git else ()), *settings)}
        if all(tree.settled(stamp, path, started) for path, stamp in stamps.items()):
            leaves = {f"{path}/{name}" for path, folder in tree.folders.items() if folder[6] for name in folder[6]}
            leaves |= {f"{workspace}/{place}" for place in placed}
            names = tuple(pattern for pattern in locked if "/" not in pattern)
            leaves |= {hit for root in (*roots, *inner) for _, hit in candidates(root, names)}
            leads = {path: _leads(path) for path in {*filter(os.path.islink, leaves), *answer.named}}
            tree.answers[key] = _KnownScan(tree.version, answer, shared, leads, stamps, sockets)
    return answer


_SETTINGS = ("config", "config.worktree", "commondir")  # the files of a repository that a scan reads


def _holds(known: _KnownScan, tree: FolderTree, shared: list[tuple[str, int, int, int]]) -> bool:
    return (
        (known.version, known.shared, known.sockets) == (tree.version, shared, _in_use(tree))
        and all(tree.stamp(path) == stamp for path, stamp in known.read.items())
        and all(_leads(path) == real for path, real in known.leads.items())
    )


def _in_use(tree: FolderTree) -> tuple[str, ...]:
    """Return the sockets of `tree` that a program uses. Those are rare, so the module is loaded only for them."""
    if not tree.sockets:
        return ()
    from sandbox.workspace.host_sockets import in_use

    return tuple(sorted(filter(in_use, tree.sockets)))


def unchanged(place: ScanPlace, trees: FolderTrees, then: int) -> bool:
    """Return True if a `scan` of `place` without `count` would give the same result as at the moment `then`; False if
    that is uncertain.
    """
    tree, known = _last_scan(place, trees)
    if not then or tree.version != then or known is None:
        return False
    secret = secret_names(plain_names(place[1]), place[2])
    tree.renew(secret, everything=False)
    trees.keep(tree)
    return tree.version == then and _holds(known, tree, _shared(tree, secret)[0])


def moment(place: ScanPlace, trees: FolderTrees) -> int:
    """Return the version of the last `scan` of `place`; 0 if unknown. While the version is equal, no path that
    `appearing` finds was added or removed.
    """
    tree, known = _last_scan(place, trees)
    return tree.version if known is not None and known.version == tree.version else 0


def _last_scan(place: ScanPlace, trees: FolderTrees) -> tuple[FolderTree, _KnownScan | None]:
    workspace, hidden, shown, locked = place
    tree = trees.take(workspace, (plain_names(hidden), shown))
    known = tree.answers.get((hidden, locked, _still_there(trees.uncovered(workspace))))
    return tree, known if isinstance(known, _KnownScan) else None


def _leads(path: str) -> str:
    """Return the target of a path; empty if nothing exists there."""
    real = real_path(path)
    return real if os.path.lexists(real) else ""


def _certain(tree: FolderTree, protected: Scan, locked: tuple[str, ...]) -> bool:
    """Return True if the tree has every parent folder of the locked paths: none is reached through a link, and none is
    omitted as secret.
    """
    first = {pattern.partition("/")[0] for pattern in (*locked, *inside_git(locked)) if "/" in pattern}
    if any(c in name for name in first for c in "*?["):
        return False
    for root in (*protected.roots, *protected.inner):
        folder = tree.folders.get(root)
        if folder is None:
            return False
        if any(os.path.islink(f"{root}/{name}") or name in folder[6] for name in first):
            return False
    if not all(_known(tree, path) for path in protected.named):
        return False
    return not any(
        (folder[6] or folder[7] & HAS_LINK) and not first.isdisjoint(path[len(tree.top) :].split("/"))
        for path, folder in tree.folders.items()
    )


def _known(tree: FolderTree, path: str) -> bool:
    """Return True if the existing folders above `path` are in the tree."""
    folder = tree.top
    for name in path[len(tree.top) :].strip("/").split("/")[:-1]:
        folder = f"{folder}/{name}"
        if folder not in tree.folders:
            return not os.path.lexists(folder)
    return True


def _shared(
    tree: FolderTree, secret: Callable[[str], bool]
) -> tuple[list[tuple[str, int, int, int]], frozenset[tuple[int, int, int]]]:
    """Return the current marks of files with hard links elsewhere, without those that are secret by name, and (device,
    number, link count) of each, secret ones included.
    """
    links: dict[tuple[int, int, int], list[str]] = {}
    for path in tree.linked:
        for name, *_ in tree.folders[path][8]:
            try:
                status = os.lstat(f"{path}/{name}")
            except OSError:
                continue  # removed meanwhile
            links.setdefault((status.st_dev, status.st_ino, status.st_nlink), []).append(f"{path}/{name}")
    odd = {key: paths for key, paths in links.items() if len(paths) < key[2]}
    shared = [(path, key[0], key[1], 0) for key, paths in odd.items() for path in paths if not secret(path)]
    return shared, frozenset(odd)


def _still_there(known: Iterable[FileMark]) -> frozenset[str]:
    return frozenset(
        path for path, number, birth in known if [mark[2:] for mark in marks((path,))] == [(number, birth)]
    )


def _twins(tree: FolderTree, paths: set[str]) -> set[str]:
    """Return other hard links to the files at `paths` and below them, which need the same protection."""
    linked = [(f"{path}/{link[0]}", link[1:3]) for path in tree.linked for link in tree.folders[path][8]]
    if not linked:
        return set()
    files = set()
    for path in paths:
        with contextlib.suppress(OSError):  # removed meanwhile
            status = os.lstat(path)
            files.add((status.st_dev, status.st_ino))
    roots = tuple(f"{path}/" for path in paths)
    files |= {file for path, file in linked if path.startswith(roots)}
    return {path for path, file in linked if file in files}


def _insides(root: str, tree: FolderTree) -> Iterator[str]:
    """Yield Git's folders for the worktree at `root`. For a linked worktree or a submodule, its `.git` file names them.
    Relative paths in their settings are relative to `root`."""
    if not tree.folders[root][7] & GIT_IS_FILE:
        yield f"{root}/.git"
        return
    with contextlib.suppress(UncertainSettingsError):  # probably no repository for Git either
        for folder in git_folders(root):
            yield folder.path
            yield folder.common
