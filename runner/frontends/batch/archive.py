"""The values sent between this machine and another machine: a task, its workspace as one archive, and the results.

No credential is sent. The other machine takes the model's key from its own keyring, environment or helper. Secret files
of the workspace are not sent, and values that this process knows as secrets are masked in prompt and metadata.
"""

import gzip
import hashlib
import io
import itertools
import json
import os
import tarfile
from dataclasses import field, replace

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.frontends.batch.store import TaskResult
from runner.frontends.batch.task import Task
from runner.problems import Exit, Stopped
from runner.secrets.redactor import masked
from runner.secrets.secret import register_environment
from runner.text.gunzip import gunzip

LARGEST = 512 << 20  # bytes of a compressed archive
_LARGEST_EVENTS = 64 << 20  # bytes of the compressed events of one task
_LARGEST_UNPACKED = 512 << 20  # bytes of the decompressed events of one task
_LARGEST_TREE = 16 << 30  # bytes of an unpacked archive
_MOST_MEMBERS = 2_000_000  # files, folders and links in one archive
_LARGEST_HEAD = 1 << 20  # bytes that `tarfile` may read at once: only an unusually long header needs more
_UNEXPECTED = "the archive of the workspace is invalid: an entry has an unexpected path, kind or size"


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """One task for another machine.

    `cwd` is the folder in the workspace, `digest` the digest of the archive that is sent along, and `options` are
    options of `agent ci`, as typed.
    """

    task: Task
    number: int
    version: str
    cwd: str
    digest: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskReply:
    """The results of one task. `events` is compressed; `patch` is None if there is none."""

    result: TaskResult
    events: bytes = field(repr=False)
    patch: bytes | None = field(default=None, repr=False)


def remote_task(
    task: Task, number: int, version: str, cwd: str, digest: str, options: tuple[str, ...] = ()
) -> RemoteTask:
    """Return a task for another machine, with the known secrets in its prompt and metadata masked."""
    register_environment(os.environ)
    metadata = json.loads(masked(json.dumps(task.metadata)))
    safe = replace(task, prompt=masked(task.prompt), metadata=metadata)
    return RemoteTask(safe, number, version, cwd, digest, options)


def pack(folder: str) -> tuple[bytes, str]:
    """Return a folder as one compressed archive, and its SHA-256 digest. Raise Stopped if the archive is too large."""
    target = _Bounded()
    try:
        with tarfile.open(fileobj=target, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
            archive.add(folder, arcname="workspace", filter=_remove_owner)
    except _TooLarge:
        why = f"it is larger than {LARGEST >> 20} MiB when packed, and it is sent with every task"
        fix = "remove build output from the folder, or run the batch on this machine"
        raise Stopped(Problem("the workspace is too large for other machines", why, fix), Exit.FAILED) from None
    data = target.getvalue()
    return data, hashlib.sha256(data).hexdigest()


def unpack(data: bytes, digest: str, folder: str) -> str:
    """Unpack the archive below `folder`, and return the path of the unpacked workspace.

    Raise ValueError if the digest differs, or the archive is not one that `pack` makes.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError("the archive of the workspace is not the one that was sent")
    with _Counted(data, _LARGEST_TREE) as plain, tarfile.open(fileobj=plain, mode="r:") as archive:
        members = list(itertools.islice(archive, _MOST_MEMBERS + 1))
        # Of two members with the same name, the second one would be written through the first one.
        if len(members) > _MOST_MEMBERS or len({item.name for item in members}) != len(members):
            raise ValueError(_UNEXPECTED)
        links = {item.name for item in members if item.issym()}
        for item in members:
            _check(item, links)
        archive.extractall(folder, members)  # noqa: S202  # _check saw each; CPython 3.11.2 has no filters yet
    return f"{folder}/workspace"


def _check(item: tarfile.TarInfo, links: set[str]) -> None:
    """Raise ValueError for an archive member of an unexpected kind, or one that would be written outside of the folder.

    SAFETY: a member is refused for its name, and for a link on its path. A link may point anywhere, as in the original.
    The set-user-ID, set-group-ID and sticky bits are removed.
    """
    parts = item.name.split("/")
    through = any("/".join(parts[:end]) in links for end in range(1, len(parts)))
    known = item.isreg() or item.isdir() or item.issym()
    if parts[0] != "workspace" or {"", ".", ".."} & {*parts} or through or not known:
        raise ValueError(_UNEXPECTED)
    item.mode &= 0o777


def packed(data: bytes) -> bytes:
    """Return the events compressed; only the last ones if the whole would exceed the limits."""
    if len(data) > _LARGEST_UNPACKED:
        data = data[-_LARGEST_UNPACKED:].partition(b"\n")[2]
    while len(small := gzip.compress(data, 1)) > _LARGEST_EVENTS:
        data = data[len(data) // 2 :].partition(b"\n")[2]
    return small


def unpacked(data: bytes) -> bytes:
    """Decompress the events that another machine packed. Raise PackedError for data that `packed` never makes."""
    return gunzip(data, _LARGEST_UNPACKED)


class _TooLarge(Exception):
    pass


class _Counted(gzip.GzipFile):
    """A compressed archive that `tarfile` reads, of at most `limit` bytes after decompression."""

    def __init__(self, data: bytes, limit: int) -> None:
        super().__init__(fileobj=io.BytesIO(data))
        self._limit = limit

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _LARGEST_HEAD or self.tell() + size > self._limit:
            raise ValueError(_UNEXPECTED)
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if (whence, offset) == (io.SEEK_CUR, 0):  # `tell` calls it so
            return super().seek(offset, whence)
        if whence != io.SEEK_SET or offset > self._limit:
            raise ValueError(_UNEXPECTED)
        return super().seek(offset)


class _Bounded(io.BytesIO):
    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]  # as tarfile calls it
        if self.tell() + len(data) > LARGEST:
            raise _TooLarge
        return super().write(data)


def _remove_owner(item: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owner from an archive member: user ids of this machine mean nothing on another one."""
    item.uid = item.gid = 0
    item.uname = item.gname = ""
    return item
