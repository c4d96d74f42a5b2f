"""Reading of regular files, and of the targets of links, at paths that a hostile process may control.

A path may name a pipe that blocks, a device that acts when it is opened, a symbolic link, or a file that grows while it
is read. Every read of such a path goes through this module.

The module uses the standard library only, because it also runs confined.
"""

import os
import stat

# SAFETY: open(2). A pipe is not waited for, and no terminal becomes the controlling terminal.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_PIECE = 1 << 20  # bytes of one read(2)
_TRIES = 100
_MOST_LINKS = 40  # links that the kernel follows in one path (path_resolution(7))


class NotRegularError(OSError):
    """The path names something other than a regular file.

    Attributes:
        mode: `st_mode` of the file that the path names.
    """

    def __init__(self, mode: int) -> None:
        super().__init__("not a regular file")
        self.mode = mode


class FileTooLongError(OSError):
    """The file is longer than the caller accepts."""


def real_path(path: str) -> str:
    """Return `path` with all links resolved, as `os.path.realpath` does. Raises ValueError for a path with a NUL.

    A link whose target this user may not read, such as `/proc/1/cwd`, counts as no link.

    `os.path.realpath` looks at a name and then reads the link there. It raises OSError if another process replaced the
    link meanwhile, so it is called again. Raises OSError if that happens _TRIES times.
    """
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except PermissionError:  # of such a link, before Python 3.13
            return _readable_path(path)
        except OSError:
            continue
    return os.path.realpath(path)


def _readable_path(path: str) -> str:
    """Return `path` with the links resolved that this user may read. The path may lead through any number of folders
    that do not exist.
    """
    pending, at, followed = os.path.join(os.getcwd(), path).split("/"), "", 0
    while pending:
        name = pending.pop(0)
        if name == "..":
            at = at.rpartition("/")[0]
        if name in ("", ".", ".."):
            continue
        at = f"{at}/{name}"
        try:
            target = os.readlink(at)
        except OSError:  # it is no link, or not readable
            continue
        if (followed := followed + 1) > _MOST_LINKS:
            return "/".join((at, *pending))
        at = "" if target.startswith("/") else os.path.dirname(at)
        pending = [*target.split("/"), *pending]
    return at or "/"


def open_regular(
    path: str | os.PathLike[str], *, follow: bool, dir_fd: int | None = None
) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and its state. The caller closes the descriptor.

    The kind is checked before the file is opened, because opening a device can act, and after, because names move.

    Args:
        path: the file; a relative path is relative to `dir_fd`, or to the working directory.
        follow: False to refuse a symbolic link at the end of the path, with the error ELOOP.
        dir_fd: descriptor of a folder.

    Raises NotRegularError, another OSError, or ValueError for a path that no kernel accepts.
    """
    mode = os.stat(path, dir_fd=dir_fd, follow_symlinks=follow).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise NotRegularError(mode)
    handle = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW, dir_fd=dir_fd)
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        os.close(handle)
        raise NotRegularError(state.st_mode)
    return handle, state


def read_start(path: str | os.PathLike[str], most: int, *, follow: bool) -> bytes:
    """Return the first `most` bytes of a regular file; empty if there is no regular file that can be read."""
    try:
        with open(open_regular(path, follow=follow)[0], "rb", buffering=0) as file:
            return read_descriptor(file.fileno(), most)
    except (OSError, ValueError):
        return b""


def read_whole(path: str | os.PathLike[str], most: int, *, follow: bool) -> bytes:
    """Return the content of a regular file of at most `most` bytes; `path` and `follow` are those of `open_regular`.

    Raises FileTooLongError, NotRegularError, another OSError, or ValueError.
    """
    with open(open_regular(path, follow=follow)[0], "rb", buffering=0) as file:
        content = read_descriptor(file.fileno(), most + 1)
    if len(content) > most:
        raise FileTooLongError("the file is too long")
    return content


def read_descriptor(handle: int, most: int) -> bytes:
    """Return at most `most` bytes from the current position of an open file. Raises OSError."""
    pieces = []
    left = most
    while left > 0 and (piece := os.read(handle, min(left, _PIECE))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
