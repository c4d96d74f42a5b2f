"""Writing a configuration file as a whole: in its folder, never through a link that came with the repository."""

import os
import secrets
import stat
from pathlib import Path

from runner.config.settings import ConfigError


def write(path: Path, text: str, *, own: bool, new: bool = False) -> None:
    """Write `text` to `path` atomically. The folder is created if it does not exist.

    With `own`, the file is the user's own and may be a symbolic link; otherwise neither the file nor its folder may be
    a link. With `new`, the file must not exist. Raises ConfigError.
    """
    path = Path(os.path.realpath(path)) if own and path.is_symlink() else path
    try:
        path.parent.mkdir(parents=own, exist_ok=True, mode=0o700 if own else 0o777)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if own else os.O_NOFOLLOW))
    except OSError as error:
        if not own and path.parent.is_symlink():
            raise _refused(path.parent, "it is a link", "make it a real folder, or remove it") from None
        raise _refused(path.parent, _said(error), "check who owns the folders above it") from None
    try:
        mode = _mode(folder, path, new, 0o600 if own else 0o666 & ~_umask())
        _put(folder, path, text, mode)
    except OSError as error:
        raise _refused(path, _said(error), "check the folder and the disk it lies on") from None
    finally:
        os.close(folder)


def _mode(folder: int, path: Path, new: bool, usual: int) -> int:
    """Return the mode of the existing file, which stays; `usual` if there is no file."""
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return usual
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "it is a link", "remove it")
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "it is not a plain file", "remove it")
    if new:
        raise _refused(path, "it is there already", "look at it; `--force` replaces it")
    return stat.S_IMODE(found.st_mode)


def _put(folder: int, path: Path, text: str, mode: int) -> None:
    beside = f".{path.name}.{secrets.token_hex(8)}"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _said(error: OSError) -> str:
    return (error.strerror or "unknown reason").lower()


def _refused(path: Path, why: str, fix: str) -> ConfigError:
    return ConfigError.about(path, why, fix, "cannot be written")
