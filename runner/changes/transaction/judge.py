"""The judgement of a command's changes before they are applied: what may reach the workspace, and what is held back.

THREAT T303: a command must not place a file that other programs run or obey by themselves. Its changes are judged in
the layer, which no other program sees. Such a file is held back by the rules of `sandbox/workspace/autorun.py`, which
sets files aside after they appeared: the same patterns, at the top of the workspace and of every repository in it.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from policy.languages.git_config import GitConfigError, gitdir_target
from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.verdict import Terms
from runner.changes import safe_open
from runner.changes.transaction.settings import MOST_DELETED
from runner.secrets.secret import holds_masked, longest_masked
from sandbox.inside.regular_file import read_start, real_path
from sandbox.workspace.git_files import harmless
from sandbox.workspace.git_settings import OTHERS, POINTERS, SHAPE
from sandbox.workspace.inventory import BY_NAME, AutorunInventory, TreeNode
from sandbox.workspace.layer import ChangeLayer, LayerChange, LayerKind
from sandbox.workspace.path_patterns import PatternIndex, appearing
from sandbox.workspace.protected_paths import Scan

_LONGEST_COPY = 1 << 20  # bytes of a file that is compared with secrets
_START = 4096  # bytes of a file of Git that are read


IsLeftOut = Callable[[str, int], bool]


class HeldReason(StrEnum):
    """The kind of reason for which a change is held back."""

    AUTO_RUN = "auto-run"
    PROTECTED = "protected"
    LINK = "link"
    SET_ID = "set-id"
    SPECIAL = "special"
    SECRET = "secret"  # noqa: S105  # a word
    DELETIONS = "deletions"
    TRUSTED_LATER = "trusted-later"


_TEXTS = {
    HeldReason.PROTECTED: "a rule protects it",
    HeldReason.SET_ID: "it would run with the rights of its owner or group (a set-id bit)",
    HeldReason.SPECIAL: "it is a device, a pipe or a socket",
    HeldReason.SECRET: "it is a copy of a secret under another name, which is not kept",
}


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """A change that is not applied.

    Attributes:
        change: The change. All changes below it are held back with it; copies of secrets are held back by themselves.
        reason: The kind of reason.
        why: The reason in words.
    """

    change: LayerChange
    reason: HeldReason
    why: str


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of all changes of a command. A change is in one of the two, or below a change of `held`.

    Attributes:
        deleted: The number of files that `applied` deletes; 0 if it was not counted, because there is no limit.
    """

    applied: tuple[LayerChange, ...]
    held: tuple[HeldEntry, ...]
    deleted: int = 0

    def or_secret(self, secret: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return a predicate that is also True for the copies of secrets among these changes, which are not shown."""
        copies = frozenset(each.change.path for each in self.held if each.reason is HeldReason.SECRET)
        return lambda path: path in copies or secret(path)


@dataclass(frozen=True, slots=True)
class Standards:
    """The standards of a judgement.

    Attributes:
        terms: The rights of the command.
        protected: The scan of the workspace.
        inventory: The judge of auto-run files in the workspace.
        left_out: Returns True for a folder (name, open folder above it) whose content tools can make again.
        most_deleted: The largest number of files that a command may delete; 0 for no limit.
        trusted_later: Returns what a file at an absolute path is trusted as, or an empty text if its change may be
            applied; None outside of a guarded session.
    """

    terms: Terms
    protected: Scan
    inventory: AutorunInventory
    left_out: IsLeftOut
    most_deleted: int = MOST_DELETED
    trusted_later: Callable[[str], str] | None = None


def judge(layer: ChangeLayer, changes: Sequence[LayerChange], standards: Standards) -> Judged:
    """Return the judgement of `changes`. Raise OSError if the layer cannot be read."""
    reasons = dict[str, tuple[HeldReason, str]]()
    auto_run = _auto_run(layer, changes, standards)
    plain, secrets = _plain_rules(layer, changes, standards), _Secrets(standards.protected)
    for change in changes:
        if change.kind is LayerKind.FILE and secrets.copied(
            f"{layer.upper}/{change.path}", change.size, f"{layer.workspace}/{change.path}"
        ):
            reasons[change.path] = HeldReason.SECRET, _TEXTS[HeldReason.SECRET]
        elif found := auto_run.get(change.path) or plain(change):
            reasons[change.path] = found
    deleted = _deleted(layer, changes, standards)
    if deleted > standards.most_deleted > 0:
        # THREAT T309: one wrong path must not empty a workspace.
        why, deleted = too_many(standards.most_deleted), 0
        for change in changes:
            if _removes(change, layer):
                reasons.setdefault(change.path, (HeldReason.DELETIONS, why))
    applied, held, holder = [], [], ""
    for change in sorted(changes, key=lambda each: each.path.split("/")):
        found = reasons.get(change.path)
        if holder and change.path.startswith(f"{holder}/"):
            if found is not None and found[0] is HeldReason.SECRET:
                held.append(HeldEntry(change, *found))
            continue
        if found is None:
            applied.append(change)
            continue
        held.append(HeldEntry(change, *found))
        # Below a folder that is only merged with the one in the workspace, every change has its own judgement.
        holder = change.path if change.whole or change.within else ""
    return Judged(tuple(applied), tuple(held), deleted)


def too_many(most: int) -> str:
    """Return the reason for which deletions of more than `most` files are held back."""
    return f"the command deleted more than {most:,} files (`sandbox.most_deleted`)"


# ---- files that other programs run


def _auto_run(
    layer: ChangeLayer, changes: Sequence[LayerChange], standards: Standards
) -> Mapping[str, tuple[HeldReason, str]]:
    merged = _Merged(layer, changes)
    nodes = {change.path: _node(layer, change) for change in changes}
    found = dict[str, tuple[HeldReason, str]]()
    locked = PatternIndex(standards.terms.locked)
    for path, finding in standards.inventory.findings(nodes).items():
        node = nodes[path]
        if node is None or f"{layer.workspace}/{path}" in standards.terms.write:
            continue  # removed: no program runs it any more; or opened by name
        if finding.why == BY_NAME and not path.endswith(POINTERS) and not _obeyed(path, locked, merged, standards):
            continue
        if node.kind == "file" and path.endswith(".sample") and "/hooks/" in f"/{path}":
            continue  # githooks(5): Git runs none of these
        if not finding.completes and (_harmless(layer, path) or _shares_parent(layer, path)):
            continue
        found[path] = (HeldReason.AUTO_RUN, finding.why)
    for change in changes:
        if (
            change.kind is not None
            and change.path not in found
            and (why := _begins_repository(change, layer, standards))
        ):
            found[change.path] = (HeldReason.AUTO_RUN, why)
    return found


def _harmless(layer: ChangeLayer, path: str) -> bool:
    """Return True if a file of a kind that Git obeys starts nothing."""
    if not harmless(f"{layer.upper}/{path}", layer.upper, layer.workspace):
        return False
    if not f"/{path}".endswith("/.git"):
        return True
    # A `.git` file was followed in the layer alone. In the workspace, a link can lead elsewhere.
    try:
        content = read_start(f"{layer.upper}/{path}", _START, follow=False)
        target = os.path.join(layer.workspace, safe_open.split(path)[0], gitdir_target(content))
        place = os.path.normpath(target.replace(layer.upper, layer.workspace, 1))
        return real_path(place) == place
    except (GitConfigError, OSError, ValueError):
        return False


def _begins_repository(change: LayerChange, layer: ChangeLayer, standards: Standards) -> str:
    """Return the reason if an entry makes its folder the top of a repository, so that programs obey files that have
    been in the folder before.
    """
    folder, name = safe_open.split(change.path)
    top = f"{layer.workspace}/{folder}"
    if change.kind is None or not folder or name.lower() not in (".git", *OTHERS):
        return ""
    if os.path.lexists(f"{top}/{name}"):
        return ""
    obeyed = appearing(top, standards.terms.locked) - {*standards.terms.write}
    if all(harmless(path, layer.workspace) for path in obeyed):
        return ""
    return f"with it, `{folder}` is a repository, and programs obey settings that are already in it"


def _node(layer: ChangeLayer, change: LayerChange) -> TreeNode | None:
    match change.kind:
        case None:
            return None
        case LayerKind.FOLDER:
            return TreeNode("folder")
        case LayerKind.LINK:
            return TreeNode("link", os.fsencode(change.target))
        case _:
            name = change.path.rpartition("/")[2]
            read = name in SHAPE or name == ".git"
            return TreeNode("file", read_start(f"{layer.upper}/{change.path}", _START, follow=False) if read else b"")


def _obeyed(path: str, locked: PatternIndex, merged: "_Merged", standards: Standards) -> bool:
    """Return True if a pattern matches `path` from the top of the workspace or of a repository in it."""
    if any(f"{standards.terms.workspace}/{path}" == place or inside(f"{standards.terms.workspace}/{path}", place)
           for place in (*standards.protected.named, *standards.protected.led)):  # fmt: skip
        return True
    names = path.split("/")
    for count, name in enumerate(names):
        if not locked.of(name):
            continue
        root = "/".join(names[:count])
        if not root or any(merged.exists(f"{root}/{mark}") for mark in (".git", *OTHERS)):
            return True
    return False


def _shares_parent(layer: ChangeLayer, path: str) -> bool:
    """Return True for the file of a new linked worktree that names the repository around it (git-worktree(1))."""
    folder, name = safe_open.split(path)
    if name != "commondir" or not f"/{folder}".rpartition("/")[0].endswith("/.git/worktrees"):
        return False
    return read_start(f"{layer.upper}/{path}", _START, follow=False) == b"../..\n"


class _Merged:
    """The workspace as it will be after all changes."""

    def __init__(self, layer: ChangeLayer, changes: Iterable[LayerChange]) -> None:
        self._workspace = layer.workspace
        self._kinds = {change.path: change.kind for change in changes}
        self._whole = {change.path for change in changes if change.whole or change.kind is None}

    def exists(self, path: str) -> bool:
        """Return True if an entry will exist at `path`."""
        if path in self._kinds:
            return self._kinds[path] is not None
        above = safe_open.split(path)[0]
        while above:
            if above in self._whole:
                return False
            above = safe_open.split(above)[0]
        return os.path.lexists(f"{self._workspace}/{path}")


# ---- all other rules


def _plain_rules(
    layer: ChangeLayer, changes: Sequence[LayerChange], standards: Standards
) -> Callable[[LayerChange], tuple[HeldReason, str] | None]:
    terms, protected = standards.terms, standards.protected
    top = layer.workspace + "/"
    exempt = frozenset(terms.write)
    fixed = {path[len(top) :] for path in (*protected.locked, *protected.masked) if path.startswith(top)} - {
        path[len(top) :] for path in exempt
    }
    above = {folder for path in fixed for folder in _folders(path)}
    above |= {path[len(top) :] for path in protected.pinned if path.startswith(top)}
    outside = (*terms.system, *terms.read, *terms.writable, "/dev/null")
    later = standards.trusted_later

    def rule(change: LayerChange) -> tuple[HeldReason, str] | None:
        path, kind = change.path, change.kind
        if fixed and (path in fixed or any(folder in fixed for folder in _folders(path))):
            return HeldReason.PROTECTED, _TEXTS[HeldReason.PROTECTED]
        if path in above and (kind is not LayerKind.FOLDER or change.whole):
            return HeldReason.PROTECTED, "a file in it is protected by a rule"
        if kind is None:
            return None
        if kind is LayerKind.SPECIAL:
            return HeldReason.SPECIAL, _TEXTS[HeldReason.SPECIAL]
        if kind is LayerKind.LINK:
            # THREAT T308: a program of the user that writes to such a link later changes a file outside.
            why = _leads_outside(change, layer.workspace, outside)
            if why:
                return HeldReason.LINK, why
        if kind is LayerKind.FILE and change.mode & (stat.S_ISUID | stat.S_ISGID):
            return HeldReason.SET_ID, _TEXTS[HeldReason.SET_ID]
        if later is not None and kind is not LayerKind.FOLDER and (what := later(f"{layer.workspace}/{path}")):
            return HeldReason.TRUSTED_LATER, f"it is {what}, which is trusted later"
        return None

    return rule


def _folders(path: str) -> Iterable[str]:
    while path := safe_open.split(path)[0]:
        yield path


def _leads_outside(change: LayerChange, workspace: str, allowed: tuple[str, ...]) -> str:
    """Return the reason if a link leads to a path outside of the workspace that the command may not read."""
    names = change.target.split("/")
    place = os.path.normpath(os.path.join(workspace, safe_open.split(change.path)[0], change.target))
    if place == workspace or place.startswith(f"{workspace}/"):
        down = False
        for name in names:
            if name == ".." and down:  # behind another link, `..` leads elsewhere
                return "its target can lead outside of the workspace"
            down = down or name not in ("", ".", "..")
        return ""
    if any(inside(place, each) for each in allowed):
        return ""
    return "it is a link that leads outside of the workspace"


class _Secrets:
    """The content of the secret files in the workspace, and the secrets of this process.

    THREAT T307: a command that may read a secret file copies it under a name that no rule protects.
    """

    def __init__(self, protected: Scan) -> None:
        self._masked, self._closed = protected.masked, frozenset(protected.closed)
        self._hashes: dict[int, set[bytes]] | None = None

    def copied(self, path: str, size: int, before: str) -> bool:
        """Return True if the file at `path` of the layer has the content of a secret file, or contains a secret and
        its version in the workspace at `before` does not.
        """
        if not 0 < size <= _LONGEST_COPY:
            return False
        self._hashes = self._known() if self._hashes is None else self._hashes
        if not longest_masked() and size not in self._hashes:
            return False
        data = read_start(path, size, follow=False)
        if hashlib.sha256(data).digest() in self._hashes.get(size, ()):
            return True
        return holds_masked(data) and not holds_masked(read_start(before, _LONGEST_COPY, follow=False))

    def _known(self) -> dict[int, set[bytes]]:
        known = dict[int, set[bytes]]()
        for path in self._masked:
            if path in self._closed:
                continue
            data = read_start(path, _LONGEST_COPY, follow=False)
            if len(data) >= _SHORTEST_SECRET:
                known.setdefault(len(data), set()).add(hashlib.sha256(data).digest())
        return known


_SHORTEST_SECRET = 8  # bytes: shorter files, such as an empty `.env`, equal others by chance


def _deleted(layer: ChangeLayer, changes: Sequence[LayerChange], standards: Standards) -> int:
    """Return the number of files that the command deleted, at most one more than the limit; 0 without a limit."""
    most, count = standards.most_deleted, 0
    with safe_open.opened_root(layer.workspace) as top:
        for change in changes if most else ():
            if not _removes(change, layer):
                continue
            folder, name = safe_open.split(change.path)
            # A folder that is made again, such as the output of a build, counts for what it lacks.
            new = sum(each.path.startswith(f"{change.path}/") for each in changes) if change.whole else 0
            try:
                with safe_open.folder(top, folder) as above:
                    count += max(0, _count(name, above, most - count + new, standards.left_out) - new)
            except OSError:
                continue  # removed meanwhile, or closed to this user
            if count > most:
                break
    return count


def _removes(change: LayerChange, layer: ChangeLayer) -> bool:
    """Return True for a deletion, and for an entry that replaces a folder of the workspace."""
    if change.kind is None:
        return True
    if change.within or (change.kind is LayerKind.FOLDER and not change.whole):
        return False
    try:
        return stat.S_ISDIR(os.lstat(f"{layer.workspace}/{change.path}").st_mode)
    except OSError:
        return False


def _count(name: str, above: int, most: int, left_out: IsLeftOut, depth: int = 0) -> int:
    """Return the number of files at and below one entry, at most `most` + 1."""
    status = os.stat(name, dir_fd=above, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return 1
    if left_out(name, above) or depth > safe_open.DEEPEST:
        return 0
    count, handle = 0, safe_open.open_folder(name, above)
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    count += _count(entry.name, handle, most - count, left_out, depth + 1)
                else:
                    count += 1
                if count > most:
                    break
    finally:
        os.close(handle)
    return count
