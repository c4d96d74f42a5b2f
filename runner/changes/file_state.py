"""The state of one name in a folder, sufficient to detect a change and to restore the file."""

import os
import stat
from enum import StrEnum
from typing import NamedTuple

from policy.model.frozen import dataclass
from sandbox.workspace.folder_cache import SHORT_MARGIN


class FileKind(StrEnum):
    """Kind of a file, without following links."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"  # a pipe, socket or device


class Entry(NamedTuple):
    """The state of one name. A tuple and not a dataclass, because there are as many entries as files.

    Attributes:
        mode: The permission bits without setuid, setgid and sticky.
        settled: True if a later change is certain to change the stamp (the numbers up to `ctime`).
        content: The SHA-256 of a stored file, or the target of a link.
        unkept: The reason why the content is not stored, or an empty string.
    """

    kind: str
    mode: int
    device: int
    inode: int
    size: int
    mtime: int  # nanoseconds
    ctime: int
    settled: bool
    content: bytes = b""
    unkept: str = ""
    uid: int = -1
    gid: int = -1

    @property
    def stamp(self) -> "Stamp":
        return self.device, self.inode, self.size, self.mtime, self.ctime


def content_hash(entry: Entry | None) -> str:
    """Return the SHA-256 of the content of a stored file in hex; empty for everything else."""
    return entry.content.hex() if entry is not None and entry.kind == FileKind.FILE else ""


Stamp = tuple[int, int, int, int, int]  # device, inode, size, mtime and ctime in nanoseconds


def stamp(status: os.stat_result) -> Stamp:
    """Return a stamp that is equal as long as the file does not change: only the kernel sets ctime."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


SECRET = "it is a secret"  # noqa: S105  # words for the user
LEFT_OUT = "it can be made again"
CLOSED = "it could not be read"
MOVING = "it changed while it was read"
TOO_BIG = "it is too big"
NO_ROOM = "there was no room for it"
TOO_DEEP = "it lies too deep"
STRANGE = "it is no file, folder or link"


@dataclass(frozen=True, slots=True)
class Change:
    """The change that an action made to one path below `root`, in the spelling on the disk. None means that the path
    did not exist.
    """

    root: str
    path: str
    before: Entry | None
    after: Entry | None

    @property
    def sign(self) -> str:
        """Return `+` for a new path, `-` for a removed one, `~` for any other change."""
        return "+" if self.before is None else "-" if self.after is None else "~"

    @property
    def how(self) -> str:
        """Return `added` for a new path, `deleted` for a removed one, `modified` for any other change."""
        return "added" if self.before is None else "deleted" if self.after is None else "modified"


def entry_of(status: os.stat_result, settled: bool, content: bytes = b"", unkept: str = "") -> Entry:
    mode = status.st_mode
    kind = (
        FileKind.FILE if stat.S_ISREG(mode)
        else FileKind.FOLDER if stat.S_ISDIR(mode)
        else FileKind.LINK if stat.S_ISLNK(mode)
        else FileKind.OTHER
    )  # fmt: skip
    return Entry(
        *(kind, mode & 0o777, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
        *(settled, content, unkept, status.st_uid, status.st_gid),
    )


def clock_margin(ctime: int) -> int:
    """Return the nanoseconds after `ctime` from which on a further change is certain to have another time.

    A time with a fraction of a second comes from a clock of a few milliseconds. The coarsest clock of a local file
    system ticks every two seconds (sandbox/workspace/folder_cache.py).
    """
    return SHORT_MARGIN if ctime % 10**9 else 2_500_000_000


def same(one: Entry | None, other: Entry | None) -> bool:
    """Return True if both entries have the same kind, mode and content.

    For a content that is not stored, compare the stamps; for a folder that is left out, compare its identity.
    """
    if one is None or other is None:
        return one is other
    if one.kind != other.kind:
        return False
    if one.kind == FileKind.LINK:
        return one.content == other.content
    if one.mode != other.mode:
        return False
    if one.kind == FileKind.FOLDER:
        return not (one.unkept or other.unkept) or one[2:4] == other[2:4]
    if one.unkept or other.unkept or one.kind == FileKind.OTHER:
        return one.stamp == other.stamp
    return one.content == other.content
