"""The watch of folders by inotify(7), which only Linux has."""

import ctypes
import os
import struct
from collections.abc import Container, Iterator

# SOURCE: inotify(7), linux/inotify.h
ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, OVERFLOW, IGNORED, FOLDER = 0x400, 0x800, 0x2000, 0x4000, 0x8000, 0x40000000
EXCL_UNLINK = 0x4000000
_ONLYDIR, _DONT_FOLLOW = 0x1000000, 0x2000000
_EVENT = struct.Struct("iIII")
_CHUNK = 1 << 16  # bytes
_LIMITS = frozenset((28, 12, 24, 23))  # ENOSPC, ENOMEM, EMFILE, ENFILE

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """An inotify instance with watches on folders, without the folders below them. The caller closes the instance.

    Attributes:
        handle: The descriptor, readable when there is an event; -1 after `close`.
        paths: The folder of each watch, by the number that the kernel gave it.
    """

    def __init__(self, events: int) -> None:
        """Open a descriptor for the `events`. Raises OSError without inotify, or if the user already has too many
        instances.
        """
        start = getattr(_libc, "inotify_init1", None)
        self.handle = start(os.O_NONBLOCK | os.O_CLOEXEC) if start is not None else -1
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self.paths: dict[int, str] = {}
        self._events = events | _ONLYDIR | _DONT_FOLLOW
        self._numbers: dict[str, int] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._numbers

    def __len__(self) -> int:
        return len(self.paths)

    def add(self, path: str) -> bool:
        """Watch a folder from now on, and return True; False if there is no such folder, or it cannot be read. Raises
        OSError if the user has the maximum number of watches (ENOSPC, ENOMEM).
        """
        number = _libc.inotify_add_watch(self.handle, os.fsencode(path), self._events)
        if number < 0:
            error = ctypes.get_errno()
            if error in _LIMITS:
                raise OSError(error, "inotify")
            return False
        # The kernel identifies folders, not paths: a folder that was moved keeps its number.
        if (before := self.paths.get(number)) != path:
            if before is not None and self._numbers.get(before) == number:
                del self._numbers[before]
            self.paths[number] = path
        self._numbers[path] = number
        return True

    def remove(self, number: int) -> None:
        """End the watch with this number."""
        path = self.paths.pop(number)
        if self._numbers.get(path) == number:
            del self._numbers[path]
        _libc.inotify_rm_watch(self.handle, number)  # fails if the kernel has ended it

    @property
    def folders(self) -> Container[str]:
        """Return the watched folders."""
        return self._numbers

    def number(self, path: str) -> int:
        """Return the number of the watch of a folder; -1 if there is none."""
        return self._numbers.get(path, -1)

    def read(self) -> Iterator[tuple[str, str, int]]:
        """Yield one buffer of events as (folder, name in it, bits of the event). The name is empty for an event of the
        folder itself. An empty folder means that events were lost.
        """
        try:
            data = os.read(self.handle, _CHUNK)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if mask & OVERFLOW:
                yield "", "", mask
                continue
            if (path := self.paths.get(number)) is None:
                continue
            if mask & IGNORED:
                del self.paths[number]
                if self._numbers.get(path) == number:
                    del self._numbers[path]
            yield path, os.fsdecode(data[at - length : at].rstrip(b"\0")), mask

    def close(self) -> None:
        """Close the descriptor. Calling this again has no effect."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
