"""One inotify(7) instance: which folders are watched, and the names that came to them. Linux alone has it."""

import ctypes
import os
import struct
from collections.abc import Iterator

# SOURCE: inotify(7), linux/inotify.h
_CREATE, _MOVED_TO, _CLOSE_WRITE = 0x100, 0x80, 0x8
_OVERFLOW, _IGNORED, _FOLDER = 0x4000, 0x8000, 0x40000000
_ONLYDIR, _DONT_FOLLOW, _EXCL_UNLINK = 0x1000000, 0x2000000, 0x4000000
_WANTED = _CREATE | _MOVED_TO | _CLOSE_WRITE | _ONLYDIR | _DONT_FOLLOW | _EXCL_UNLINK
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("iIII")
_CHUNK = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Watches on folders, without the folders below them. The caller closes it.

    Attributes:
        handle: The descriptor, readable when there is an event.
        paths: The folder of each watch, by the number that the kernel gave it.
    """

    __slots__ = ("_numbers", "handle", "paths")

    def __init__(self) -> None:
        """Open a descriptor. Raises OSError without inotify, or if this user has too many instances already."""
        start = getattr(_libc, "inotify_init1", None)
        self.handle = start(_NONBLOCK | _CLOEXEC) if start is not None else -1
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self.paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._numbers

    def __len__(self) -> int:
        return len(self.paths)

    def add(self, path: str) -> bool:
        """Watch a folder from now on, and return True; False when there is none. Raises OSError where this user has as
        many watches as it may have (ENOSPC, ENOMEM)."""
        number = _libc.inotify_add_watch(self.handle, os.fsencode(path), _WANTED)
        if number < 0:
            error = ctypes.get_errno()
            if error in _LIMITS:
                raise OSError(error, "inotify")
            return False
        # The kernel knows folders, not paths: one that was moved keeps its number.
        if (before := self.paths.get(number)) != path:
            if before is not None and self._numbers.get(before) == number:
                del self._numbers[before]
            self.paths[number] = path
        self._numbers[path] = number
        return True

    def read(self) -> Iterator[tuple[str, str, bool, bool]]:
        """Yield what happened: the folder, the name in it, whether that is a folder, and whether it is complete (moved
        there, or closed by who wrote it). An empty folder: events were lost. Ends after one buffer of events."""
        try:
            data = os.read(self.handle, _CHUNK)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if mask & _OVERFLOW:
                yield "", "", False, False
                continue
            path = self.paths.get(number)
            if mask & _IGNORED:
                if path is not None:
                    del self.paths[number]
                    if self._numbers.get(path) == number:
                        del self._numbers[path]
                continue
            if path is not None and length:
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                yield path, name, bool(mask & _FOLDER), not mask & _CREATE

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


_LIMITS = frozenset((28, 12, 24, 23))  # ENOSPC, ENOMEM, EMFILE, ENFILE
