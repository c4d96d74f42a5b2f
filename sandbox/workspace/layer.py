"""The layer of a command: the folder that receives its changes of the workspace, and the list of these changes.

The workspace is the lower folder of an overlay and is only read. SOURCE: the kernel's Documentation/filesystems/
overlayfs.rst, with the mount option `userxattr`, so that root and other users read a layer in the same way.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections import deque
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from sandbox.backend import ChangeLayer as ChangeLayer  # defined with the protocol that takes it
from sandbox.inside import safe_rmtree, syscalls
from sandbox.inside.safe_rmtree import closing

MOST = 1_000_000  # entries of one layer
LONGEST = 4_000  # bytes of a path in it; PATH_MAX is 4,096 (path_resolution(7))
OVERLAY_ATTRIBUTES = "user.overlay."  # extended attributes that overlayfs keeps on entries of a layer
_ORIGIN = "user.overlay.origin"  # of an entry that was copied from the workspace. No copy of a folder can be renamed
_ACCESS = "system.posix_acl_"  # access control lists, acl(5)
_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STRICT = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS
_UNKNOWN = os.stat_result((0,) * 10)  # of an entry of the workspace that this user may not examine


class LayerKind(StrEnum):
    """The kind of a file system entry."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special"  # a device, a pipe or a socket


@dataclass(frozen=True, slots=True)
class LayerChange:
    """One entry that differs between the workspace and the view of the command.

    Attributes:
        path: Relative to the workspace; bytes that are no UTF-8 are escaped as by `os.fsdecode`.
        kind: The kind of the new entry; None if it was deleted.
        mode: The mode of the new entry with its type, as of lstat(2); 0 if it was deleted.
        size: Bytes of the new entry; 0 for a folder.
        whole: True for a folder whose complete content is in the layer: a new one, or one that replaces another entry.
        within: True if an entry above it is `whole`, so that moving that one moves this entry too.
        target: The target of a link; empty for other kinds.
        same_as: The path of an earlier change of which a file is a further name (a hard link); empty for none.
    """

    path: str
    kind: LayerKind | None
    mode: int = 0
    size: int = 0
    whole: bool = False
    within: bool = False
    target: str = ""
    same_as: str = ""


class LayerUnreadable(ProblemError):
    """The error for a layer whose changes cannot be listed completely. None of them may then be applied."""


def new_layer(workspace: str, folder: str) -> ChangeLayer:
    """Make the empty folders of a layer for `workspace` in a new folder inside `folder`, and return the layer.

    `folder` is one of the private state, which commands cannot see. Raises OSError.
    """
    place = tempfile.mkdtemp(prefix="layer-", dir=os.path.realpath(folder))  # with the mode 0700
    layer = ChangeLayer(workspace, os.path.join(place, "upper"), os.path.join(place, "work"))
    os.mkdir(layer.upper, 0o700)
    os.mkdir(layer.work, 0o700)
    begin(layer)
    return layer


def begin(layer: ChangeLayer) -> None:
    """Give the new folder `upper` the mode of the workspace, so that a layer without a command has no changes: the
    command may be stopped before its sandbox is ready. Raises OSError.
    """
    mode = stat.S_IMODE(os.stat(layer.workspace).st_mode)
    if mode & 0o500 == 0o500 or os.geteuid() == 0:  # else `prepare` could not open the folder
        os.chmod(layer.upper, mode)


