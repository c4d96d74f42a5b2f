"""Reader of the index of a Git repository. Format: gitformat-index(5), versions 2 to 4.

THREAT T117: the repository is not trusted, so every offset and length is checked.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from runner.facts.git.delta import distance_in
from runner.facts.git.objects import Unreadable


class IndexEntry(NamedTuple):
    """One entry of an index.

    Attributes:
        name: path relative to the top of the working tree.
        mode: file type and permissions.
        id: id of the content.
        size: size of the file in bytes, modulo 2**32.
        seconds: time of the last change of the file.
        stage: 0, or the side of a conflict.
        assumed: True if the file is assumed to be unchanged (git-update-index(1)).
        sparse: True if the file is left out of a sparse working tree.
    """

    name: bytes
    mode: int
    id: bytes
    size: int
    seconds: int
    stage: int
    assumed: bool
    sparse: bool


def index_header(data: bytes) -> tuple[int, int]:
    """Return the version and the number of entries. Raises Unreadable."""
    version, count = struct.unpack(">II", data[4:12]) if data[:4] == b"DIRC" and len(data) >= 12 else (0, 0)
    if version not in (2, 3, 4):
        raise Unreadable("an index")
    return version, count


def index_entries(data: bytes, *, id_bytes: int = 20) -> Iterator[IndexEntry]:
    """Yield the entries in their order. Raises Unreadable, also if the ids do not have `id_bytes` bytes (32 with
    SHA-256).
    """
    # mtime, mode, size, id and flags of an entry, between fields that are not used
    fields = struct.Struct(f">8xI12xI8xI{id_bytes}sH")
    version, count = index_header(data)
    at, name = 12, b""
    try:
        for _ in range(count):
            seconds, mode, size, id, flags = fields.unpack_from(data, at)
            begin, extended = at + fields.size, flags & 0x4000
            if extended and version == 2:
                raise Unreadable("an index")
            sparse = bool(extended and data[begin] & 0x40)
            begin += 2 if extended else 0
            kept = 0
            if version == 4:  # the name shares a prefix with the one before
                cut, begin = distance_in(data, begin)
                kept = len(name) - cut
            end = data.find(b"\0", begin)
            if end < begin or kept < 0:
                raise Unreadable("an index")
            name = name[:kept] + data[begin:end]
            if flags & 0xFFF not in (0xFFF, len(name)):  # an id of another length shifts all fields
                raise Unreadable("an index")
            at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8
            yield IndexEntry(name, mode, id, size, seconds, (flags >> 12) & 3, bool(flags & 0x8000), sparse)
    except (struct.error, IndexError):
        raise Unreadable("an index") from None
