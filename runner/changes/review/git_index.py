"""The paths that Git tracks in a repository, from its index, without running Git."""

import os

_INDEX = 128 << 20


_NAMES = 256 << 20  # bytes of all paths in an index: version 4 writes a long one in a few bytes


def kept_by_git(index: bytes | None) -> frozenset[str]:
    """Return the paths in Git's index (gitformat-index(5), versions 2 to 4), or an empty set if it cannot be read with
    certainty.
    """
    if not index or index[:4] != b"DIRC" or len(index) > _INDEX:
        return frozenset()
    version, count = (int.from_bytes(index[at : at + 4], "big") for at in (4, 8))
    for hash_size in (20, 32):
        found = _entries(index, version, count, hash_size) if 2 <= version <= 4 else None
        if found is not None:
            return frozenset(os.fsdecode(path) for path in found)
    return frozenset()


def _entries(index: bytes, version: int, count: int, hash_size: int) -> list[bytes] | None:
    found: list[bytes] = []
    at, before = 12, b""
    left = _NAMES
    for _ in range(count):
        start = at
        at += 40 + hash_size
        if at + 2 > len(index):
            return None
        flags = int.from_bytes(index[at : at + 2], "big")
        at += 4 if version >= 3 and flags & 0x4000 else 2
        if version == 4:
            drop, at = _varint(index, at)
            if drop > len(before):
                return None
        end = index.find(b"\0", at)
        if end < 0:
            return None
        name = index[at:end]
        if version == 4:
            name = before[: len(before) - drop] + name
            at = end + 1
        else:
            at = start + (end - start + 8) // 8 * 8
        if flags & 0xFFF not in (len(name), 0xFFF) or not name:
            return None  # not this size of hashes
        found.append(name)
        before = name
        left -= len(name)
        if left < 0:
            return None
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a number as in the offsets of pack files (gitformat-pack(5)), and return it with the position after it."""
    byte = data[at] if at < len(data) else 0
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at] if at < len(data) else 0
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1
