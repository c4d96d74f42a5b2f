"""Disk space that a command takes, measured by the loss of free space while it runs. Standard library only.

No control group limits disk space, and quotas belong to the administrator of the file system. Querying free space takes
microseconds, but other programs use it too: after a loss beyond the limit the command's own files have to be counted.
"""

import os
import stat
import time

OFTEN = 0.005  # the shortest time between two checks in seconds
SELDOM = 0.2  # the longest time between two checks in seconds
# The largest rates of a command, from which the time of the next check follows: bytes and new files per second.
_FASTEST, _MAKES = 16 << 30, 1_000_000
# Bytes that count for each new file, because an empty file takes no space (mke2fs(8), inode_ratio).
_A_FILE = 16 << 10
_CLOCK = 2.0  # seconds by which a file system's clock may be slow


class Space:
    """The free space below some folders, from `begin` on.

    Attributes:
        lost: bytes by which the free space was smaller at the last `look` than at the start.
        cleared: bytes of loss that other programs caused, or that are within the limit of the command.
    """

    def __init__(self, folders: tuple[str, ...], limit: int) -> None:
        """Prepare to measure from `begin` on.

        `limit` is the number of bytes that a command may add below `folders`; 0 for no limit.
        """
        self.folders = folders
        self.limit = limit
        self._free: dict[str, tuple[int, int]] = {}
        self.forget()

    def begin(self) -> None:
        """Start counting for a new command."""
        self._since = time.time()
        self._free = {path: free for path in self.folders if (free := _free(path)) is not None} if self.limit else {}
        self.lost = self._files = 0
        self.cleared = float(self.limit)

    def forget(self) -> None:
        """End counting for the command, until the next `begin`."""
        self._free = {}
        self._since = self.cleared = 0.0
        self.lost = self._files = 0

    def look(self) -> None:
        """Read the free space, and update `lost`."""
        self.lost = self._files = 0
        for path, before in self._free.items():
            now = _free(path) or before
            self.lost, self._files = max(self.lost, before[0] - now[0]), max(self._files, before[1] - now[1])

    @property
    def watched(self) -> bool:
        """Return True if there is a limit, and a file system to write to."""
        return bool(self._free)

    @property
    def over_hard_limit(self) -> bool:
        """Return True if so much space is lost that the command must end without counting its files."""
        return self.watched and (self.lost > 2 * self.limit or self._files > 2 * self.limit // _A_FILE)

    @property
    def suspect(self) -> bool:
        """Return True if so much space is lost that the command's own files must be counted."""
        return self.watched and self.lost > self.cleared

    @property
    def pause(self) -> float:
        """Return the seconds until the next check: the time in which the fastest writer exceeds `cleared` or makes
        the largest number of new files, but at least `OFTEN` and at most `SELDOM`. Return `SELDOM` if nothing is
        watched.
        """
        if not self.watched:
            return SELDOM
        bytes_last, files_last = self.cleared - self.lost, 2 * self.limit // _A_FILE - self._files
        return min(max(min(bytes_last / _FASTEST, files_last / _MAKES), OFTEN), SELDOM)

    def written(self) -> int:
        """Return the bytes on the disk of the files, folders and links below `folders` that were changed since `begin`.

        Changes in the `_CLOCK` seconds before `begin` are counted too. A file with several names is counted once; the
        entries of a folder that cannot be listed are not counted. If `over_hard_limit` becomes True meanwhile (a write
        that has begun is not stopped), return at once the loss, or the bytes counted until then if they are more.
        """
        total, seen, pending, since = 0, set(), list(self.folders), self._since - _CLOCK
        while pending:
            self.look()
            if self.over_hard_limit:
                return max(total, self.lost)
            try:
                entries = os.scandir(pending.pop())
            except OSError:
                continue
            with entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # removed meanwhile
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
                    if status.st_ctime >= since and (status.st_dev, status.st_ino) not in seen:
                        seen.add((status.st_dev, status.st_ino))
                        total += status.st_blocks * 512
        return total

    def clear(self) -> None:
        """Attribute the loss to other programs or the allowed amount: count again after an eighth more."""
        self.cleared = max(self.cleared, self.lost + self.limit / 8)


def _free(path: str) -> tuple[int, int] | None:
    """Return free bytes and free files (0 if the file system does not count files), or None if `path` cannot be
    queried.
    """
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bfree * status.f_frsize, status.f_ffree