def prepare(layer: ChangeLayer) -> None:
    """Make the folders ready for a mount, and give `upper` the mode, owner and access lists of the workspace: commands
    see those of `upper`.

    Only root can give a folder to another owner; for other users the view then shows their own. A shared layer keeps
    what it has. Raises OSError, also if another layer was used before.
    """
    safe_rmtree.empty(layer.work)  # from a helper that could not start, or from the last mount of the layer
    with (
        closing(os.open(layer.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as lower,
        closing(os.open(layer.upper, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as upper,
    ):
        if os.listdir(upper):
            if layer.shared:
                return
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), layer.upper)
        state = os.fstat(lower)
        with contextlib.suppress(PermissionError):
            os.chown(upper, state.st_uid, state.st_gid)
        os.chmod(upper, stat.S_IMODE(state.st_mode))
        for name in os.listxattr(lower):
            if name.startswith(_ACCESS):
                os.setxattr(upper, name, os.getxattr(lower, name))


def read_layer(layer: ChangeLayer) -> tuple[LayerChange, ...]:
    """Return what differs between the workspace and the view of the command, parents before children.

    Call this after `Backend.run` has ended. An entry is left out if its content, mode, owner, time of modification and
    attributes are those of the workspace, and so is a folder in which only entries changed. The workspace itself has
    the path `.`. Raises LayerUnreadable if the command left more than `MOST` entries or a path of more than `LONGEST`
    bytes, and OSError if the layer cannot be read.
    """
    # THREAT T301: all content is from the command. No link is followed, no mode hides a folder, nothing is unbounded.
    with (
        closing(os.open(layer.upper, os.O_PATH | _FOLDER)) as upper,
        closing(syscalls.open_path(layer.workspace, syscalls.RESOLVE_NO_SYMLINKS)) as lower,
    ):
        reader = _Reader(upper, lower)
        try:
            reader.walk()
        finally:
            reader.restore()
        return tuple(reader.changes)


class _Reader:
    """The walk through the upper folder, one folder after the other, each opened from the top."""

    def __init__(self, upper: int, lower: int) -> None:
        self.changes: list[LayerChange] = []
        self._upper, self._lower = upper, lower
        self._seen = 0
        self._names: dict[int, str] = {}  # inode of a file with several names -> the first name
        self._opened: list[tuple[str, int]] = []  # folders that got the rights of this user, and their modes

    def walk(self) -> None:
        top, below = os.fstat(self._upper), os.fstat(self._lower)
        self._regain(".", self._upper, top.st_mode)
        if stat.S_IMODE(top.st_mode) != stat.S_IMODE(below.st_mode):
            self.changes.append(LayerChange(".", LayerKind.FOLDER, top.st_mode))
        pending = deque([("", False)])
        while pending:
            path, whole = pending.popleft()
            with contextlib.ExitStack() as stack:
                folder = stack.enter_context(closing(self._open(path)))
                lower = None if whole else _opened(self._lower, path)
                if lower is not None:
                    stack.callback(os.close, lower)
                # The second form of deleted entries, in a folder with this mark only.
                marked = _attribute(f"/proc/self/fd/{folder}", "user.overlay.opaque", follow=True) == b"x"
                with os.scandir(folder) as entries:
                    for entry in sorted(entries, key=lambda entry: entry.name):
                        inner = f"{path}/{entry.name}" if path else entry.name
                        self._count(inner)
                        state = entry.stat(follow_symlinks=False)
                        change = self._change(_Entry(folder, lower, entry.name, inner, state, marked), within=whole)
                        if change is not None:
                            self.changes.append(change)
                        if stat.S_ISDIR(state.st_mode):
                            pending.append((inner, change is not None and change.whole))

    def restore(self) -> None:
        """Give the folders back the modes that the command set."""
        for path, mode in reversed(self._opened):
            with closing(syscalls.open_path(path, _STRICT, self._upper)) as handle:
                os.chmod(f"/proc/self/fd/{handle}", mode)

    def _regain(self, path: str, place: int, mode: int) -> None:
        """Give this user the right to list and enter the folder `place` until `restore`."""
        if mode & 0o700 != 0o700:
            self._opened.append((path, stat.S_IMODE(mode)))
            safe_rmtree.restore(place)

    def _open(self, path: str) -> int:
        """Return a descriptor of a folder of the layer, with the right to list it."""
        with closing(syscalls.open_path(path or ".", _STRICT, self._upper)) as place:
            self._regain(path, place, os.fstat(place).st_mode)
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _count(self, path: str) -> None:
        self._seen += 1
        what, fix = "the changes of the command cannot be listed", "nothing of them was applied; run a smaller command"
        if self._seen > MOST:
            raise LayerUnreadable(Problem(what, f"it left more than {MOST:,} new or changed files", fix))
        if len(path) > LONGEST // 4 and len(os.fsencode(path)) > LONGEST:  # a character has at most four bytes
            raise LayerUnreadable(Problem(what, f"it left a path of more than {LONGEST:,} bytes", fix))

    def _change(self, entry: "_Entry", *, within: bool) -> LayerChange | None:
        """Return what one entry of the layer changes, or None."""
        state, mode = entry.state, entry.state.st_mode
        if entry.whiteout:
            if within:  # only a copy of a folder of the workspace has such marks, and that folder is gone
                why, fix = f"another program removed the folder of `{entry.path}` meanwhile", "run the command again"
                raise LayerUnreadable(Problem("the changes of the command cannot be listed", why, fix))
            return LayerChange(entry.path, None)
        before = entry.before
        if stat.S_ISDIR(mode):
            new = before is None or (before is not _UNKNOWN and not stat.S_ISDIR(before.st_mode))
            if not new and mode & 0o700 != 0o700:  # its attributes need the right to read it (xattr(7))
                with closing(syscalls.open_path(entry.path, _STRICT, self._upper)) as place:
                    self._regain(entry.path, place, mode)
            whole = within or entry.attribute("user.overlay.opaque") == b"y"
            if new and not whole and entry.attribute(_ORIGIN) is not None:
                return None  # the folder of the workspace is gone, and its copy has changed entries only
            whole = whole or new
            if not whole and entry.same:
                return None
            return LayerChange(entry.path, LayerKind.FOLDER, mode, whole=whole, within=within)
        if before is not None and entry.same:
            return None
        first = self._names.setdefault(state.st_ino, entry.path) if state.st_nlink > 1 else entry.path
        same_as = first if first != entry.path else ""
        if stat.S_ISLNK(mode):
            target = os.readlink(entry.name, dir_fd=entry.folder)
            return LayerChange(entry.path, LayerKind.LINK, mode, state.st_size, within=within, target=target)
        kind = LayerKind.FILE if stat.S_ISREG(mode) else LayerKind.SPECIAL
        size = state.st_size if kind is LayerKind.FILE else 0
        return LayerChange(entry.path, kind, mode, size, within=within, same_as=same_as)


class _Entry:
    """One entry of a folder of the layer.

    Attributes:
        folder: The open folder.
        lower: The open folder of the workspace at the same path; None if there is none.
        path: Relative to the workspace.
        state: The result of lstat(2).
        before: The same of the entry in the workspace; None if there is none.
        marked: True if the folder may have marks of deleted entries in their attributes.
    """

    def __init__(
        self, folder: int, lower: int | None, name: str, path: str, state: os.stat_result, marked: bool
    ) -> None:
        self.folder, self.lower, self.name, self.path = folder, lower, name, path
        self.state, self.marked = state, marked
        self.before: os.stat_result | None = None
        if lower is not None:
            try:
                self.before = os.stat(name, dir_fd=lower, follow_symlinks=False)
            except PermissionError:
                self.before = _UNKNOWN
            except OSError:
                self.before = None

    @property
    def whiteout(self) -> bool:
        """Return True for the mark of a deleted entry, in one of the two forms of overlayfs."""
        mode = self.state.st_mode
        if stat.S_ISCHR(mode):
            return self.state.st_rdev == 0
        if not self.marked or not stat.S_ISREG(mode) or self.state.st_size:
            return False
        return self.attribute("user.overlay.whiteout") is not None

    def attribute(self, name: str) -> bytes | None:
        return _attribute(f"/proc/self/fd/{self.folder}/{self.name}", name)

    @property
    def same(self) -> bool:
        """Return True if the entry does not differ from that of the workspace, apart from the content of a folder."""
        now, before = self.state, self.before
        if before is None or (now.st_mode, now.st_uid, now.st_gid) != (before.st_mode, before.st_uid, before.st_gid):
            return False
        if stat.S_ISLNK(now.st_mode):
            return os.readlink(self.name, dir_fd=self.folder) == os.readlink(self.name, dir_fd=self.lower)
        if not stat.S_ISDIR(now.st_mode):
            if (now.st_size, now.st_mtime_ns, now.st_rdev) != (before.st_size, before.st_mtime_ns, before.st_rdev):
                return False
            if stat.S_ISREG(now.st_mode) and not self._same_content():
                return False
        places = (f"/proc/self/fd/{folder}/{self.name}" for folder in (self.folder, self.lower))
        return len({_attributes(place) for place in places}) == 1

    def _same_content(self) -> bool:
        assert self.lower is not None
        try:
            with open(self._file(self.folder), "rb") as new, open(self._file(self.lower), "rb") as old:
                while chunk := new.read(_CHUNK):
                    if chunk != old.read(_CHUNK):
                        return False
                return not old.read(1)
        except OSError:
            return False  # one of them cannot be read, or is no file any more

    def _file(self, folder: int) -> int:
        return os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)


def _opened(root: int, path: str) -> int | None:
    """Return a handle on the folder at `path` below the open folder `root`; None if there is no such folder."""
    try:
        handle = syscalls.open_path(path or ".", _STRICT, root)
    except OSError:
        return None
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    return handle


def _attribute(path: str, name: str, *, follow: bool = False) -> bytes | None:
    try:
        return os.getxattr(path, name, follow_symlinks=follow)
    except OSError:
        return None


def _attributes(path: str) -> frozenset[tuple[str, bytes | None]]:
    """Return the extended attributes of a file without those of overlayfs."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return frozenset()
    return frozenset((name, _attribute(path, name)) for name in names if not name.startswith(OVERLAY_ATTRIBUTES))
