"""Sharing the content of a file with another until one of them is written: what btrfs, XFS and bcachefs can do."""

import fcntl

_FICLONE = 0x40049409  # ioctl_ficlone(2)


def shared(source: int, target: int) -> bool:
    """Give the open file `target` all of the open file `source`; False where the file system cannot, then nothing
    happened. A write to one is never seen in the other."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
