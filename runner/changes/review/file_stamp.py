"""The stamp of a file, which shows that the file did not change."""

import os

Stamp = tuple[int, int, int, int, int]  # device, inode, size, mtime and ctime in nanoseconds


def stamp(status: os.stat_result) -> Stamp:
    """Return a stamp that is equal as long as the file does not change: only the kernel sets ctime."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
