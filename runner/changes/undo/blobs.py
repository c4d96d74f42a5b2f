"""Storage of file contents: small contents share pack files, a large content has its own file, cloned by reflink if
possible.

A file for each content would take ten times as long to write. A content is checked against its hash when it is read, so
nothing has to reach the disk before the action runs: after a power failure a content may be missing, but never wrong.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from policy.model.frozen import dataclass
from runner.changes import safe_open
from runner.state import reflink
from runner.text.phrases import os_reason

LARGE = 1 << 20  # bytes; a content of this size or larger has its own file
_CHUNK = 1 << 20  # bytes of one read or write
_FULL = 64 << 20  # bytes after which a new pack is begun: a pack is removed or rewritten only as a whole


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """The location of a content: the number of its pack, and its offset and size in bytes."""

    pack: int
    offset: int
    size: int


class Lost(Exception):
    """An error for a stored content that is missing or damaged."""


class BlobStore:
    """The pack files in the private folder `folder`. `number` is the highest number in use."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._open: int | None = None
        self._offset = 0
        self._pending = bytearray()
        self.reflinks = True  # until one fails: another file system, or one without reflinks

    def resume(self, number: int) -> None:
        """Skip the numbers up to `number`, which another process may have used."""
        self._number = max(self._number, number)

    def add(self, data: bytes) -> BlobPlace:
        """Append one small content. Raise OSError (a full disk); contents added before stay."""
        if self._open is None or self._offset > _FULL:
            self.flush()
            self._begin()
        place = BlobPlace(self._number, self._offset, len(data))
        self._offset += len(data)
        self._pending += data
        if len(self._pending) >= _CHUNK:
            self._write()
        return place

    def clone(self, source: int, size: int) -> tuple[BlobPlace, bytes] | None:
        """Store the whole open file `source` and return its location and SHA-256. Return None if its size is no longer
        `size`.
        """
        self.flush()
        self._begin()
        number, target = self._number, self._open
        assert target is not None  # `_begin` opened it
        digest, copied = hashlib.sha256(), 0
        self.reflinks = whole = self.reflinks and reflink.shared(source, target)
        reader = target if whole else source
        os.lseek(reader, 0, os.SEEK_SET)
        while data := os.read(reader, _CHUNK):
            copied += len(data)
            if copied > size:  # the file grows during the copy, perhaps forever
                break
            digest.update(data)
            if not whole:
                safe_open.write_all(target, data)
        self.flush()
        if copied != size:
            self.drop(number)
            return None
        return BlobPlace(number, 0, size), digest.digest()

    def read(self, place: BlobPlace, digest: bytes) -> Iterator[bytes]:
        """Yield the content in pieces. Raise Lost after the last piece if the content is damaged: use no piece before
        the end.
        """
        hashed, left = hashlib.sha256(), place.size
        try:
            with open(self._path(place.pack), "rb", buffering=0) as file:
                file.seek(place.offset)
                while left and (data := file.read(min(left, _CHUNK))):
                    left -= len(data)
                    hashed.update(data)
                    yield data
        except OSError as error:
            raise Lost(os_reason(error)) from None
        if left or hashed.digest() != digest:
            raise Lost("the stored content is damaged")

    def flush(self) -> None:
        """Write everything that is held in memory. Raise OSError."""
        if self._open is not None:
            handle, self._open = self._open, None
            try:
                self._write(handle)
            finally:
                os.close(handle)

    def give_up(self) -> None:
        """Discard everything that is not written, after an error or because it is no longer needed."""
        self._pending.clear()
        with contextlib.suppress(OSError):
            self.flush()

    def drop(self, number: int) -> None:
        """Remove a pack, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(number))

    def numbers(self) -> set[int]:
        """Return the numbers of the existing packs."""
        return {int(name[:-5], 16) for name in os.listdir(self._folder) if name.endswith(".pack")}

    def _begin(self) -> None:
        self._number += 1
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._open, self._offset = os.open(self._path(self._number), flags, 0o600), 0

    def _write(self, handle: int | None = None) -> None:
        handle = self._open if handle is None else handle
        if self._pending and handle is not None:
            data, self._pending = self._pending, bytearray()
            safe_open.write_all(handle, data)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08x}.pack"
