"""The watch that tells which folders of one tree may have changed, so that only those are examined before a command.

THREAT T316: a folder that changed and is taken for unchanged hides a new secret or auto-run file from the scan. A
folder counts as unchanged only while all of the following hold; otherwise it is examined:

- It was watched before it was examined, and the kernel reported no event of it since. The kernel queues the event of a
  change before the call that made the change returns.
- No event reported that a folder was moved, made or removed at its path, or at that of a folder above it.
- No event was lost: the queue of a process has a limit (inotify(7), max_queued_events).
- Nothing was mounted or unmounted (proc_pid_mountinfo(5)).
- It is on a file system all of whose changes the kernel reports. Network and FUSE file systems, overlays and ZFS are
  examined each time.
"""

import contextlib
import os
import select
import weakref
from collections.abc import Container

from sandbox.workspace import inotify
from sandbox.workspace.inotify import Inotify

_MOUNTS = "/proc/self/mountinfo"
MOST = 16_384  # folders of one tree. Each needs about 1 KB of kernel memory
_INSTANCES = 4  # watched trees of a process; a user has 128 instances (inotify(7), max_user_instances)
_SHARE = 4  # at most this part of the user's watches is used: editors need many
_BUFFERS = 64  # reads of the queue in one `renew`: other programs may fill it as fast as it is read
# statfs(2), linux/magic.h: ext2-4, XFS, Btrfs, tmpfs, ramfs, F2FS
REPORTING = frozenset((0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x858458F6, 0xF2F52010))
_MOVED = inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE
_GONE = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.IGNORED
_ALL = _MOVED | inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.ATTRIB


class TreeWatch:
    """The watch over the folders of one tree. `renew` and `settle` are called by turns.

    Attributes:
        changed: Folders that may have other names or attributes since the last `settle`.
        moved: Paths at which, and below which, other folders may be since the last `settle`.
        open: False after `close`.
    """

    def __init__(self) -> None:
        """Begin without a folder. Raises OSError if nothing can be watched: without inotify, or at a limit."""
        if len(_living) >= _INSTANCES:
            raise OSError(0, "too many trees are watched")
        self._most = min(MOST, _user_limit() // _SHARE)
        self._mounts = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._events = Inotify(_ALL)
        except BaseException:
            os.close(self._mounts)
            raise
        self.open = True
        self._poll = select.poll()
        self._poll.register(self._events.handle, select.POLLIN)
        self._poll.register(self._mounts, select.POLLPRI)
        self.changed, self.moved = set[str](), set[str]()
        self._lost = True  # nothing was examined yet
        self._ended = weakref.finalize(self, _end, self._events, self._mounts)
        self._ended.atexit = False
        _living.add(self)

    def __contains__(self, path: str) -> bool:
        return path in self._events

    def add(self, path: str) -> None:
        """Watch a folder from now on, if that is possible. Call this before the folder is examined. Raises OSError at a
        limit.
        """
        if len(self._events) >= self._most and path not in self._events:
            raise OSError(0, "too many folders are watched")
        if not self._events.add(path):
            self.remove(path)

    def remove(self, path: str) -> None:
        """End the watch of a folder, if there is one."""
        if (number := self._events.number(path)) >= 0:
            self._events.remove(number)

    def renew(self) -> bool:
        """Update `changed` and `moved`. Return False if any folder may have changed."""
        for _ in range(_BUFFERS):
            ready = self._poll.poll(0)
            if not ready:
                return not self._lost
            if any(handle == self._mounts for handle, _ in ready):
                self._lost = True
            for path, name, bits in self._events.read():
                if not path or bits & inotify.UNMOUNT:
                    self._lost = True
                elif not name:
                    (self.moved if bits & _GONE else self.changed).add(path)
                elif bits & _MOVED:
                    self.changed.add(path)
                    if bits & inotify.FOLDER:
                        self.moved.add(f"{path}/{name}")
        self._lost = True
        return False

    @property
    def folders(self) -> Container[str]:
        """Return the watched folders."""
        return self._events.folders

    def settle(self, folders: Container[str]) -> None:
        """Note that all that `renew` reported was examined, and end the watches of other folders than `folders`."""
        rearranged, events = self._lost or bool(self.moved), self._events
        self.changed.clear()
        self.moved.clear()
        self._lost = False
        if not rearranged:
            return
        for number, path in list(events.paths.items()):
            if path not in folders or events.number(path) != number:
                events.remove(number)

    def close(self) -> None:
        """End all watches. Calling this again has no effect."""
        self.open = False
        self._ended()
        _living.discard(self)


def _end(events: Inotify, mounts: int) -> None:
    events.close()
    os.close(mounts)


_living = weakref.WeakSet[TreeWatch]()


def _user_limit() -> int:
    """Return the number of watches that a user may have; 0 if it is unknown."""
    with contextlib.suppress(OSError, ValueError), open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
        return int(file.read())
    return 0


def _forked() -> None:
    """Close the watches in a forked process: two processes would share one queue, and each would miss events."""
    for watch in list(_living):
        watch.close()


os.register_at_fork(after_in_child=_forked)
