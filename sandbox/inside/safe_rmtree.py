"""Removal of files that commands left, with any modes, depth and names. No link is ever followed.

Standard library only: helpers use this module too. The program has more rights than a command, so every step goes
through a descriptor of the folder (THREAT T18).
"""

import contextlib
import os
import stat
from collections.abc import Iterator


def remove(path: str) -> None:
    """Remove the folder at `path` with its content. Files that this user may not remove stay. Never raises OSError."""
    with contextlib.suppress(OSError):
        with _opened(path, None) as handle:
            _empty(handle)
        os.rmdir(path)


def empty(path: str) -> None:
    """Remove the content of the folder at `path`. Files that this user may not remove stay. Never raises OSError."""
    with contextlib.suppress(OSError):
        with os.scandir(path) as entries:
            if next(entries, None) is None:
                return
        with _opened(path, None) as handle:
            _empty(handle)


def regain(path: str, above: int | None = None) -> None:
    """Restore this user's rights to the folder at `path`, relative to the open folder `above`, if the user owns it. On
    Linux, raises OSError for a non-folder.
    """
    if not hasattr(os, "O_PATH"):  # not Linux: no descriptor without the right to read
        mode = os.stat(path, dir_fd=above, follow_symlinks=False).st_mode
        os.chmod(path, stat.S_IMODE(mode) | 0o700, dir_fd=above, follow_symlinks=False)
        return
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
    with closing(os.open(path, flags, dir_fd=above)) as handle:
        restore(handle)


def restore(handle: int) -> None:
    """Restore this user's rights to the open folder `handle` if the user owns it. Raises OSError."""
    state = os.fstat(handle)
    if state.st_uid == os.geteuid() and state.st_mode & 0o700 != 0o700:
        opened_by_path = hasattr(os, "O_PATH")  # chmod(2) of such a descriptor needs its name in /proc (proc(5))
        os.chmod(f"/proc/self/fd/{handle}" if opened_by_path else handle, stat.S_IMODE(state.st_mode) | 0o700)


def _empty(top: int) -> None:
    """Remove the content of an open folder. Folders below are moved up first, so the depth of recursion is constant."""
    token, number = os.urandom(8).hex(), 0
    while True:
        before = number
        for name in os.listdir(top):
            try:
                os.unlink(name, dir_fd=top)
                continue
            except (IsADirectoryError, PermissionError):
                pass  # a folder (unlink(2) gives EISDIR or EPERM), or a file that this user may not remove
            except OSError:
                continue
            with contextlib.suppress(OSError):
                with _opened(name, top) as inner:
                    number = _hoist(inner, top, token, number)
                os.rmdir(name, dir_fd=top)
        if number == before:
            return


def _hoist(inner: int, top: int, token: str, number: int) -> int:
    """Unlink the files of one folder and move its folders to `top`. Return the next free number."""
    for name in os.listdir(inner):
        try:
            os.unlink(name, dir_fd=inner)
        except (IsADirectoryError, PermissionError):
            with contextlib.suppress(OSError):
                with _opened(name, inner):  # its own mode must let it be moved
                    os.rename(name, f".{token}-{number}", src_dir_fd=inner, dst_dir_fd=top)
                number += 1
        except OSError:
            continue
    return number


class closing:
    """The context of a descriptor, which is closed at the end of the statement."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __enter__(self) -> int:
        return self._handle

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


@contextlib.contextmanager
def _opened(name: str, parent: int | None) -> Iterator[int]:
    """Open the folder, after restoring this user's rights to it. Raises OSError for a link or another kind of file."""
    with closing(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)) as place:
        state = os.fstat(place)
        if not stat.S_ISDIR(state.st_mode):
            raise NotADirectoryError(20, "not a folder", name)
        if state.st_mode & 0o700 != 0o700:
            with contextlib.suppress(OSError):  # a folder of another user: opening it below raises the error
                os.chmod(f"/proc/self/fd/{place}", 0o700)  # the way to a descriptor's own inode (proc(5))
        handle = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with closing(handle):
        yield handle
