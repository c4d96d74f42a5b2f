"""What tells that a file is the one that it was."""

import os

Stamp = tuple[int, int, int, int, int]  # device, inode, size, mtime and ctime in nanoseconds


def stamp(status: os.stat_result) -> Stamp:
    """Equal while nobody changed it: ctime is the kernel's alone."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
