"""Sharing of file contents until one of the files is written (reflinks; supported by btrfs, XFS and bcachefs)."""

import fcntl

_FICLONE = 0x40049409  # ioctl_ficlone(2)


def shared(source: int, target: int) -> bool:
    """Give the open file `target` the content of the open file `source`. Return False, without a change, if the file
    system does not support that. A write to one file is never seen in the other.
    """
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
