"""Renames that overwrite nothing. SOURCE: rename(2), renameat2 with RENAME_NOREPLACE and RENAME_EXCHANGE."""

import ctypes
import errno
import os

_NOREPLACE, _EXCHANGE = 1, 2
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # glibc 2.28; Linux alone has it


def available() -> bool:
    """Return True if this system has the renames of this module."""
    return _renameat2 is not None


def rename_new(name: str, above: int, target: str, target_above: int) -> None:
    """Rename `name` in the open folder `above` to `target` in `target_above`. Raise FileExistsError if the target
    exists, or another OSError.
    """
    _rename(name, above, target, target_above, _NOREPLACE)


def exchange(name: str, above: int, target: str, target_above: int) -> None:
    """Exchange two existing entries of any kind atomically. Raise FileNotFoundError if one is missing, or another
    OSError.
    """
    _rename(name, above, target, target_above, _EXCHANGE)


def _rename(name: str, above: int, target: str, target_above: int, flags: int) -> None:
    if _renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if _renameat2(above, os.fsencode(name), target_above, os.fsencode(target), ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name, None, target)
